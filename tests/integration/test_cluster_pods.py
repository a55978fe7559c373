# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Relays that really run, in a cluster with a node; the hosts are stand-ins on this machine.

``TETHER_TEST_KUBECONFIG`` and ``TETHER_TEST_RELAY_IMAGE`` name the cluster and an Envoy image that
its node has. Pods must reach this machine at the address by which it reaches the node.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import pathlib
import socket
import sys
import threading
import time
from typing import Any, Dict, Iterator, List

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cluster_api as api
from cluster_ingress import Authority, Ingress, Leaf, eventually

IMAGE = os.environ.get("TETHER_TEST_RELAY_IMAGE")

pytestmark = pytest.mark.skipif(
    api.KUBECONFIG is None or IMAGE is None,
    reason="no cluster with a node: set TETHER_TEST_KUBECONFIG and TETHER_TEST_RELAY_IMAGE",
)

AUTHORITY = Authority()


def own_address() -> str:
    node = json.loads(api.kubectl("get", "nodes", "-o", "json"))["items"][0]
    addresses = {item["type"]: item["address"] for item in node["status"]["addresses"]}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((addresses["InternalIP"], 9))
        found: str = probe.getsockname()[0]
        return found


class Fleet:
    """Two stand-in hosts and what the modules need to know of them."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.address = folder, own_address()
        self.leaves = [AUTHORITY.leaf(self.address) for _ in range(2)]
        self.hosts = [self.ingress(leaf) for leaf in self.leaves]

    def ingress(self, leaf: Leaf) -> Ingress:
        return Ingress(leaf, self.folder / str(time.monotonic_ns()), self.address)

    def record(self, number: int, **more: Any) -> Dict[str, Any]:
        return {
            "schema": 1,
            "host": "gpu%d" % number,
            "address": self.address,
            "port": self.hosts[number - 1].port,
            "certificates": [self.leaves[number - 1].pem],
            "ingress": {"version": "test"},
            "engines": [{"namespace": "it-a", "model": "tiny", "engine": "stand-in"}],
            **more,
        }

    def register(self, *records: Dict[str, Any]) -> None:
        done = api.run("registration", records=list(records) or [self.record(1), self.record(2)])
        assert not done.failed, done["msg"]

    def relay(self, hosts: List[str], **more: Any) -> api.Result:
        return api.run(
            "relay",
            **{
                "image": IMAGE,
                "ca_certificate": AUTHORITY.pem,
                "models": [{"name": "tiny", "namespace": "it-a", "hosts": hosts}],
                "create_namespaces": True,
                "wait_timeout": 60,
                **more,
            },
        )

    def probe(self, timeout: int = 20) -> api.Result:
        models = [{"name": "tiny", "namespace": "it-a"}]
        return api.run("relay_probe", models=models, timeout=timeout)


@pytest.fixture
def fleet(tmp_path: pathlib.Path) -> Iterator[Fleet]:
    api.next_world()
    made = Fleet(tmp_path)
    assert not api.run("token", namespaces=["it-a"]).failed
    yield made
    api.clean()
    for host in made.hosts:
        host.close()


def pods(ending: bool = False) -> List[str]:
    """The relays' pods; those that are about to end too, if asked for."""
    items = json.loads(api.kubectl("get", "pods", "-n", "it-a", "-o", "json"))["items"]
    return sorted(
        item["metadata"]["name"]
        for item in items
        if ending or "deletionTimestamp" not in item["metadata"]
    )


def logs() -> str:
    return api.kubectl("logs", "-n", "it-a", "-l", "tether.fleet/model=tiny", "--tail=-1")


