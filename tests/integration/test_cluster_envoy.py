# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rendered relay configuration in a real Envoy, against stand-ins for the ingress."""

from __future__ import annotations

import contextlib
import pathlib
import re
import socket
import sys
import threading
import time
from dataclasses import replace
from typing import Dict, Iterator, List, Tuple

import pytest

from ansible_collections.tether.fleet.plugins.module_utils import marks
from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    balancing,
    envoy,
    envoy_data,
    objects,
)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from cluster_ingress import NEEDS_ENVOY, Authority, Ingress, Leaf, Relay, eventually, find_envoy

TOKEN = "tok%en-" + "x" * 37
DRAIN_KEY = "d" * 32
ENVOY = find_envoy()

pytestmark = NEEDS_ENVOY


class Bench:
    """A relay and its hosts, thrown away at the end."""

    def __init__(self, folder: pathlib.Path, authority: Authority) -> None:
        self.folder, self.authority = folder, authority
        self.relay = Relay(str(ENVOY), folder)
        self.ingresses: List[Ingress] = []
        # Most tests want to know what happens after the wait.
        self.limits = envoy_data.Limits(host_wait=2)
        self.balancing = balancing.DEFAULT

    def ingress(self, leaf: Leaf, address: str = "127.0.0.1") -> Ingress:
        number = len(self.ingresses)
        self.ingresses.append(Ingress(leaf, self.folder / ("host%d" % number), address))
        return self.ingresses[-1]

    def leaf(self, address: str = "127.0.0.1", **more: int) -> Leaf:
        return self.authority.leaf(address, **more)

    def files(self, *hosts: envoy_data.Host, token: str = TOKEN) -> Dict[str, str]:
        rendered = envoy.render(
            "team-a",
            "tiny",
            list(hosts),
            token,
            DRAIN_KEY,
            limits=self.limits,
            place=self.relay.place,
            spread=self.balancing,
        )
        return {**rendered.plain, **rendered.secret}

    def start(self, *hosts: envoy_data.Host) -> Relay:
        self.relay.write(self.files(*hosts))
        # The very arguments of the pod, but for the place of the bootstrap file.
        self.relay.start(objects.ENVOY_ARGUMENTS[2:])
        return self.relay

    def close(self) -> None:
        self.relay.stop()
        for item in self.ingresses:
            item.close()


@pytest.fixture
def bench(tmp_path: pathlib.Path, authority: Authority) -> Iterator[Bench]:
    made = Bench(tmp_path, authority)
    yield made
    log = made.relay.log.read_text() if made.relay.log.exists() else ""
    made.close()
    assert TOKEN not in log
    for line in ("rejected", "critical", "deprecated", "[warning]"):
        assert line not in log, log


def host(ingress: Ingress, *leaves: Leaf, name: str = "gpu1", address: str = "") -> envoy_data.Host:
    return envoy_data.Host(
        name, address or ingress.address, ingress.port, tuple(leaf.pem for leaf in leaves)
    )


def test_right_leaf_is_served_and_headers_are_the_relays(bench: Bench) -> None:
    leaf = bench.leaf()
    ingress = bench.ingress(leaf)
    relay = bench.start(host(ingress, leaf))
    relay.wait_ready()
    answer = relay.ask(
        "POST",
        "/v1/chat/completions?key=%2e%2e//x",
        b"{}",
        Authorization="Bearer mine",
        X_Relay_Token="forged",
        X_Relay_Namespace="team-b",
        X_Relay_Model="other",
        X_Relay_Else="x",
        X_Envoy_Retry_On="5xx",
    )
    assert answer.status == 200
    assert answer.headers["server"] == "engine"
    assert not [name for name in answer.headers if name.startswith("x-envoy")]
    seen = ingress.seen("POST")[0]
    assert seen["path"] == "/v1/chat/completions?key=%2e%2e//x"
    relayed = {key: val for key, val in seen["headers"].items() if key.startswith("x-relay")}
    assert relayed == {
        "x-relay-namespace": "team-a",
        "x-relay-model": "tiny",
        "x-relay-token": TOKEN,
    }
    assert seen["headers"]["authorization"] == "Bearer mine"
    assert not [name for name in seen["headers"] if name.startswith("x-envoy")]
    check = ingress.seen("GET")[0]
    assert check["path"] == "/health"
    assert check["headers"]["x-relay-token"] == TOKEN
    assert check["headers"]["x-relay-namespace"] == "team-a"
    assert check["headers"]["x-relay-model"] == "tiny"
    assert "mine" not in relay.log.read_text()


