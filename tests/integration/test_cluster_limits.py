# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A relay under more requests than its hosts take at a time: limits, queue, choice of a host."""

from __future__ import annotations

import contextlib
import http.client
import pathlib
import shutil
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import Iterator, List

import pytest

from ansible_collections.tether.fleet.plugins.module_utils import marks
from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    balancing,
    envoy_data,
    objects,
)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from cluster_ingress import NEEDS_ENVOY, Answer, Authority, Ingress, eventually
from test_cluster_envoy import Bench, host

pytestmark = NEEDS_ENVOY


class Crowd:
    """Clients of one relay, each with a connection of its own."""

    def __init__(self, bench: Bench) -> None:
        self.relay = bench.relay
        self.answers: List[Answer] = []
        self.threads: List[threading.Thread] = []

    def ask(self, number: int, path: str, **headers: str) -> None:
        """So many POSTs at once. ``/stream/<n>`` runs for n tenths of a second."""

        def one() -> None:
            # An answer that breaks off is none.
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.answers.append(self.relay.ask("POST", path, b"{}", **headers))

        started = [threading.Thread(target=one) for _ in range(number)]
        for thread in started:
            thread.start()
        self.threads += started

    def statuses(self) -> List[int]:
        for thread in self.threads:
            thread.join(60)
        return sorted(answer.status for answer in self.answers)


class Two(Bench):
    """A relay with two hosts, ``hosts`` and ``ingresses`` in the same order."""

    def __init__(self, folder: pathlib.Path, authority: Authority) -> None:
        super().__init__(folder, authority)
        self.hosts: List[envoy_data.Host] = []
        for number in (1, 2):
            leaf = self.leaf("127.0.0.%d" % number)
            ingress = self.ingress(leaf, "127.0.0.%d" % number)
            self.hosts.append(host(ingress, leaf, name="gpu%d" % number))

    def posts(self) -> List[int]:
        """How many POSTs each host has had."""
        return [len(ingress.seen("POST")) for ingress in self.ingresses]


@pytest.fixture
def bench(tmp_path: pathlib.Path, authority: Authority) -> Iterator[Two]:
    made = Two(tmp_path, authority)
    yield made
    log = made.relay.log.read_text() if made.relay.log.exists() else ""
    made.close()
    for line in ("rejected", "critical", "deprecated", "[warning]"):
        assert line not in log, log


def checks(ingress: Ingress) -> int:
    return len([item for item in ingress.requests if item["path"] == "/health"])


def test_a_full_queue_says_busy_and_readiness_goes_on(bench: Two) -> None:
    bench.balancing = balancing.Balancing(parallel=4, relays=2, queue=4)
    relay = bench.start(*bench.hosts)
    relay.wait_ready()
    crowd = Crowd(bench)
    # Two relays' parts of four. Eight at once over cold connections, then four more: four run,
    # eight wait (the queue, and as many as may run), and the next is one too many.
    crowd.ask(8, "/stream/50")
    eventually(lambda: bench.posts() == [2, 2], 20)
    crowd.ask(4, "/stream/1")
    time.sleep(0.5)
    before = [checks(ingress) for ingress in bench.ingresses]
    refused = relay.ask("POST", "/v1/x", b"{}")
    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    assert refused.headers["content-type"] == "application/json"
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("server_error", 503)
    assert "busy" in error["message"]
    assert "reached no host" not in error["message"]
    assert not [name for name in refused.headers if name.startswith("x-envoy")]
    time.sleep(2)
    assert relay.probe("/ready") == 200
    for ingress, was in zip(bench.ingresses, before, strict=True):
        assert checks(ingress) > was
    assert bench.posts() == [2, 2]
    assert crowd.answers == []
    assert crowd.statuses() == [200] * 12
    assert sum(bench.posts()) == 12


def test_as_many_as_may_run_may_come_at_once(bench: Two) -> None:
    """Over cold connections, with the shortest queue; each host gets its part."""
    bench.balancing = balancing.Balancing(parallel=3, relays=1, queue=1)
    bench.start(*bench.hosts).wait_ready()
    crowd = Crowd(bench)
    crowd.ask(6, "/stream/10")
    assert crowd.statuses() == [200] * 6
    assert bench.posts() == [3, 3]


def test_nobody_waits_for_a_busy_host_beside_a_free_one(bench: Two) -> None:
    """Drawn by lot, so once in a while one may: see balancing.policy."""
    bench.balancing = balancing.Balancing(parallel=1, relays=1)
    bench.start(*bench.hosts).wait_ready()
    took = []
    for _ in range(10):
        crowd = Crowd(bench)
        start = time.monotonic()
        crowd.ask(1, "/stream/8")
        crowd.ask(1, "/stream/8")
        assert crowd.statuses() == [200] * 2
        took.append(time.monotonic() - start)
    assert len([seconds for seconds in took if seconds > 1.4]) <= 1, took


def test_a_host_that_fails_at_once_draws_nobody(bench: Two) -> None:
    """It has the fewest requests, since it answers none of them."""
    bench.ingresses[0].refusal = {marks.INGRESS_ERROR: marks.ENGINE_UNREACHABLE}
    bench.balancing = balancing.Balancing(parallel=20, relays=1)
    bench.limits = envoy_data.DEFAULT_LIMITS
    bench.start(*bench.hosts).wait_ready()
    crowd = Crowd(bench)
    crowd.ask(5, "/stream/50")
    eventually(lambda: bench.posts()[1] == 5, 20)
    late = Crowd(bench)
    late.ask(10, "/v1/x")
    assert late.statuses() == [200] * 10
    assert crowd.answers == []  # these ten waited for none of them
    assert crowd.statuses() == [200] * 5