def test_from_nothing_to_an_answer_and_through_changes_without_a_roll(fleet: Fleet) -> None:
    fleet.register()
    made = fleet.relay(["gpu1"])
    assert not made.failed, made["msg"]
    assert made["models"]["it-a/tiny"]["state"] == "served"
    again = fleet.relay(["gpu1"])
    assert not again["changed"]
    assert again["requests"] == {"GET": 7}
    answer = fleet.probe()
    assert not answer.failed, answer["msg"]
    assert answer["models"]["it-a/tiny"]["ok"]
    assert not answer["changed"]
    first, second = fleet.hosts
    seen = first.seen("POST")[-1]
    secret = api.get("secret", "token-it-a", api.FLEET_NAMESPACE) or {}
    token = base64.b64decode(secret["data"]["current"]).decode()
    assert seen["path"] == "/v1/chat/completions"
    assert seen["headers"]["x-relay-token"] == token
    assert api.FLEET_NAMESPACE not in str(seen["headers"])
    assert second.handshakes == 0
    running = pods()
    assert len(running) == 2

    # A second host.
    assert not fleet.relay(["gpu1", "gpu2"]).failed
    print("second host checked after", eventually(lambda: len(second.seen("GET")) > 1))

    # Another token: what the Secret says is what relays present, in seconds.
    api.kubectl(
        "patch",
        "secret",
        "token-it-a",
        "-n",
        api.FLEET_NAMESPACE,
        "--type=merge",
        "-p",
        json.dumps({"stringData": {"current": "n" * 43, "generation": "2"}}),
    )
    changed = fleet.relay(["gpu1", "gpu2"])
    assert changed.changes == ["update Secret it-a/tiny-relay"]
    assert token not in json.dumps(changed)
    assert "n" * 43 not in json.dumps(changed)

    def presents() -> bool:
        return [host.requests[-1]["headers"]["x-relay-token"] for host in fleet.hosts] == [
            "n" * 43
        ] * 2

    print("new token presented after", eventually(presents))

    # The first host gets a new certificate: both pins, then it alone.
    leaf = AUTHORITY.leaf(fleet.address)
    both = [fleet.leaves[0].pem, leaf.pem]
    fleet.register(fleet.record(1, certificates=both), fleet.record(2))
    assert not fleet.relay(["gpu1", "gpu2"]).failed
    assert not fleet.probe().failed
    # A host goes.
    assert not fleet.relay(["gpu2"]).failed
    eventually(lambda: bool(time.sleep(3)) or _silent(first))
    assert not fleet.probe().failed
    assert pods() == running
    text = logs()
    assert token not in text
    assert "n" * 43 not in text


def _silent(host: Ingress) -> bool:
    before = len(host.requests)
    time.sleep(3)
    return len(host.requests) == before


def test_a_mark_alone_takes_a_host_out_and_back_while_requests_run(fleet: Fleet) -> None:
    fleet.register()
    assert not fleet.relay(["gpu1", "gpu2"]).failed
    running, (first, second) = pods(), fleet.hosts
    eventually(lambda: bool(first.seen("GET") and second.seen("GET")))
    address = (api.get("service", "tiny", "it-a") or {})["spec"]["clusterIP"]
    statuses: List[int] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(0.02):
            connection = http.client.HTTPConnection(address, 80, timeout=60)
            try:
                connection.request("POST", "/v1/chat/completions", b"{}")
                statuses.append(connection.getresponse().status)
            except (OSError, http.client.HTTPException):
                statuses.append(0)  # no answer at all
            connection.close()

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        eventually(lambda: bool(first.seen("POST") and second.seen("POST")))
        told = api.run("registration", state="restarting", hosts=["gpu1"])
        assert list(told["endpoints"]) == ["it-a/tiny"]
        print("left after", eventually(lambda: _silent(first), 30))
        told = api.run("registration", state="restarting", hosts=["gpu2"])
        assert list(told["endpoints"]) == ["it-a/tiny"]
        print("changed places after", eventually(lambda: _silent(second), 30))
        assert not _silent(first)
        # What has no other host waits until it is back.
        api.run("registration", state="draining", hosts=["gpu1"])
        eventually(lambda: _silent(first), 30)
        api.run("registration", state="serving", hosts=["gpu1", "gpu2"])
        asked = len(statuses)
        eventually(lambda: len(statuses) > asked + 20)
    finally:
        ended.set()
        asker.join(90)
    assert set(statuses) == {200}
    assert pods() == running
    assert fleet.relay(["gpu1", "gpu2"]).changes == []