@pytest.mark.parametrize("kind", ["impostor", "other host's", "expired", "unpinned", "no pins"])
def test_wrong_leaf_sees_no_http_byte(bench: Bench, kind: str) -> None:
    right = bench.leaf()
    shown = {
        "impostor": bench.leaf(),
        "other host's": bench.leaf("127.0.0.2"),
        "expired": bench.leaf(days=-1, since=3),
        "unpinned": bench.leaf(),
        "no pins": right,
    }[kind]
    ingress = bench.ingress(shown)
    pinned = {
        "impostor": [right],
        "other host's": [shown],
        "expired": [shown],
        "unpinned": [right],
        "no pins": [],
    }[kind]
    relay = bench.start(host(ingress, *pinned))
    answer = relay.ask("POST", "/v1/chat/completions", b"{}")
    assert answer.status == 503
    assert answer.json()["error"]["type"] == "server_error"
    assert answer.json()["error"]["code"] == 503
    assert answer.headers["retry-after"] == "5"
    assert answer.headers["content-type"] == "application/json"
    assert "127.0.0.1" not in answer.body.decode()
    assert relay.probe("/ready") == 503
    assert relay.probe("/live") == 200
    assert ingress.handshakes > 0
    assert ingress.data == 0


def test_crossed_pins_match_nothing(bench: Bench) -> None:
    one, two = bench.leaf("127.0.0.1"), bench.leaf("127.0.0.2")
    first, second = bench.ingress(one, "127.0.0.1"), bench.ingress(two, "127.0.0.2")
    relay = bench.start(host(first, two), host(second, one, name="gpu2"))
    assert relay.ask("GET", "/v1/models").status == 503
    assert first.data == second.data == 0


def test_two_pins_and_ipv6(bench: Bench) -> None:
    old, new = bench.leaf("::1"), bench.leaf("::1")
    ingress = bench.ingress(new, "::1")
    relay = bench.start(host(ingress, old, new))
    relay.wait_ready()
    assert relay.ask("GET", "/v1/models").status == 200


def test_host_by_name(bench: Bench) -> None:
    leaf = bench.leaf("localhost")
    ingress = bench.ingress(leaf)
    relay = bench.start(host(ingress, leaf, address="localhost"))
    relay.wait_ready()
    assert relay.ask("GET", "/v1/models").status == 200


def test_impostor_beside_a_right_host_costs_nothing(bench: Bench) -> None:
    one, two = bench.leaf("127.0.0.1"), bench.leaf("127.0.0.2")
    good = bench.ingress(one, "127.0.0.1")
    bad = bench.ingress(bench.leaf("127.0.0.2"), "127.0.0.2")
    relay = bench.start(host(good, one), host(bad, two, name="gpu2"))
    relay.wait_ready()
    assert {relay.ask("POST", "/v1/x", b"{}").status for _ in range(30)} == {200}
    assert bad.data == 0


def test_post_that_left_is_never_repeated(bench: Bench) -> None:
    one, two = bench.leaf("127.0.0.1"), bench.leaf("127.0.0.2")
    first, second = bench.ingress(one, "127.0.0.1"), bench.ingress(two, "127.0.0.2")
    first.reset_posts = second.reset_posts = True
    relay = bench.start(host(first, one), host(second, two, name="gpu2"))
    relay.wait_ready()
    for _ in range(10):
        answer = relay.ask(
            "POST", "/v1/x", b"{}", X_Envoy_Retry_On="5xx,reset", X_Envoy_Max_Retries="5"
        )
        assert answer.status == 503
    assert len(first.seen("POST")) + len(second.seen("POST")) == 10


