# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Dict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.tether.fleet.plugins.module_utils import delivery
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

DATA = bytes(range(256)) * 10
DIGEST = hashlib.sha256(DATA).hexdigest()


def chunk(folder: Path, offset: int, size: int, data: bytes = DATA) -> Dict[str, Any]:
    piece = data[offset : offset + size]
    path = folder / ("chunk-%d" % offset)
    path.write_bytes(piece)
    return {
        "file": DIGEST,
        "total": len(DATA),
        "offset": offset,
        "size": len(piece),
        "sha256": hashlib.sha256(piece).hexdigest(),
        "path": str(path),
    }


def test_chunks_make_a_file(tmp_path: Path) -> None:
    incoming = str(tmp_path / "var" / "incoming")
    assert delivery.have(incoming, [DIGEST]) == {DIGEST: 0}
    assert delivery.ingest(incoming, [chunk(tmp_path, 0, 1000)]) == {DIGEST: 1000}
    rest = [chunk(tmp_path, 1000, 1000), chunk(tmp_path, 2000, 1000)]
    assert delivery.ingest(incoming, rest) == {DIGEST: len(DATA)}
    path = delivery.verified(incoming, DIGEST, len(DATA), "x")
    assert Path(path).read_bytes() == DATA
    assert os.stat(incoming).st_mode & 0o777 == 0o700
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob("chunk-*"))
    delivery.discard(incoming, DIGEST)
    assert os.listdir(incoming) == []


def test_a_chunk_out_of_turn_is_left_out(tmp_path: Path) -> None:
    incoming = str(tmp_path / "incoming")
    assert delivery.ingest(incoming, [chunk(tmp_path, 1000, 1000)]) == {DIGEST: 0}
    delivery.ingest(incoming, [chunk(tmp_path, 0, 1000)])
    assert delivery.ingest(incoming, [chunk(tmp_path, 0, 1000)]) == {DIGEST: 1000}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2560), st.integers(1, 2560)), max_size=12), st.randoms())
def test_any_order_then_the_rest(
    tmp_path_factory: pytest.TempPathFactory, pieces: list, random: Any
) -> None:
    """Whatever arrived, in whatever order and how often: what is there is a true beginning."""
    folder = tmp_path_factory.mktemp("any")
    incoming = str(folder / "incoming")
    for offset, size in pieces:
        delivery.ingest(incoming, [chunk(folder, offset, size)])
        there = delivery.have(incoming, [DIGEST])[DIGEST]
        if there:
            assert Path(incoming, DIGEST, "data").read_bytes() == DATA[:there]
    there = delivery.have(incoming, [DIGEST])[DIGEST]
    if there < len(DATA):
        delivery.ingest(incoming, [chunk(folder, there, len(DATA))])
    delivery.verified(incoming, DIGEST, len(DATA), "x")


def test_a_damaged_chunk_is_refused_and_forgotten(tmp_path: Path) -> None:
    incoming = str(tmp_path / "incoming")
    delivery.ingest(incoming, [chunk(tmp_path, 0, 1000)])
    bad = chunk(tmp_path, 1000, 1000)
    for content in (b"x" * 1000, b"short", b"x" * 5000):
        Path(bad["path"]).write_bytes(content)
        with pytest.raises(Refusal, match="chunk at 1000"):
            delivery.ingest(incoming, [bad])
        assert delivery.have(incoming, [DIGEST]) == {DIGEST: 1000}


def test_a_wrong_file_is_refused_and_removed(tmp_path: Path) -> None:
    incoming = str(tmp_path / "incoming")
    other = DATA[::-1]
    delivery.ingest(incoming, [chunk(tmp_path, 0, len(DATA), other)])
    found = hashlib.sha256(other).hexdigest()
    with pytest.raises(Refusal, match=found) as refused:
        delivery.verified(incoming, DIGEST, len(DATA), "artifact x 1")
    assert DIGEST in refused.value.expected
    assert delivery.have(incoming, [DIGEST]) == {DIGEST: 0}


def test_a_file_that_is_too_long_starts_anew(tmp_path: Path) -> None:
    incoming = tmp_path / "incoming"
    delivery.ingest(str(incoming), [chunk(tmp_path, 0, 10)])
    (incoming / DIGEST / "data").write_bytes(b"x" * 5000)
    wanted = {DIGEST: {"what": "x", "size": len(DATA)}}
    missing = delivery.needs(wanted, delivery.have(str(incoming), [DIGEST]))
    assert missing == [{"sha256": DIGEST, "size": len(DATA), "have": 0, "what": "x"}]
    delivery.ingest(str(incoming), [chunk(tmp_path, 0, len(DATA))])
    delivery.verified(str(incoming), DIGEST, len(DATA), "x")


def test_nothing_is_needed_when_all_is_there() -> None:
    wanted = {DIGEST: {"what": "x", "size": 5}}
    assert delivery.needs(wanted, {DIGEST: 5}) == []
    assert delivery.needs(wanted, {DIGEST: 3})[0]["have"] == 3
    assert delivery.needs({DIGEST: {"what": "x", "size": None}}, {DIGEST: 3})[0]["size"] is None


def test_no_room() -> None:
    missing = [{"sha256": DIGEST, "size": 5_000_000, "have": 1_000_000, "what": "big"}]
    delivery.check_space(missing, "/var/x", 4_000_000)
    with pytest.raises(Refusal) as refused:
        delivery.check_space(missing, "/var/x", 3_999_999)
    assert "4.0 MB free on the file system at /" in refused.value.found
    assert "4000000 bytes" in refused.value.expected


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    incoming = tmp_path / "incoming"
    target = tmp_path / "target"
    target.mkdir()
    incoming.symlink_to(target)
    with pytest.raises(Refusal, match="file or link"):
        delivery.ingest(str(incoming), [chunk(tmp_path, 0, 10)])
    incoming.unlink()
    (incoming / DIGEST).mkdir(parents=True)
    (incoming / DIGEST / "data").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError):  # noqa: PT011 # ELOOP
        delivery.ingest(str(incoming), [chunk(tmp_path, 0, 10)])
    assert not (tmp_path / "victim").exists()


def test_a_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    incoming.chmod(0o777)
    with pytest.raises(Refusal, match="mode 0777"):
        delivery.ingest(str(incoming), [chunk(tmp_path, 0, 10)])


def test_transfers_that_nobody_goes_on_with_end(tmp_path: Path) -> None:
    incoming = tmp_path / "incoming"
    old = incoming / ("a" * 64)
    delivery.ingest(str(incoming), [dict(chunk(tmp_path, 0, 10), file="a" * 64)])
    for path in (old / "data", old):
        os.utime(path, (1, 1))
    delivery.ingest(str(incoming), [chunk(tmp_path, 0, 10)])
    assert os.listdir(incoming) == [DIGEST]
