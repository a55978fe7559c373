# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import http.server
import os
import socket
import ssl
import subprocess
import threading

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.daemon import (
    health,
    linux_processes,
    processes,
)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response({"/health": 200, "/forbidden": 403}.get(self.path, 503))
        self.end_headers()
        self.wfile.write(b"loading model")

    def log_message(self, *args):
        pass

    def address_string(self):
        return "unix"


class UnixServer(http.server.ThreadingHTTPServer):
    address_family = socket.AF_UNIX

    def server_bind(self):
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "unix", 0


@pytest.fixture
def serve():
    running = []

    def start(server):
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        running.append((server, thread))
        return server

    yield start
    for server, thread in running:
        server.shutdown()
        thread.join()
        server.server_close()


def wanted(**keys):
    return {
        "unix": None,
        "address": "127.0.0.1",
        "port": None,
        "path": "/health",
        "status": 200,
        **keys,
    }


def test_http_over_tcp(serve):
    port = serve(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)).server_port
    assert health.probe(wanted(port=port)) == ""
    assert health.probe(wanted(port=port, path="/forbidden", status=403)) == ""
    assert "status 503 (loading model)" in health.probe(wanted(port=port, path="/x"))
    assert health.probe(wanted(port=port, path=None)) == ""


def test_http_over_a_unix_socket(serve, tmp_path):
    path = str(tmp_path / "s")
    assert "does not exist yet" in health.probe(wanted(unix=path))
    serve(UnixServer(path, Handler))
    assert health.probe(wanted(unix=path)) == ""
    assert [item["pid"] for item in processes.unix_listeners(path)] == [os.getpid()]


@pytest.fixture
def tls(tmp_path):
    """A server's context, and the path of its certificate."""
    key, cert = str(tmp_path / "key"), str(tmp_path / "cert")
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    argv += ["-nodes", "-keyout", key, "-out", cert, "-subj", "/CN=x"]
    argv += ["-addext", "subjectAltName=DNS:host.example"]
    subprocess.run(argv, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert


def test_tls(serve, tls):
    context, cert = tls
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    port = serve(server).server_port
    assert health.probe(wanted(port=port, tls=True)) == ""
    assert health.probe(wanted(port=port, tls=True, ca=cert, server_name="host.example")) == ""
    assert "CERTIFICATE_VERIFY_FAILED" in health.probe(wanted(port=port, tls=True, ca=cert))


def test_who_listens(serve):
    port = serve(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)).server_port
    found = processes.listeners(port)
    assert [item["pid"] for item in found] == [os.getpid()]
    assert "process %d (" % os.getpid() in processes.in_words(found)


def test_nobody_listens():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        assert "refuses connections" in health.probe(wanted(port=port))
        assert processes.listeners(port) == []


def test_an_answer_that_never_comes():
    with socket.create_server(("127.0.0.1", 0)) as one:
        assert "did not answer" in health.probe(wanted(port=one.getsockname()[1]), timeout=0.2)


DRIPS = {
    "header": b"HTTP/1.1 200 OK\r\nX: ",
    "continue": b"HTTP/1.1 100 Continue\r\nX: ",
    "body": b"HTTP/1.1 200 OK\r\n\r\n",
    "chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
}


@pytest.fixture
def drip():
    """Answers with some bytes, then with one more now and then, for a minute: a probe that
    waits for the end says something else, or nothing in time."""
    ended, threads = threading.Event(), []

    def answer(one, start, context):
        try:
            conn, _address = one.accept()
            with context.wrap_socket(conn, server_side=True) if context else conn as stream:
                stream.recv(1000)
                stream.sendall(start)
                for _ in range(600):
                    stream.sendall(b"1")
                    if ended.wait(0.1):
                        break
        except OSError:
            pass  # nobody listens any more

    def begin(one, start, context=None):
        threads.append(threading.Thread(target=answer, args=(one, start, context), daemon=True))
        threads[-1].start()

    yield begin
    ended.set()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("start", DRIPS.values(), ids=DRIPS)
@pytest.mark.parametrize("way", ["unix", "tcp", "tls"])
def test_a_byte_now_and_then(drip, tls, tmp_path, way, start):
    """Each read is in time, and the whole is not."""
    family = socket.AF_UNIX if way == "unix" else socket.AF_INET
    with socket.socket(family) as one:
        one.bind(str(tmp_path / "s") if way == "unix" else ("127.0.0.1", 0))
        one.listen()
        drip(one, start, tls[0] if way == "tls" else None)
        if way == "unix":
            where = {"unix": one.getsockname()}
        else:
            where = {"port": one.getsockname()[1], "tls": way == "tls"}
        assert "did not answer within 1 s" in health.probe(wanted(**where), timeout=0.6)


def test_a_handshake_that_never_ends(drip):
    """A record of TLS that comes a byte at a time."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        drip(one, b"\x16\x03\x03\x40\x00")
        where = wanted(port=one.getsockname()[1], tls=True)
        assert "did not answer" in health.probe(where, timeout=0.6)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("0::/system.slice/tether-x.service\n", "tether-x.service"),
        ("1:name=systemd:/system.slice/tether-a.b.service\n", "tether-a.b.service"),
        ("4:memory:/system.slice/other.service\n0::/\n", ""),
        ("0::/machine.slice/m.scope/payload/system.slice/tether-x.service\n", "tether-x.service"),
        ("0::/user.slice/user-0.slice/session-3.scope\n", "session-3.scope"),
        ("", ""),
    ],
)
def test_the_unit_of_a_process(text, unit):
    assert linux_processes.unit_of(text) == unit