def test_an_ingress_that_reached_no_engine_is_passed_over(bench: Bench) -> None:
    one, two = bench.leaf("127.0.0.1"), bench.leaf("127.0.0.2")
    first, second = bench.ingress(one, "127.0.0.1"), bench.ingress(two, "127.0.0.2")
    first.refusal = {marks.INGRESS_ERROR: marks.ENGINE_UNREACHABLE}
    relay = bench.start(host(first, one), host(second, two, name="gpu2"))
    relay.wait_ready()
    assert {relay.ask("POST", "/v1/x", b"{}").status for _ in range(20)} == {200}
    assert first.seen("POST")  # it was asked, too
    assert len(second.seen("POST")) == 20


@pytest.mark.parametrize("refusal", [{}, {marks.INGRESS_ERROR: "engine_failed"}])
def test_any_other_answer_is_final(bench: Bench, refusal: Dict[str, str]) -> None:
    one, two = bench.leaf("127.0.0.1"), bench.leaf("127.0.0.2")
    first, second = bench.ingress(one, "127.0.0.1"), bench.ingress(two, "127.0.0.2")
    first.refusal = second.refusal = refusal
    relay = bench.start(host(first, one), host(second, two, name="gpu2"))
    relay.wait_ready()
    assert {relay.ask("POST", "/v1/x", b"{}").status for _ in range(10)} == {503}
    assert len(first.seen("POST")) + len(second.seen("POST")) == 10


def ask_ten(relay: Relay) -> Tuple[List[threading.Thread], List[int]]:
    """Ten requests at once: their threads, and the statuses of those that have been answered."""
    answers: List[int] = []
    asking = [
        threading.Thread(target=lambda: answers.append(relay.ask("POST", "/v1/x", b"{}").status))
        for _ in range(10)
    ]
    for thread in asking:
        thread.start()
    return asking, answers


def test_a_request_waits_for_its_host_to_come_back(bench: Bench) -> None:
    leaf = bench.leaf()
    first = bench.ingress(leaf)
    bench.limits = envoy_data.DEFAULT_LIMITS
    relay = bench.start(host(first, leaf))
    relay.wait_ready()
    first.close()
    asking, answers = ask_ten(relay)
    time.sleep(4)
    assert answers == []
    back = Ingress(leaf, bench.folder / "back", first.address, first.port)
    bench.ingresses.append(back)
    for thread in asking:
        thread.join(30)
    assert answers == [200] * 10
    assert len(back.seen("POST")) == 10


def test_slow_large_bodies_do_not_end_the_relay(bench: Bench) -> None:
    """Forty bodies of 31 MiB that never become whole: more than the pod's memory limit."""
    leaf = bench.leaf()
    ingress = bench.ingress(leaf)
    ingress.keep_bodies = False
    relay = bench.start(host(ingress, leaf))
    relay.wait_ready()
    head = b"POST /v1/x HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (1 << 25)
    piece = b"x" * (1 << 20)
    slow = [socket.create_connection(("127.0.0.1", relay.port)) for _ in range(40)]
    for connection in slow:
        connection.settimeout(10)
        # The relay may well have ended this one.
        with contextlib.suppress(OSError):
            connection.sendall(head)
            for _ in range(31):
                connection.sendall(piece)
    # The kubelet must not take a relay that is full for one that is dead.
    assert relay.probe("/live") == 200
    assert relay.process is not None
    status = pathlib.Path("/proc/%d/status" % relay.process.pid).read_text()
    peak = int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024
    assert 16 * 31 * 1024**2 < peak < envoy_data.DEFAULT_LIMITS.memory
    for connection in slow:
        connection.close()
    end = time.monotonic() + 10
    while relay.ask("POST", "/v1/x", b"{}").status != 200:
        assert time.monotonic() < end
        time.sleep(0.2)


def test_crash_of_one_of_two_with_large_bodies(bench: Bench) -> None:
    one, two = bench.leaf("127.0.0.1"), bench.leaf("127.0.0.2")
    first, second = bench.ingress(one, "127.0.0.1"), bench.ingress(two, "127.0.0.2")
    relay = bench.start(host(first, one), host(second, two, name="gpu2"))
    relay.wait_ready()
    second.close()
    body = b"x" * (5 * 1024 * 1024)
    assert {relay.ask("POST", "/v1/x", body).status for _ in range(8)} == {200}


