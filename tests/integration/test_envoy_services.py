# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a relay does otherwise for a service, in a real Envoy: WebSockets, health, words."""

from __future__ import annotations

import json
import pathlib
import socket
import sys
import time
from typing import Iterator

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    envoy,
    envoy_data,
    objects,
    services,
)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from cluster_ingress import NEEDS_ENVOY, Authority, Ingress, Relay, eventually, find_envoy

ENVOY = find_envoy()
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)

pytestmark = NEEDS_ENVOY


class Bench:
    def __init__(self, folder: pathlib.Path) -> None:
        self.relay = Relay(str(ENVOY), folder)
        self.leaf = Authority().leaf("127.0.0.1")
        self.ingress = Ingress(self.leaf, folder / "host", "127.0.0.1")

    def start(self, service: services.Service | None, request_timeout: str = "300s") -> Relay:
        host = envoy_data.Host("gpu1", "127.0.0.1", self.ingress.port, (self.leaf.pem,))
        files = envoy.render(
            "tools",
            "art",
            [host],
            "t" * 43,
            "d" * 32,
            "/health",
            envoy_data.Limits(host_wait=2),
            self.relay.place,
            service=service,
        )
        files.plain["lds.json"] = files.plain["lds.json"].replace(
            '"300s"', '"%s"' % request_timeout
        )
        self.relay.write({**files.plain, **files.secret})
        self.relay.start(objects.ENVOY_ARGUMENTS[2:])
        return self.relay


@pytest.fixture
def bench(tmp_path: pathlib.Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    log = made.relay.log.read_text() if made.relay.log.exists() else ""
    made.relay.stop()
    made.ingress.close()
    for line in ("rejected", "critical", "deprecated", "[warning]"):
        assert line not in log, log


def head(relay: Relay, raw: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", relay.place.service_port), 10) as sock:
        sock.sendall(raw)
        data = b""
        while b"\r\n\r\n" not in data:
            more = sock.recv(4096)
            if not more:
                break
            data += more
    return data


def upgrades(bench: Bench) -> int:
    """How many requests reached the host with their upgrade."""
    return len([one for one in bench.ingress.requests if one["path"] == "/ws"])


def test_upgrades_to_websocket_alone_and_only_where_asked_for(bench: Bench) -> None:
    relay = bench.start(services.Service(websocket=True))
    relay.wait_ready()
    # The stand-in does not switch; what matters is that it was asked to.
    head(relay, UPGRADE % b"websocket")
    assert upgrades(bench) == 1
    assert head(relay, UPGRADE % b"h2c-other").startswith(b"HTTP/1.1 403 ")
    assert upgrades(bench) == 1


def test_a_websocket_outlives_the_time_that_a_request_may_take(bench: Bench) -> None:
    bench.ingress.switches = True
    relay = bench.start(services.Service(websocket=True), request_timeout="1s")
    relay.wait_ready()
    with socket.create_connection(("127.0.0.1", relay.place.service_port), 10) as client:
        client.sendall(UPGRADE % b"websocket")
        assert client.recv(65536).startswith(b"HTTP/1.1 101 ")
        for _ in range(3):
            time.sleep(1)
            client.sendall(b"echo")
            assert client.recv(4) == b"echo"


@pytest.mark.parametrize("service", [None, services.Service()])
def test_no_upgrade_otherwise(bench: Bench, service: services.Service | None) -> None:
    relay = bench.start(service)
    relay.wait_ready()
    assert head(relay, UPGRADE % b"websocket").startswith(b"HTTP/1.1 403 ")
    assert upgrades(bench) == 0


def test_another_status_than_declared_is_ill(bench: Bench) -> None:
    relay = bench.start(services.Service(health_status=204))
    eventually(lambda: len(bench.ingress.seen("GET")) >= 3)
    assert relay.probe("/ready") == 503


def test_its_own_answers_speak_of_a_service(bench: Bench) -> None:
    bench.ingress.close()
    relay = bench.start(services.Service())
    answer = relay.ask("GET", "/x")
    assert answer.status == 503
    assert "no host of this service" in json.loads(answer.body)["error"]["message"]
