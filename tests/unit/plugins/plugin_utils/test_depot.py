# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Against a real HTTP server on loopback and the real pip."""

from __future__ import annotations

import base64
import hashlib
import http.server
import os
import re
import threading
import zipfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal
from ansible_collections.tether.fleet.plugins.plugin_utils import depot, fetch
from ansible_collections.tether.fleet.plugins.plugin_utils.depot import Depot, Want

DATA = os.urandom(300_000)
DIGEST = hashlib.sha256(DATA).hexdigest()


class Server:
    """Serves one file; how badly is set by the test."""

    def __init__(self) -> None:
        self.data = DATA
        self.ranges = True
        self.cut: List[int] = []  # how many bytes the next answers send before they break off
        self.status: List[int] = []  # statuses of the next answers
        self.asked: List[Optional[str]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *unused: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d/files/x.bin" % self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        wanted = request.headers.get("Range")
        self.asked.append(wanted)
        if self.status:
            request.send_error(self.status.pop(0))
            return
        start = 0
        match = re.fullmatch(r"bytes=(\d+)-", wanted or "")
        if match and self.ranges:
            start = int(match.group(1))
            if start >= len(self.data):
                request.send_error(416)
                return
        body = self.data[start:]
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body[: self.cut.pop(0)] if self.cut else body)

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(fetch.time, "sleep", lambda seconds: None)
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    server = Server()
    yield server
    server.close()


class Place:
    def __init__(self, folder: Path) -> None:
        self.said: List[str] = []
        self.folder = folder
        self.depot = Depot(str(folder), self.said.append)

    def get(self, want: Want, verify: bool = False) -> List[str]:
        plan = self.depot.plan([want], self.depot.observe([want], verify))
        for failure in self.depot.check_sources(plan) + self.depot.apply(plan):
            raise failure
        return [step.action for step in plan.steps]

    @property
    def partial(self) -> Path:
        return self.folder / "partial" / DIGEST


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "depot")


def want(**keys: Any) -> Want:
    fields: Dict[str, Any] = {
        "kind": "model",
        "name": "x.bin",
        "sha256": DIGEST,
        "size": len(DATA),
        "source": {},
        "file": "x.bin",
    }
    fields.update(keys)
    return Want(**fields)


def from_url(server: Server, **keys: Any) -> Want:
    return want(source={"url": server.url}, **keys)


def test_a_download(server: Server, place: Place) -> None:
    wanted = from_url(server)
    assert place.get(wanted) == ["create"]
    path = Path(place.depot.locate(DIGEST, "x"))
    assert path == place.folder / "sha256" / DIGEST[:2] / DIGEST
    assert path.read_bytes() == DATA
    assert not place.partial.exists()
    assert place.get(wanted) == []
    assert len(server.asked) == 1
    assert place.depot.facts([wanted]) == [
        {
            "kind": "model",
            "name": "x.bin",
            "sha256": DIGEST,
            "size": len(DATA),
            "path": str(path),
        }
    ]


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("size", [len(DATA), None])
def test_a_download_that_breaks_off_goes_on(
    server: Server, place: Place, ranges: bool, size: Optional[int]
) -> None:
    server.ranges = ranges
    server.cut = [100_000, 50_000]
    place.get(from_url(server, size=size))
    if ranges:
        assert server.asked == [None, "bytes=100000-", "bytes=150000-"]
    place.depot.locate(DIGEST, "x")


def test_the_next_run_goes_on(server: Server, place: Place) -> None:
    server.cut = [70_000, 0, 0, 0]
    with pytest.raises(Refusal, match=r"70\.0 kB that have arrived are kept"):
        place.get(from_url(server))
    assert place.partial.stat().st_size == 70_000
    place.get(from_url(server))
    assert server.asked[-1] == "bytes=70000-"


def test_what_is_left_of_another_file_is_no_harm(server: Server, place: Place) -> None:
    place.partial.parent.mkdir(parents=True)
    place.partial.write_bytes(b"x" * 1000)
    place.get(from_url(server))
    assert server.asked == ["bytes=1000-", None]
    for size in (len(DATA), len(DATA) + 5):
        Path(depot.path_of(str(place.folder), DIGEST)).unlink()
        place.partial.write_bytes(b"x" * size)
        place.get(from_url(server))
    # The server's file is shorter than what is here, and the size is not known.
    Path(depot.path_of(str(place.folder), DIGEST)).unlink()
    place.partial.write_bytes(b"x" * (len(DATA) + 5))
    place.get(from_url(server, size=None))


def test_a_wrong_digest(server: Server, place: Place) -> None:
    server.data = DATA[::-1]
    found = hashlib.sha256(server.data).hexdigest()
    with pytest.raises(Refusal) as refused:
        place.get(from_url(server))
    assert found in refused.value.found
    assert DIGEST in refused.value.expected
    assert not place.partial.exists()
    with pytest.raises(Refusal, match="Run the depot task first"):
        place.depot.locate(DIGEST, "x")