def test_readiness_follows_the_hosts(bench: Bench) -> None:
    leaf = bench.leaf()
    ingress = bench.ingress(leaf)
    relay = bench.start(host(ingress, leaf))
    relay.wait_ready()
    ingress.healthy = False
    relay.wait_ready(503)
    ingress.healthy = True
    relay.wait_ready()


def test_a_drain_finishes_what_runs_and_serves_whoever_still_comes(bench: Bench) -> None:
    """The kubelet waits for the answer; a stream of six seconds must be whole by then."""
    leaf = bench.leaf()
    ingress = bench.ingress(leaf)
    relay = bench.start(host(ingress, leaf))
    relay.wait_ready()
    kept = relay.ask("GET", "/v1/models")
    assert "connection" not in kept.headers
    streams: List[bytes] = []
    stream = threading.Thread(target=lambda: streams.append(relay.ask("GET", "/stream/60").body))
    stream.start()
    time.sleep(0.5)
    drained: List[int] = []
    hook = threading.Thread(target=lambda: drained.append(relay.drain(DRAIN_KEY)))
    hook.start()
    time.sleep(1)
    for _ in range(20):
        late = relay.ask("POST", "/v1/x", b"{}")
        assert late.status == 200
        assert late.headers["connection"] == "close"
    assert relay.probe("/ready") == 200  # the kubelet's other questions go on
    assert drained == []
    stream.join(30)
    assert len(streams[0].splitlines()) == 120
    hook.join(5)
    assert drained == [200]


def let_go(ingress: Ingress) -> bool:
    """Whether the relay has no connection to it any more."""
    return all(connection.fileno() == -1 for connection in list(ingress.open))


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"], ids=["address", "name"])
def test_a_host_that_drains_gets_nothing_new_and_ends_what_it_has(bench: Bench, name: str) -> None:
    """With a name among the hosts the whole cluster is replaced, and not its list of hosts."""
    one, two = bench.leaf(name), bench.leaf("127.0.0.2")
    first, second = bench.ingress(one), bench.ingress(two, "127.0.0.2")
    drained, other = host(first, one, address=name), host(second, two, name="gpu2")
    relay = bench.start(drained)
    relay.wait_ready()
    streams: List[bytes] = []
    stream = threading.Thread(target=lambda: streams.append(relay.ask("GET", "/stream/90").body))
    stream.start()
    eventually(lambda: any(item["path"] == "/stream/90" for item in first.requests), 20)
    relay.write(bench.files(replace(drained, draining=True), other))
    # From the first request of the other one on.
    eventually(
        lambda: relay.ask("POST", "/v1/x", b"{}").status == 200 and bool(second.seen("POST")),
        20,
    )
    before = len(first.seen("POST"))
    assert {relay.ask("POST", "/v1/x", b"{}").status for _ in range(50)} == {200}
    assert len(first.seen("POST")) == before
    assert not streams and not let_go(first)
    stream.join(30)
    assert len(streams[0].splitlines()) == 180
    eventually(lambda: let_go(first), 20)
    relay.write(bench.files(drained, other))

    def is_back() -> bool:
        assert relay.ask("POST", "/v1/x", b"{}").status == 200
        return len(first.seen("POST")) > before

    eventually(is_back, 20)


def test_requests_wait_while_the_only_host_drains(bench: Bench) -> None:
    leaf = bench.leaf()
    ingress = bench.ingress(leaf)
    bench.limits = envoy_data.DEFAULT_LIMITS
    relay = bench.start(host(ingress, leaf))
    relay.wait_ready()
    relay.write(bench.files(replace(host(ingress, leaf), draining=True)))
    relay.wait_ready(503)
    eventually(lambda: let_go(ingress), 20)
    asking, answers = ask_ten(relay)
    time.sleep(4)
    assert answers == []
    assert ingress.seen("POST") == []
    relay.write(bench.files(host(ingress, leaf)))
    for thread in asking:
        thread.join(30)
    assert answers == [200] * 10


