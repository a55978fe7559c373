# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Answers of a host that was taken over, passed on by an API server's proxy."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import json
import threading
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

import kubernetes
import pytest
from kubernetes.dynamic import DynamicClient

from ansible_collections.tether.fleet.plugins.module_utils.cluster import client, probe

MODELS = b'{"data": [{"id": "tiny"}]}'
MIB = 1024 * 1024


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as its server says: a status, headers, a body in parts, a pause after each."""

    protocol_version = "HTTP/1.1"
    server: Engine

    def do_GET(self) -> None:
        one = self.server
        one.asked.append(self.path)
        with contextlib.suppress(OSError):
            if one.header_pause:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
                self._drip()
                return
            self.send_response(one.status)
            for name, value in one.headers.items():
                self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            for part in one.parts:
                self.wfile.write(part)
                one.sent += len(part)
                if one.ended.wait(one.pause):
                    break

    do_POST = do_GET  # noqa: N815 - its name there

    def _drip(self) -> None:
        for _ in range(600):
            self.wfile.write(b"x")
            if self.server.ended.wait(self.server.header_pause):
                break

    def date_time_string(self, _timestamp: Optional[float] = None) -> str:
        return "Thu, 01 Jan 2099 12:00:00 GMT"

    def log_message(self, *_args: Any) -> None:
        pass


class Engine(http.server.ThreadingHTTPServer):
    daemon_threads = True
    status, pause, header_pause, sent = 200, 0.0, 0.0, 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.parts: List[bytes] = [MODELS]
        self.headers: Dict[str, str] = {}
        self.asked: List[str] = []
        self.ended = threading.Event()


@pytest.fixture
def engine() -> Iterator[Engine]:
    one = Engine()
    thread = threading.Thread(target=one.serve_forever, daemon=True)
    thread.start()
    yield one
    one.ended.set()
    one.shutdown()
    thread.join()
    one.server_close()


@pytest.fixture
def cluster(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> client.Client:
    configuration = kubernetes.client.Configuration()
    configuration.host = "http://127.0.0.1:%d" % engine.server_port
    api = kubernetes.client.ApiClient(configuration)
    dynamic = DynamicClient(api, discoverer=lambda *_args: None)
    monkeypatch.setattr(client, "_connect", lambda *_access: dynamic)
    return client.Client(None)  # type: ignore[arg-type]


def ask(cluster: client.Client, timeout: float = 5) -> Dict[str, Any]:
    return probe.probe(cluster, "a", "tiny", 80, timeout, chat=False)


def test_an_honest_answer(cluster: client.Client) -> None:
    found = probe.probe(cluster, "a", "tiny", 80, 5)
    assert found["ok"], found
    assert cluster.counts == {"GET": 1, "POST": 1}


@pytest.mark.parametrize(("size", "ok"), [(MIB, True), (MIB + 1, False)])
def test_a_mebibyte_and_no_more(
    engine: Engine, cluster: client.Client, size: int, ok: bool
) -> None:
    engine.parts = [MODELS + b" " * (size - len(MODELS))]
    found = ask(cluster)
    assert found["ok"] is ok
    assert found["status"] == 200
    assert ok or found["reason"] == "/v1/models: an answer of more than 1 MiB"
    assert len(engine.asked) == 1


@pytest.mark.parametrize("status", [200, 400])
def test_an_endless_answer_is_not_read(engine: Engine, cluster: client.Client, status: int) -> None:
    engine.status, engine.parts = status, [b"x" * MIB] * 400
    found = ask(cluster)
    assert not found["ok"]
    assert (found["status"], found["excerpt"]) == (status, "")
    assert "more than 1 MiB" in found["reason"]
    time.sleep(0.2)
    assert engine.sent < 50 * MIB, "what the sockets hold, and not all of it"


def test_a_packed_answer_stays_packed(engine: Engine, cluster: client.Client) -> None:
    engine.headers = {"Content-Encoding": "gzip"}
    engine.parts = [gzip.compress(b" " * 100 * MIB)]
    found = ask(cluster)
    assert found["reason"] == "/v1/models: status 200 without JSON"
    assert len(found["excerpt"]) <= 400


@pytest.mark.parametrize("place", ["header", "body"])
def test_a_byte_now_and_then(engine: Engine, cluster: client.Client, place: str) -> None:
    """Each read is in time, and all of it is not: a minute, at whose end the reason is another."""
    engine.parts, engine.pause = [b" "] * 600, 0.1
    engine.header_pause = 0.1 if place == "header" else 0
    found = ask(cluster, timeout=1)
    assert not found["ok"]
    assert "no answer in time" in found["reason"]


@pytest.mark.parametrize(
    ("status", "headers"), [(302, {"Location": "/api/v1/secrets"}), (503, {"Retry-After": "6"})]
)
def test_nothing_is_done_at_a_hosts_word(
    engine: Engine, cluster: client.Client, status: int, headers: Dict[str, str]
) -> None:
    engine.status, engine.headers = status, headers
    found = ask(cluster, timeout=1)
    assert found["status"] == status
    assert len(engine.asked) == 1, "neither followed nor tried again"


def test_a_hosts_clock_is_not_the_clusters(cluster: client.Client) -> None:
    ask(cluster)
    assert cluster.now().year < 2099
    cluster.raw("GET", "/")
    assert cluster.now().year == 2099


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 500000, "without JSON"),
        (json.dumps({"error": {"message": "x" * 100000}}), "answered 400: xxx"),
    ],
)
def test_what_is_inside(engine: Engine, cluster: client.Client, text: str, words: str) -> None:
    engine.parts = [text.encode()]
    engine.status = 400 if "error" in text else 200
    reason = ask(cluster)["reason"]
    assert words in reason
    assert len(reason) < 500
    assert probe.first_model(text, "tiny") == "tiny"


def test_many_at_once(engine: Engine, cluster: client.Client) -> None:
    """The bounds are of one request each: others of the same client have none."""
    engine.parts = [MODELS + b" " * 2 * MIB]
    answers: List[Tuple[int, str]] = []
    threads = [
        threading.Thread(target=lambda: answers.append(cluster.raw("GET", "/"))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    assert not ask(cluster)["ok"]
    for thread in threads:
        thread.join()
    assert [len(text) for _status, text in answers] == [len(engine.parts[0])] * 3