def test_a_host_that_does_not_answer_is_waited_for_and_named(fleet: Fleet) -> None:
    fleet.register()
    fleet.hosts[0].healthy = False
    made = fleet.relay(["gpu1"], wait_timeout=10)
    assert made.failed
    assert made["models"]["it-a/tiny"]["state"] == "waiting"
    assert "0 of 2 relays are available" in made["msg"]
    assert "gpu1" in made["msg"]
    assert '"http_status_code":503' in made["msg"]  # the relay's own last line
    refused = fleet.probe(timeout=2)
    assert refused.failed
    assert "no endpoints" in refused["msg"]
    fleet.hosts[0].healthy = True
    made = fleet.relay(["gpu1"])
    assert not made.failed, made["msg"]
    assert made.changes == []
    assert not fleet.probe().failed


def test_an_impostor_gets_nothing_and_the_service_refuses_fast(fleet: Fleet) -> None:
    fleet.register()
    assert not fleet.relay(["gpu1"]).failed
    port = fleet.hosts[0].port
    fleet.hosts[0].close()
    impostor = Ingress(
        AUTHORITY.leaf(fleet.address), fleet.folder / "impostor", fleet.address, port
    )
    fleet.hosts.append(impostor)
    eventually(lambda: fleet.probe(timeout=1).failed)
    assert impostor.handshakes > 0
    assert impostor.data == 0


def test_pods_that_end_finish_their_streams(fleet: Fleet) -> None:
    """All relays are deleted while streams of eight seconds run; the kubelet asks each to drain."""
    fleet.register()
    assert not fleet.relay(["gpu1", "gpu2"]).failed
    address = (api.get("service", "tiny", "it-a") or {})["spec"]["clusterIP"]
    streams: List[int] = []

    def stream() -> None:
        connection = http.client.HTTPConnection(address, 80, timeout=60)
        connection.request("GET", "/stream/80")
        # Each event is two lines; a stream that is cut raises.
        streams.append(len(connection.getresponse().read().splitlines()))
        connection.close()

    threads = [threading.Thread(target=stream) for _ in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    old = pods()
    api.kubectl("delete", "pods", "-n", "it-a", *old, "--wait=false")
    for thread in threads:
        thread.join(60)
    assert streams == [160] * 6
    eventually(lambda: len(pods()) == 2)
    events = json.loads(api.kubectl("get", "events", "-n", "it-a", "-o", "json"))["items"]
    assert [item["message"] for item in events if item["reason"] == "FailedPreStopHook"] == []
    print("gone after", eventually(lambda: not set(old) & set(pods(ending=True))))


def test_an_image_that_is_not_there_fails_with_its_reason(fleet: Fleet) -> None:
    fleet.register()
    start = time.monotonic()
    made = fleet.relay(["gpu1"], image="127.0.0.1:1/none" + api.DIGEST, wait_timeout=120)
    assert made.failed
    assert "127.0.0.1:1/none" in made["msg"]
    assert time.monotonic() - start < 110  # told by the pod, not by the time-out of 120 s
    mended = fleet.relay(["gpu1"])
    assert not mended.failed, mended["msg"]
    assert mended.changes == ["update Deployment it-a/tiny-relay"]


def test_what_somebody_broke_is_mended(fleet: Fleet) -> None:
    fleet.register()
    assert not fleet.relay(["gpu1"]).failed
    api.kubectl(
        "patch",
        "deployment",
        "tiny-relay",
        "-n",
        "it-a",
        "--type=json",
        "-p",
        json.dumps(
            [
                {
                    "op": "replace",
                    "path": "/spec/template/spec/containers/0/args",
                    "value": ["--no-such-flag"],
                }
            ]
        ),
    )
    time.sleep(3)
    # The very Deployment that somebody broke is mended by the next run.
    mended = fleet.relay(["gpu1"])
    assert not mended.failed, mended["msg"]
    assert mended.changes == ["update Deployment it-a/tiny-relay"]