def test_after_the_wait_a_drained_model_refuses(bench: Bench) -> None:
    leaf = bench.leaf()
    ingress = bench.ingress(leaf)
    relay = bench.start(replace(host(ingress, leaf), draining=True))
    refused = relay.ask("POST", "/v1/x", b"{}")
    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    assert "reached no host" in refused.json()["error"]["message"]
    assert ingress.handshakes == 0


@pytest.mark.parametrize("key", ["", "e" * 32, DRAIN_KEY + "d"])
def test_nobody_else_starts_a_drain(bench: Bench, key: str) -> None:
    leaf = bench.leaf()
    ingress = bench.ingress(leaf)
    relay = bench.start(host(ingress, leaf))
    relay.wait_ready()
    assert relay.drain(key) == 403
    assert "connection" not in relay.ask("GET", "/v1/models").headers
    assert pathlib.Path(relay.place.admin_socket).stat().st_mode & 0o777 == 0o600


def test_new_files_under_load_lose_nothing(bench: Bench) -> None:
    """Host added, pins changed, token rotated, host removed: by file, under load and streams."""
    one, two, three = bench.leaf(), bench.leaf("127.0.0.2"), bench.leaf()
    first, second = bench.ingress(one), bench.ingress(two, "127.0.0.2")
    relay = bench.start(host(first, one))
    relay.wait_ready()
    statuses: List[int] = []
    streams: List[bytes] = []
    stop = threading.Event()

    def posts() -> None:
        while not stop.is_set():
            statuses.append(relay.ask("POST", "/v1/x", b"{}").status)

    threads = [threading.Thread(target=posts) for _ in range(3)]
    threads.append(
        threading.Thread(target=lambda: streams.append(relay.ask("GET", "/stream/60").body))
    )
    for thread in threads:
        thread.start()
    both = (host(first, one, three), host(second, two, name="gpu2"))
    for files in (
        bench.files(host(first, one), host(second, two, name="gpu2")),
        bench.files(*both),
        bench.files(*both, token="next" * 10),
        bench.files(host(second, two, name="gpu2"), token="next" * 10),
    ):
        time.sleep(1.2)
        relay.write(files)
    time.sleep(1.5)
    stop.set()
    for thread in threads:
        thread.join(30)
    assert set(statuses) == {200}
    assert len(statuses) > 100
    assert len(streams[0].splitlines()) == 120
    assert second.seen("POST")[-1]["headers"]["x-relay-token"] == "next" * 10
    before = len(first.seen("POST"))
    assert relay.ask("POST", "/v1/x", b"{}").status == 200
    assert len(first.seen("POST")) == before


def test_a_broken_file_keeps_the_old_state_and_says_no_token(
    tmp_path: pathlib.Path, authority: Authority
) -> None:
    bench = Bench(tmp_path, authority)
    try:
        leaf = bench.leaf()
        ingress = bench.ingress(leaf)
        relay = bench.start(host(ingress, leaf))
        relay.wait_ready()
        files = bench.files(host(ingress, leaf))
        for name in ("cds.json", "sds.json"):
            relay.write(dict(files, **{name: files[name].replace('"name"', '"nonsense"')}))
            time.sleep(0.5)
            assert relay.ask("GET", "/v1/models").status == 200
            relay.write(dict(files, **{name: files[name][:-30]}))
            time.sleep(0.5)
            assert relay.ask("GET", "/v1/models").status == 200
        assert TOKEN not in relay.log.read_text()
    finally:
        bench.close()


def test_a_removed_pin_ends_connections_that_were_made_under_it(bench: Bench) -> None:
    old, new = bench.leaf(), bench.leaf()
    ingress = bench.ingress(old)
    relay = bench.start(host(ingress, old, new))
    relay.wait_ready()
    assert relay.ask("GET", "/v1/models").status == 200
    relay.write(bench.files(host(ingress, new)))
    end = time.monotonic() + 5
    while relay.ask("GET", "/v1/models").status == 200:
        assert time.monotonic() < end
    before = ingress.data
    assert relay.ask("GET", "/v1/models").status == 503
    assert ingress.data == before
    assert relay.probe("/ready") == 503
