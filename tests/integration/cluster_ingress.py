# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A stand-in for a host's ingress, and an Envoy that runs what the collection renders.

The stand-in speaks TLS 1.3 and records every HTTP byte that reaches it, so a test can show that an
impostor received none. It is for the relay's tests; the real ingress is tested on the test bed.
"""

from __future__ import annotations

import contextlib
import datetime
import http.client
import http.server
import ipaddress
import json
import os
import pathlib
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time
from typing import Callable, Dict, List, Optional

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from ports import free_port

from ansible_collections.tether.fleet.plugins.module_utils.cluster import drain, envoy_data


def find_envoy() -> Optional[str]:
    """The Envoy binary to test with: ``TETHER_TEST_ENVOY`` or the one in the path."""
    return os.environ.get("TETHER_TEST_ENVOY") or shutil.which("envoy")


NEEDS_ENVOY = pytest.mark.skipif(
    find_envoy() is None, reason="no Envoy: set TETHER_TEST_ENVOY or put envoy into the path"
)


def eventually(what: Callable[[], bool], seconds: float = 150) -> float:
    """Waits as long as a kubelet may take that nobody woke (90 s, and more when busy); how long."""
    start = time.monotonic()
    while not what():
        assert time.monotonic() - start < seconds
        time.sleep(0.1)
    return time.monotonic() - start


class Authority:
    """A CA for tests; it signs whatever is asked."""

    def __init__(self, name: str = "test CA") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        self.cert = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(self.name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=2))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.BasicConstraints(True, 0), True)
            .sign(self.key, hashes.SHA256())
        )
        self.pem = self.cert.public_bytes(serialization.Encoding.PEM).decode()

    def leaf(
        self,
        address: str,
        days: int = 10,
        since: int = 1,
        ca: bool = False,
        usages: Optional[List[x509.ObjectIdentifier]] = None,
    ) -> Leaf:
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        try:
            name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(address))
        except ValueError:
            name = x509.DNSName(address)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "host")]))
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=since))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.SubjectAlternativeName([name]), False)
            .add_extension(x509.BasicConstraints(ca, None), True)
        )
        wanted = [ExtendedKeyUsageOID.SERVER_AUTH] if usages is None else usages
        if wanted:
            builder = builder.add_extension(x509.ExtendedKeyUsage(wanted), False)
        cert = builder.sign(self.key, hashes.SHA256())
        return Leaf(
            cert.public_bytes(serialization.Encoding.PEM).decode(),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ).decode(),
        )


class Leaf:
    def __init__(self, pem: str, key: str) -> None:
        self.pem, self.key = pem, key


class Ingress:
    """A TLS 1.3 server that answers like an ingress with an engine behind it.

    :ivar requests: ``{"method", "path", "headers", "body"}`` of each request
    :ivar handshakes: how many handshakes were begun
    :ivar data: how many bytes came after a handshake
    """

    def __init__(
        self, leaf: Leaf, folder: pathlib.Path, address: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.requests: List[Dict] = []
        self.handshakes = 0
        self.data = 0
        self.healthy = True
        self.reset_posts = False
        self.refusal: Optional[Dict[str, str]] = None  # the headers of a 503 to each POST
        self.keep_bodies = True
        self.switches = False  # to what an upgrade asks for; then it echoes
        self.delay = 0.0
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "leaf.pem").write_text(leaf.pem)
        (folder / "leaf.key").write_text(leaf.key)
        self.context.load_cert_chain(folder / "leaf.pem", folder / "leaf.key")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((address, port))
        self.socket.listen(64)
        self.address, self.port = address, self.socket.getsockname()[1]
        self.open: List[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening and break what is open, as a crash does."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self.socket.close()
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def seen(self, method: str) -> List[Dict]:
        return [item for item in self.requests if item["method"] == method]

    def _accept(self) -> None:
        while True:
            try:
                raw, _peer = self.socket.accept()
            except OSError:
                self.socket.close()
                return
            threading.Thread(target=self._serve, args=(raw,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        self.handshakes += 1
        try:
            connection = self.context.wrap_socket(raw, server_side=True)
        except OSError:
            raw.close()
            return
        self.open.append(connection)
        try:
            while self._one(connection):
                pass
        except OSError:
            pass
        finally:
            connection.close()

    def _one(self, connection: ssl.SSLSocket) -> bool:
        text = b""
        while b"\r\n\r\n" not in text:
            part = connection.recv(65536)
            self.data += len(part)
            if not part:
                return False
            text += part
        head, body = text.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        method, path, _version = lines[0].split(" ", 2)
        headers: Dict[str, str] = {}
        for line in lines[1:]:
            key, value = line.split(":", 1)
            headers.setdefault(key.lower(), value.strip())
        length = int(headers.get("content-length", "0"))
        received = len(body)
        while received < length:
            part = connection.recv(65536)
            if not part:
                return False
            received += len(part)
            if self.keep_bodies:
                body += part
        if headers.get("transfer-encoding") == "chunked":
            while not body.endswith(b"0\r\n\r\n"):
                body += connection.recv(65536)
        self.requests.append({"method": method, "path": path, "headers": headers, "body": body})
        if self.reset_posts and method == "POST":
            raw_linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, raw_linger)
            return False
        if self.refusal is not None and method == "POST":
            extra = "".join("%s: %s\r\n" % item for item in self.refusal.items())
            connection.sendall(
                b"HTTP/1.1 503 Unavailable\r\n%scontent-length: 0\r\n\r\n" % extra.encode()
            )
            return True
        if self.switches and "upgrade" in headers:
            connection.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: %s\r\n\r\n"
                % headers["upgrade"].encode()
            )
            while part := connection.recv(65536):
                connection.sendall(part)
            return False
        time.sleep(self.delay if method == "POST" else 0)
        if path.startswith("/stream"):
            connection.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                b"transfer-encoding: chunked\r\n\r\n"
            )
            for number in range(int(path.rsplit("/", 1)[1])):
                event = b"data: %d\n\n" % number
                connection.sendall(b"%x\r\n%s\r\n" % (len(event), event))
                time.sleep(0.1)
            connection.sendall(b"0\r\n\r\n")
            return True
        status = b"200 OK" if path != "/health" or self.healthy else b"503 Loading"
        answer = json.dumps({"port": self.port, "path": path}).encode()
        connection.sendall(
            b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"server: engine\r\n\r\n%s" % (status, len(answer), answer)
        )
        return True


class Relay:
    """An Envoy process over a folder that is replaced as the kubelet replaces a volume."""

    def __init__(self, envoy: str, folder: pathlib.Path, log_level: str = "warn") -> None:
        self.binary, self.folder, self.log_level = envoy, folder / "volume", log_level
        self.folder.mkdir(parents=True)
        self.port, self.probe_port = free_port(), free_port()
        self.place = envoy_data.Place(
            listen="127.0.0.1",
            folder=str(self.folder),
            service_port=self.port,
            probe_port=self.probe_port,
            drain_port=free_port(),
            metrics_port=free_port(),
            admin_socket=str(folder / "admin.sock"),
            least_drain=1.0,
        )
        self.generation = 0
        self.log = folder / "envoy.log"
        self.process: Optional[subprocess.Popen] = None

    def write(self, files: Dict[str, str]) -> None:
        """Write a new state of the volume and move ``..data`` to it, atomically."""
        self.generation += 1
        state = self.folder / ("..state%d" % self.generation)
        state.mkdir()
        for name, text in files.items():
            (state / name).write_text(text)
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to("..data/" + name)
        temporary = self.folder / "..data_tmp"
        temporary.symlink_to(state.name)
        os.rename(temporary, self.folder / "..data")

    def start(self, arguments: List[str], live_timeout: float = 10) -> None:
        with open(self.log, "wb") as output:
            self.process = subprocess.Popen(
                [self.binary, "-c", str(self.folder / "bootstrap.json"), *arguments],
                stdout=output,
                stderr=output,
            )
        end = time.monotonic() + live_timeout
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                if self.probe("/live") == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError("Envoy did not start: " + self.log.read_text())

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(10)

    def probe(self, path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.probe_port, timeout=5)
        connection.request("GET", path)
        status: int = connection.getresponse().status
        connection.close()
        return status

    def wait_ready(self, wanted: int = 200, seconds: float = 10) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.probe("/ready") == wanted:
                return
            time.sleep(0.05)
        raise AssertionError("/ready is not %d: %s" % (wanted, self.log.read_text()))

    def drain(self, key: str) -> int:
        """What the kubelet does before it ends a pod; the answer's status, once there is one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.place.drain_port, timeout=60)
        connection.request("GET", drain.PATH, headers={drain.HEADER: key})
        status: int = connection.getresponse().status
        connection.close()
        return status

    def ask(self, method: str, path: str, body: Optional[bytes] = None, **headers: str) -> Answer:
        return self.ask_port(self.port, method, path, body, **headers)

    def ask_port(
        self, port: int, method: str, path: str, body: Optional[bytes], **headers: str
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        names = {key.replace("_", "-"): value for key, value in headers.items()}
        with contextlib.closing(connection):
            connection.request(method, path, body, names)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())


class Answer:
    def __init__(self, status: int, headers: Dict[str, str], body: bytes) -> None:
        self.status, self.body = status, body
        self.headers = {key.lower(): value for key, value in headers.items()}

    def json(self) -> Dict:
        data: Dict = json.loads(self.body)
        return data