@pytest.mark.parametrize("change", [-1, 1])
def test_a_wrong_length_is_seen_before_the_download(
    server: Server, place: Place, change: int
) -> None:
    with pytest.raises(Refusal, match="a length of 300000 bytes"):
        place.get(from_url(server, size=len(DATA) + change))
    assert len(server.asked) == 1


def test_errors_of_the_server(server: Server, place: Place) -> None:
    server.status = [503, 429]
    place.get(from_url(server))
    assert len(server.asked) == 3
    Path(depot.path_of(str(place.folder), DIGEST)).unlink()
    server.status = [404]
    with pytest.raises(Refusal, match="HTTP 404"):
        place.get(from_url(server))
    assert len(server.asked) == 4


def test_no_server(server: Server, place: Place) -> None:
    server.close()
    with pytest.raises(Refusal, match="refused"):
        place.get(from_url(server))


def test_passwords_are_not_shown(server: Server, place: Place) -> None:
    server.status = [403]
    url = server.url.replace("//", "//user:secret@") + "?signature=hidden"
    with pytest.raises(Refusal, match="HTTP 403") as refused:
        place.get(want(source={"url": url}))
    assert "secret" not in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_a_file(place: Place, tmp_path: Path) -> None:
    source = tmp_path / "x.bin"
    source.write_bytes(DATA)
    assert place.get(want(source={"file": str(source)})) == ["create"]
    source.write_bytes(b"changed afterwards")
    assert place.get(want(source={"file": str(source)})) == []
    assert Path(place.depot.locate(DIGEST, "x")).read_bytes() == DATA


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "no readable file"), (DATA[:-1], "299999 bytes"), (DATA[::-1], "sha256")],
)
def test_a_file_that_is_wrong(
    place: Place, tmp_path: Path, content: Optional[bytes], words: str
) -> None:
    source = tmp_path / "x.bin"
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(Refusal, match=words):
        place.get(want(source={"file": str(source)}))
    assert not place.partial.exists()


def test_damage_in_the_depot(place: Place, tmp_path: Path) -> None:
    source = tmp_path / "x.bin"
    source.write_bytes(DATA)
    wanted = want(source={"file": str(source)})
    place.get(wanted)
    path = Path(place.depot.locate(DIGEST, "x"))
    path.chmod(0o644)
    path.write_bytes(DATA[:-1])
    assert place.get(wanted) == ["update"]
    path.chmod(0o644)
    times = path.stat()
    path.write_bytes(DATA[::-1])
    assert place.get(wanted) == ["update"]
    path.chmod(0o644)
    path.write_bytes(DATA[::-1])
    os.utime(path, ns=(times.st_atime_ns, path.stat().st_mtime_ns))
    mark = path.with_name(DIGEST + ".json")
    mark.write_text('{"size": %d, "mtime_ns": %d}' % (len(DATA), path.stat().st_mtime_ns))
    assert place.get(wanted) == []
    assert place.get(wanted, verify=True) == ["update"]
    # A mark that is lost costs a reading, no more.
    mark.unlink()
    assert place.get(wanted) == []
    assert mark.exists()


def test_a_wrong_size_does_not_replace_a_right_file(place: Place, tmp_path: Path) -> None:
    source = tmp_path / "x.bin"
    source.write_bytes(DATA)
    place.get(want(source={"file": str(source)}))
    with pytest.raises(Refusal, match="Mend 'size'"):
        place.get(want(source={"file": str(source)}, size=5))


def test_runs_side_by_side(server: Server, tmp_path: Path) -> None:
    places = [Place(tmp_path / "depot") for _number in range(6)]
    errors: List[BaseException] = []

    def run(place: Place) -> None:
        try:
            place.get(from_url(server))
        except Exception as error:  # noqa: BLE001 # shown by the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(server.asked) == 1


def test_no_room(place: Place, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="free on the file system at"):
        place.get(want(source={"url": "http://127.0.0.1:1/x"}, size=2**62))


def make_wheel(
    folder: Path, name: str = "tether_fake-1.0-py3-none-manylinux2014_x86_64.whl"
) -> Path:
    """A wheel that the real pip accepts, for a platform that may not be this machine's."""
    folder.mkdir(exist_ok=True)
    info = "tether_fake-1.0.dist-info/"
    files = {
        "tether_fake/program": b"#!/bin/sh\n",
        info + "METADATA": b"Metadata-Version: 2.1\nName: tether-fake\nVersion: 1.0\n",
        info + "WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: %s\n"
        % name[:-4].split("-", 2)[2].encode(),
    }
    record = ""
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
        record += "%s,sha256=%s,%d\n" % (path, digest.decode(), len(content))
    files[info + "RECORD"] = (record + info + "RECORD,,\n").encode()
    with zipfile.ZipFile(folder / name, "w") as packed:
        for path, content in files.items():
            packed.writestr(zipfile.ZipInfo(path), content)
    return folder / name


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip's own configuration, by environment: no network, one folder of wheels."""
    folder = tmp_path / "wheels"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return folder