def test_who_waits_outlives_the_host_it_waits_for(bench: Two) -> None:
    bench.balancing = balancing.Balancing(parallel=1, relays=1)
    # Seven streams of two seconds one after the other, on a machine that may be busy.
    bench.limits = envoy_data.Limits(host_wait=60)
    bench.start(*bench.hosts).wait_ready()
    crowd = Crowd(bench)
    crowd.ask(8, "/stream/20")
    eventually(lambda: bench.posts() == [1, 1], 20)
    bench.ingresses[0].close()
    # Lost is the one whose answer had begun there.
    assert crowd.statuses() == [200] * 7
    assert len(bench.ingresses[1].seen("POST")) == 7


def test_who_waits_outlives_a_drain_of_its_host(bench: Two) -> None:
    bench.balancing = balancing.Balancing(parallel=1, relays=1)
    relay = bench.start(*bench.hosts)
    relay.wait_ready()
    crowd = Crowd(bench)
    crowd.ask(8, "/stream/20")
    eventually(lambda: bench.posts() == [1, 1], 20)
    relay.write(bench.files(replace(bench.hosts[0], draining=True), bench.hosts[1]))
    assert crowd.statuses() == [200] * 8
    assert {len(answer.body.splitlines()) for answer in crowd.answers} == {40}


def test_more_than_may_run_wait_for_a_host_to_come_back(bench: Two) -> None:
    bench.balancing = balancing.Balancing(parallel=2, relays=1)
    bench.limits = envoy_data.DEFAULT_LIMITS
    bench.start(bench.hosts[0]).wait_ready()
    first = bench.ingresses[0]
    first.close()
    crowd = Crowd(bench)
    crowd.ask(20, "/v1/x")
    time.sleep(4)
    assert crowd.answers == []
    leaf = bench.leaf()
    back = Ingress(leaf, bench.folder / "back", first.address, first.port)
    bench.ingresses.append(back)
    bench.relay.write(bench.files(host(back, leaf)))
    assert crowd.statuses() == [200] * 20


def test_one_value_of_the_header_has_one_host(bench: Two) -> None:
    bench.balancing = balancing.Balancing(balancing.AFFINITY, "X-Session", parallel=8)
    relay = bench.start(*bench.hosts)
    relay.wait_ready()

    def ask(session: str) -> int:
        answer = relay.ask("POST", "/v1/x", b"{}", x_session=session)
        assert answer.status == 200
        return int(answer.json()["port"])

    chosen = {session: ask(session) for session in map(str, range(20))}
    assert set(chosen.values()) == {ingress.port for ingress in bench.ingresses}
    assert {session: ask(session) for session in chosen} == chosen
    # Without it any host will do; a host that is gone loses its clients to the other.
    for _ in range(20):
        assert relay.ask("POST", "/v1/x", b"{}").status == 200
    bench.ingresses[0].close()
    assert {ask(session) for session in chosen} == {bench.ingresses[1].port}


def test_one_value_on_everybodys_lips_overflows_to_the_other_host(bench: Two) -> None:
    bench.balancing = balancing.Balancing(balancing.AFFINITY, "X-Session", parallel=4, relays=1)
    bench.start(*bench.hosts).wait_ready()
    crowd = Crowd(bench)
    for _ in range(8):
        crowd.ask(1, "/stream/20", X_Session="same")
        time.sleep(0.1)
    assert crowd.statuses() == [200] * 8
    assert min(bench.posts()) >= 1


def test_hosts_in_turn(bench: Two) -> None:
    bench.balancing = balancing.Balancing(balancing.ROUND_ROBIN)
    relay = bench.start(*bench.hosts)
    relay.wait_ready()
    for _ in range(20):
        assert relay.ask("POST", "/v1/x", b"{}").status == 200
    assert bench.posts() == [10, 10]


def test_a_body_that_stops_frees_its_slot_and_long_answers_go_on(bench: Two) -> None:
    """With three seconds in place of three hundred."""
    files = bench.files(*bench.hosts)
    assert files["lds.json"].count('"request_timeout": "300s"') == 1
    files["lds.json"] = files["lds.json"].replace('"300s"', '"3s"')
    for ingress in bench.ingresses:
        ingress.delay = 5  # as a long prefill is silent
    relay = bench.relay
    relay.write(files)
    relay.start(objects.ENVOY_ARGUMENTS[2:])
    relay.wait_ready()
    crowd = Crowd(bench)
    crowd.ask(1, "/stream/20")
    head = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", relay.port), 15) as slow:
        begun = time.monotonic()
        slow.sendall(head)
        status = slow.recv(65536).split(b"\r\n")[0]
        took = time.monotonic() - begun
        assert status == b"HTTP/1.1 408 Request Timeout"
        assert 2.5 < took < 6
    assert crowd.statuses() == [200]
    assert b"data: 19" in crowd.answers[0].body


@pytest.mark.skipif(shutil.which("ss") is None, reason="no ss (package iproute2)")
def test_connections_of_clients_are_asked_whether_they_live(bench: Two) -> None:
    relay = bench.start(*bench.hosts)
    relay.wait_ready()
    with socket.create_connection(("127.0.0.1", relay.port), 15) as client:
        client.sendall(b"GET /v1/x HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        shown = subprocess.run(
            ["ss", "-tnoH", "state", "established", "sport", "=", ":%d" % relay.port],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    assert "timer:(keepalive,2" in shown, shown
