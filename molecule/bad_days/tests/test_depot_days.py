# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bad days of what is fetched, of a model's disk and of engines: two runs, and then a good one."""

from __future__ import annotations

import hashlib
import http.server
import secrets
import ssl
import sys
import threading

import pytest
import yaml
from bed import ROOT, STATE, declared_models, run, ssh
from days import Day, served


class Source(http.server.BaseHTTPRequestHandler):
    """Serves one file; on a bad day the connection ends in the middle of it."""

    content = b""
    bad = True
    begun_at: list[int] = []

    def do_GET(self):
        start = int(self.headers.get("Range", "bytes=0-").split("=")[1].rstrip("-"))
        type(self).begun_at.append(start)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(self.content) - start))
        self.end_headers()
        # A bad day gives each try a little, so that all tries together never get to the end.
        self.wfile.write(self.content[start : start + 1000 if self.bad else None])

    def log_message(self, *_words):
        """The tests' output is the run's."""


@pytest.fixture(scope="module")
def source(folder):
    # A model that no depot has seen: depots outlive beds.
    made = folder / "source.gguf"
    seed = str(secrets.randbelow(10**9))
    run(sys.executable, str(ROOT / "tests" / "models" / "make_tiny.py"), str(made), "--seed", seed)
    Source.content = made.read_bytes()
    # Plain http is refused, so it has a certificate, which the controller is told to trust.
    key, leaf = folder / "key.pem", folder / "leaf.pem"
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc",
        "-keyout", str(key), "-out", str(leaf), "-subj", "/CN=source", "-addext",
        "subjectAltName=IP:127.0.0.1")  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(leaf, key)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Source)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(leaf))
        yield f"https://127.0.0.1:{server.server_port}/source.gguf"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("depot")


def a_model(name, namespace, host, **file):
    entry = dict(declared_models()[0], name=name, namespace=namespace, hosts=[host])
    return dict(entry, files=[{"name": f"{name}.gguf", **file}])


def inventory(folder, *models):
    """More models for a run, beside those that are declared."""
    path = folder / "models.yml"
    path.write_text(yaml.safe_dump({"fleet_models": [*declared_models(), *models]}))
    return f"@{path}"


@pytest.fixture(scope="module")
def models(source):
    """One whose file is another than was pinned, and one whose download breaks off."""
    tiny = str(STATE / "models" / "tiny.gguf")
    cut = hashlib.sha256(Source.content).hexdigest()
    return [
        a_model("swapped", "dark", "gpu3", source=tiny, sha256="5" * 64),
        a_model("cut", "away", "gpu4", source=source, sha256=cut, size=len(Source.content)),
    ]


@pytest.fixture(scope="module")
def bad_depot(folder, models):
    """A Caddy that is not the pinned one, too."""
    lock = yaml.safe_load((ROOT / "fleet.lock.yml").read_text())
    other = folder / "caddy.whl"
    other.write_bytes(b"something else")
    pin = lock["artifacts"]["caddy"]["platforms"]["linux-x86_64"]
    pin.update(sha256="4" * 64, size=other.stat().st_size, source={"file": str(other)})
    (folder / "lock.yml").write_text(yaml.safe_dump(lock))
    return Day("-e", inventory(folder, *models), "-e", f"fleet_lock_file={folder}/lock.yml")


def test_all_that_is_wrong_is_said_at_once_before_any_host_is_changed(bad_depot):
    assert bad_depot.status != 0
    bad_depot.says(
        "3 files cannot be had, and no host is changed for now",
        f"expected sha256 {'4' * 64}",
        f"model swapped.gguf ({'5' * 12}): found sha256 8fbf934df9db",
        "Do not use that file.",
        "the connection ended after",
        "have arrived are kept",
    )
    for host in ("gpu1", "gpu2", "gpu3", "gpu4"):
        assert bad_depot.row(host)["changed"] == 0, host
    assert served("steady", "steady")


SMALL = """cd /var/lib/tether/models
mount -t tmpfs -o size=900m,nr_inodes=2,mode=750 tmpfs away
chgrp tether-away away
"""


@pytest.fixture(scope="module")
def bad_disk(folder, models):
    """The download works now. The file system of one host's models has no room for another file,
    and another host's engine is given something that is no model."""
    Source.bad = False
    ssh("gpu4", SMALL)
    broken = folder / "broken.gguf"
    broken.write_bytes(b"this is no model")
    digest = hashlib.sha256(broken.read_bytes()).hexdigest()
    dead = a_model("dead", "dark", "gpu3", source=str(broken), sha256=digest)
    return Day("-e", inventory(folder, models[1], dead))


def test_an_interrupted_download_goes_on_where_it_stopped(bad_disk):
    assert Source.begun_at[-1] >= 1000
    for failure in ("cannot be had", "the connection ended after"):
        assert failure not in bad_disk.text
    # Whole, though its host had no place for it: it waits there.
    digest = hashlib.sha256(Source.content).hexdigest()
    there = ssh("gpu4", f"sha256sum /var/lib/tether/incoming/{digest}/data")
    assert there.stdout.split()[0] == digest


def test_disk_full_in_the_middle_of_a_model(bad_disk):
    assert bad_disk.status != 0
    bad_disk.says("no inodes (that is, no more files) left on the file system at"
                  " /var/lib/tether/models/away", "df -i /var/lib/tether/models/away")  # fmt: skip
    assert ssh("gpu4", "find /var/lib/tether/models/away -type f").stdout == ""


def test_an_engine_that_dies_at_its_start(bad_disk):
    bad_disk.says("tether-engine-dark.dead: it ended with status 1", "failed to load model")
    assert served("dark", "dark")  # on the same host


def test_the_next_good_run_finishes_the_job(folder, models):
    ssh("gpu4", "umount /var/lib/tether/models/away")
    done = Day("-e", inventory(folder, models[1]))
    assert done.status == 0
    assert served("cut", "away")
    again = Day("--check", "-e", inventory(folder, models[1]))
    assert again.status == 0
    assert all(again.row(host)["changed"] == 0 for host in ("gpu3", "gpu4", "cluster"))