def from_index(wheel: Path, **keys: Any) -> Want:
    data = wheel.read_bytes()
    fields: Dict[str, Any] = {
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": len(data),
        "source": {"index": {"package": "tether-fake", "version": "1.0"}},
        "file": wheel.name,
    }
    fields.update(keys)
    return want(**fields)


@pytest.mark.parametrize(
    "name",
    [
        "tether_fake-1.0-py3-none-manylinux2014_x86_64.musllinux_1_1_x86_64.whl",
        "tether_fake-1.0-py3-none-macosx_11_0_arm64.whl",
        "tether_fake-1.0-py3-none-any.whl",
    ],
)
def test_a_wheel_of_any_platform(index: Path, place: Place, name: str) -> None:
    wheel = make_wheel(index, name)
    wanted = from_index(wheel)
    assert place.get(wanted) == ["create"]
    assert Path(place.depot.locate(wanted.sha256, "x")).read_bytes() == wheel.read_bytes()
    assert sorted(os.listdir(place.folder / "partial")) == [wanted.sha256 + ".lock"]


def test_a_wheel_that_the_index_lacks(index: Path, place: Place) -> None:
    wheel = make_wheel(index)
    source = {"index": {"package": "tether-fake", "version": "9"}}
    with pytest.raises(Refusal, match="pip: ERROR: "):
        place.get(from_index(wheel, source=source))


def test_a_wheel_that_was_replaced(index: Path, place: Place) -> None:
    wheel = make_wheel(index)
    with pytest.raises(Refusal, match="expected sha256 %s" % DIGEST):
        place.get(from_index(wheel, sha256=DIGEST, size=None))
    name = "tether_fake-1.0-2-py3-none-manylinux2014_x86_64.whl"
    with pytest.raises(Refusal, match="expected %s" % name):
        place.get(from_index(wheel, file=name))


def test_what_pip_says_is_shown_without_passwords() -> None:
    output = "Looking in x\nERROR: no https://user:secret@host/simple\n"
    assert fetch.pip_trouble(output) == "ERROR: no https://****@host/simple"
    assert fetch.pip_trouble("one\ntwo\nthree\n") == "two three"
    assert fetch.pip_trouble("") == "no output"


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("https://host/x?y", {"url": "https://host/x?y"}),
        ("/abs/x", {"file": "/abs/x"}),
        ("rel/x", {"file": "/base/rel/x"}),
        ("file:///a%20b", {"file": "/a b"}),
    ],
)
def test_sources_of_models(text: str, source: Dict[str, str]) -> None:
    assert depot.model_source(text, "/base", "x") == source


@pytest.mark.parametrize("text", ["", "ftp://h/x", "file://other/x", "s3://b/x", "https:"])
def test_sources_that_are_refused(text: str) -> None:
    with pytest.raises(Refusal, match="source"):
        depot.model_source(text, "/base", "x")


@pytest.mark.parametrize("digest", [None, "", "abc", "A" * 64])
def test_a_model_without_a_digest(digest: Any) -> None:
    with pytest.raises(Refusal, match="64 lower-case hex digits"):
        depot.wants(None, [], [{"name": "x", "sha256": digest, "source": "/x"}], "/")


def test_each_digest_once() -> None:
    model = {"name": "x", "sha256": DIGEST, "source": "/x"}
    assert len(depot.wants(None, [], [model, dict(model, name="y")], "/")) == 1


def test_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(fetch.time, "monotonic", lambda: now[0])
    said: List[str] = []
    progress = fetch.Progress("x", 100_000_000, said.append, start=10_000_000)
    progress.at(20_000_000)
    now[0] = 5.0
    progress.at(60_000_000)
    now[0] = 6.0
    progress.at(70_000_000)
    assert said == ["x: 60 % of 100.0 MB, 10.0 MB/s"]


def test_everything_that_is_wrong_is_said_at_once_and_the_rest_is_fetched(
    place: Place, tmp_path: Path
) -> None:
    good, wrong = tmp_path / "good", tmp_path / "wrong"
    good.write_bytes(DATA)
    wrong.write_bytes(b"something else")
    wants = [
        depot.Want("model", "absent", "0" * 64, None, {"file": str(tmp_path / "absent")}, "absent"),
        depot.Want("model", "wrong", "1" * 64, None, {"file": str(wrong)}, "wrong"),
        depot.Want("model", "good", DIGEST, None, {"file": str(good)}, "good"),
    ]
    plan = place.depot.plan(wants, place.depot.observe(wants))
    failures = place.depot.check_sources(plan) + place.depot.apply(plan)
    text = depot.all_of(failures)
    assert text.startswith("2 files cannot be had")
    assert "no readable file %s" % (tmp_path / "absent") in text
    assert "expected sha256 %s" % ("1" * 64) in text
    assert [step.name for step in plan.steps] == ["good"]
    assert place.depot.locate(DIGEST, "good")
