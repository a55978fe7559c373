# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Metrics through the rendered relay in a real Envoy and the rendered ingress in a real Caddy."""

from __future__ import annotations

import pathlib
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Dict, List, Tuple

import pytest

from ansible_collections.tether.fleet.plugins.module_utils import drained, marks, tcp_table
from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    envoy,
    envoy_data,
    objects,
)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import caddy_bed
import prometheus_text
from cluster_ingress import NEEDS_ENVOY, Answer, Relay, eventually, find_envoy

TOKEN = "T" * 43
ENVOY = find_envoy()
PAGE = b'# TYPE toy_requests counter\ntoy_requests{slot="1"} 5\n'

pytestmark = NEEDS_ENVOY


def page(body: bytes, *more: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", "Content-Type: text/plain; version=0.0.4", "Connection: close"]
    return "\r\n".join([*lines, "Content-Length: %d" % len(body), *more, "", ""]).encode() + body


class Both:
    """A relay of a model of team-a before a Caddy; its second host is down."""

    def __init__(self, folder: pathlib.Path, bed: caddy_bed.Bed) -> None:
        self.bed, self.folder = bed, folder
        self.relay = Relay(str(ENVOY), folder)

    def hosts(self, *names: str) -> List[envoy_data.Host]:
        pins = (self.bed.certificate,)
        return [
            envoy_data.Host(name, "127.0.0.1", 1 if number else self.bed.port, pins)
            for number, name in enumerate(names)
        ]

    def start(self, hosts: List[envoy_data.Host], model: str = "tiny") -> None:
        files = envoy.render("team-a", model, hosts, TOKEN, "d" * 32, place=self.relay.place)
        self.relay.write({**files.plain, **files.secret})
        if self.relay.process is None:
            self.relay.start(objects.ENVOY_ARGUMENTS[2:])
            self.relay.wait_ready()

    def raw(self, request: bytes, port: int = 0) -> caddy_bed.Answer:
        """What a client gets that writes its own bytes."""
        with socket.create_connection(("127.0.0.1", port or self.relay.port), 15) as peer:
            peer.sendall(request)
            return caddy_bed.Answer.parse(caddy_bed.read_message(peer))

    def scrape(self, path: str, method: str = "GET", **headers: str) -> Answer:
        return self.relay.ask_port(self.relay.place.metrics_port, method, path, None, **headers)

    def own(self) -> Dict[Tuple[str, str], float]:
        """The relay's own figures by name and cluster."""
        answer = self.scrape("/metrics/relay")
        assert answer.status == 200
        return {
            (item.name, item.labels.get("envoy_cluster_name", "")): item.value
            for item in prometheus_text.parse(answer.body.decode())
        }


Running = Tuple[Both, Dict[str, caddy_bed.Engine]]


@pytest.fixture
def both(tmp_path: pathlib.Path) -> Iterator[Running]:
    with caddy_bed.running() as (bed, engines):
        made = Both(tmp_path, bed)
        bed.token("team-a", "current", TOKEN)
        engines["team-a/tiny"].answer = page(PAGE)
        log = ""
        try:
            yield made, engines
            log = made.relay.log.read_text()
        finally:
            made.relay.stop()
    assert TOKEN not in log
    for line in ("rejected", "critical", "deprecated", "[warning]"):
        assert line not in log, log


def scrapes(engine: caddy_bed.Engine) -> List[bytes]:
    """What reached the engine, without the health checks."""
    return [raw for raw in engine.seen if not raw.startswith(b"GET /health ")]


def test_one_host(both: Running) -> None:
    pair, engines = both
    pair.start(pair.hosts("gpu-1.example"))
    for path in ("/metrics", "/metrics/gpu-1.example"):
        answer = pair.scrape(path, Authorization="Bearer mine", X_Relay_Model="other")
        assert (answer.status, answer.body) == (200, PAGE)
        assert answer.headers["content-type"].startswith("text/plain")
        (sample,) = prometheus_text.parse(answer.body.decode())
        assert sample == ("toy_requests", {"slot": "1"}, 5)
    seen = scrapes(engines["team-a/tiny"])
    assert [raw.split(b"\r\n")[0] for raw in seen] == [b"GET /own/metrics HTTP/1.1"] * 2
    assert TOKEN.encode() not in b"".join(seen)
    assert b"mine" not in b"".join(seen)
    assert not scrapes(engines["team-a/other"])


def test_an_engine_without_metrics_gives_an_empty_page(both: Running) -> None:
    pair, engines = both
    pair.start(pair.hosts("gpu1"), "other")
    for path in ("/metrics", "/metrics/gpu1"):
        answer = pair.scrape(path)
        assert (answer.status, answer.body) == (200, b"")
        assert answer.headers["content-type"] == marks.METRICS_TYPE
    assert not scrapes(engines["team-a/other"])


def test_several_hosts_of_which_one_drains_and_one_is_down(both: Running) -> None:
    pair, _engines = both
    first, second = pair.hosts("gpu1", "gpu2")
    pair.start([first, second])
    answer = pair.scrape("/metrics")
    assert answer.status == 200
    assert prometheus_text.parse(answer.body.decode()) == []
    assert answer.headers["content-type"] == marks.METRICS_TYPE
    assert pair.scrape("/metrics/gpu1").body == PAGE
    down = pair.scrape("/metrics/gpu2")
    assert down.status == 503
    assert b"127.0.0.1" not in down.body
    pair.start([envoy_data.Host(**{**vars(first), "draining": True}), second])
    pair.relay.wait_ready(503)
    eventually(lambda: pair.scrape("/metrics/gpu1").status == 503, 10)
    assert pair.scrape("/metrics/relay").status == 200


def test_scrapes_do_not_keep_a_host_from_draining(both: Running) -> None:
    pair, _engines = both
    (host,) = pair.hosts("gpu1")
    pair.start([host])
    ended = threading.Event()
    statuses: List[int] = []

    def keep_scraping() -> None:
        while not ended.wait(0.05):
            statuses.append(pair.scrape("/metrics/gpu1").status)

    def connections() -> List[tcp_table.Socket]:
        return [
            one
            for one in tcp_table.read()
            if one.port == pair.bed.port and one.state == tcp_table.ESTABLISHED
        ]

    scraper = threading.Thread(target=keep_scraping)
    scraper.start()
    try:
        eventually(lambda: statuses.count(200) > 5, 10)
        assert connections()
        pair.start([envoy_data.Host(**{**vars(host), "draining": True})])
        eventually(lambda: statuses[-1] == 503 and not connections(), 10)
        asked = len(statuses)
        end = time.monotonic() + drained.QUIET_SECONDS
        while time.monotonic() < end:
            assert not connections()
            time.sleep(0.02)
        assert len(statuses) > asked + 10
        assert set(statuses[asked:]) == {503}
        # And it is asked again when it is back.
        pair.start([host])
        eventually(lambda: statuses[-1] == 200, 10)
    finally:
        ended.set()
        scraper.join(30)


def test_the_relays_own_and_nothing_else_of_envoys_admin(both: Running) -> None:
    pair, engines = both
    pair.start(pair.hosts("gpu1"))
    assert pair.relay.ask("POST", "/v1/chat/completions", b"{}").status == 200
    own = pair.own()
    assert own["envoy_cluster_membership_healthy", "hosts"] == 1
    assert own["envoy_cluster_upstream_rq_total", "hosts"] == 1
    asked = len(scrapes(engines["team-a/tiny"]))
    tricks = [
        ("GET", "/metrics/relay?filter=x"),
        ("GET", "/metrics/relay/"),
        ("GET", "/metrics/relay/../config_dump"),
        ("GET", "/metrics/../config_dump"),
        ("GET", "/metrics/%72elay"),
        ("GET", "/METRICS/relay"),
        ("GET", "//metrics/relay"),
        ("POST", "/metrics/relay"),
        ("HEAD", "/metrics/relay"),
        ("GET", "/metrics/gpu1?x=1"),
        ("POST", "/metrics/gpu1"),
        ("GET", "/metrics/gpu2"),
        ("GET", "/config_dump"),
        ("GET", "/stats/prometheus"),
        ("POST", "/quitquitquit"),
        ("GET", "/v1/models"),
        ("GET", marks.METRICS_PATH),
        ("GET", "/"),
    ]
    for method, path in tricks:
        assert pair.scrape(path, method).status in (400, 404), path
    assert len(scrapes(engines["team-a/tiny"])) == asked
    assert pair.own()["envoy_cluster_upstream_rq_total", "hosts"] == 1


@pytest.mark.parametrize("path", ["/metrics/relay", "/metrics/gpu1"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_scrape_has_no_body(both: Running, path: str, chunked: bool) -> None:
    """Envoy's admin interface would keep all of it."""
    pair, engines = both
    pair.start(pair.hosts("gpu1"))
    head = (
        "GET %s HTTP/1.1\r\nHost: relay\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n%%s\r\n\r\n" % path
    )
    body = b"filter=^nothing$&" + b"x" * 1024 * 1024
    if chunked:
        length, body = "Transfer-Encoding: chunked", b"%x\r\n%s\r\n" % (len(body), body)
    else:
        # More than is sent: the refusal does not wait for the rest.
        length = "Content-Length: 4294967296"
    answer = pair.raw((head % length).encode() + body, pair.relay.place.metrics_port)
    # Where an engine's answer is kept to be bounded, the refusal exceeds the same bound.
    assert answer.status == (413 if path == "/metrics/relay" else 500)
    assert not scrapes(engines["team-a/tiny"])
    answer = pair.scrape(path)
    assert answer.status == 200
    assert len(answer.body) >= len(PAGE)


RESERVED = [
    "/.tether/metrics",
    "/.tether/metrics?x=1",
    "/.tether/metrics/",
    "/.TETHER/METRICS",
    "//.tether/metrics",
    "/.tether//metrics",
    "/./.tether/metrics",
    "/x/../.tether/metrics",
    "/v1/models/../../.tether/metrics",
    "/%2etether/metrics",
    "/%2Etether/metrics",
    "/.%74ether/metrics",
    "/.tethe%52/metrics",
    "/%2f.tether/metrics",
    "/.tether%2fmetrics",
    "/.tether/metric%73",
    "/.tether\\metrics",
    "/%252etether/metrics",
    "/.tether/metrics;x",
    "/.tether/metrics%00",
    "/.tether/metrics#x",
    "/.tether",
    "http://relay/.tether/metrics",
    "/metrics",
    "/own/metrics",
]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with caddy_bed.running() as (bed, engines):
        made = Both(tmp_path_factory.mktemp("relay"), bed)
        bed.token("team-a", "current", TOKEN)
        made.start(made.hosts("gpu1"))
        try:
            yield made, engines
        finally:
            made.relay.stop()


@pytest.mark.parametrize("path", RESERVED)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS"])
def test_no_client_reaches_the_reserved_path(started: Running, path: str, method: str) -> None:
    pair, engines = started
    before = len(scrapes(engines["team-a/tiny"]))
    head = "%s %s HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n\r\n" % (method, path)
    answer = pair.raw(head.encode())
    assert answer.status in (400, 403), answer
    assert len(scrapes(engines["team-a/tiny"])) == before


@pytest.mark.parametrize("path", RESERVED)
def test_the_ingress_knows_one_spelling(started: Running, path: str) -> None:
    """What a relay without its own refusal would have passed on."""
    pair, engines = started
    engine = engines["team-a/tiny"]
    before = len(scrapes(engine))
    headers = {"ns": "team-a", "token": TOKEN, "model": "tiny"}
    answer = pair.bed.send(caddy_bed.request(path, more="Connection: close", **headers))
    served = path.split("?")[0] == marks.METRICS_PATH
    assert (answer.status == 200) == served, answer
    assert len(scrapes(engine)) == before + served
    if served:
        assert engine.seen[-1].split(b"\r\n")[0] == b"GET /own/metrics HTTP/1.1"
    for wrong in ({"ns": "team-b"}, {"token": "U" * 43}, {"model": "secret"}):
        asked = pair.bed.send(
            caddy_bed.request(path, more="Connection: close", **{**headers, **wrong})
        )
        assert asked.status in (400, 401, 403)
    for method in ("POST", "HEAD", "PUT", "get"):
        asked = pair.bed.send(caddy_bed.request(path, method, more="Connection: close", **headers))
        assert asked.status in (400, 403)
    assert len(scrapes(engine)) == before + served


def test_an_engine_cannot_lead_a_scraper_astray(both: Running) -> None:
    pair, engines = both
    engine = engines["team-a/tiny"]
    pair.start(pair.hosts("gpu1"))
    engine.answer = (
        b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nSet-Cookie: a=b\r\n"
        b"Content-Length: 0\r\nConnection: close\r\n\r\n"
    )
    answer = pair.scrape("/metrics", Accept_Encoding="gzip")
    assert answer.status == 302
    assert not {"location", "set-cookie"} & set(answer.headers)
    assert b"accept-encoding" not in engine.seen[-1].lower()
    engine.answer = page(b"\x1f\x8b bomb", "Content-Encoding: gzip")
    assert "content-encoding" not in pair.scrape("/metrics").headers


def test_an_answer_is_bounded_in_size_and_time(both: Running) -> None:
    pair, engines = both
    engine = engines["team-a/tiny"]
    pair.start(pair.hosts("gpu1"))
    line = b"toy_requests 5\n"
    engine.answer = page(line * (900 * 1024 // len(line)))
    answer = pair.scrape("/metrics")
    assert (answer.status, len(answer.body)) == (200, 900 * 1024 // len(line) * len(line))
    engine.answer = page(line * (2 * 1024 * 1024 // len(line)))
    large = pair.scrape("/metrics")
    assert large.status == 500
    assert len(large.body) < 1024
    engine.behaviour = "stream"  # for ever
    begun = time.monotonic()
    assert pair.scrape("/metrics").status in (500, 504)
    assert time.monotonic() - begun < 10


def test_scrapes_and_requests_do_not_wait_for_each_other(both: Running) -> None:
    pair, engines = both
    engine = engines["team-a/tiny"]
    pair.start(pair.hosts("gpu1"))
    engine.behaviour = "silent"
    statuses: List[int] = []
    scrapers = [
        threading.Thread(target=lambda: statuses.append(pair.scrape("/metrics").status))
        for _ in range(40)
    ]
    for thread in scrapers:
        thread.start()
    # Those beyond the limit are refused at once, and some wait at the engine.
    end = time.monotonic() + 10
    while len(statuses) < 20 or not scrapes(engine):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert set(statuses) == {503}
    assert len(scrapes(engine)) <= 4
    engine.behaviour = "answer"
    assert pair.relay.ask("POST", "/v1/chat/completions", b"{}").status == 200
    own = pair.own()
    assert own["envoy_cluster_upstream_rq_total", "hosts"] == 1
    assert own["envoy_cluster_upstream_rq_pending_overflow", "hosts"] == 0
    for thread in scrapers:
        thread.join(30)
    assert len(statuses) == 40
