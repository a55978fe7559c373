# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A Service with pods of its own is handed over to relays and back, under load, in a real cluster.

``TETHER_TEST_KUBECONFIG`` and ``TETHER_TEST_RELAY_IMAGE`` as for ``test_cluster_pods.py``.
"""

from __future__ import annotations

import http.client
import json
import pathlib
import socket
import sys
import threading
import time
from typing import Any, Dict, Iterator, List

import pytest
import yaml

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cluster_api as api
from cluster_ingress import eventually
from test_cluster_pods import AUTHORITY, IMAGE, Fleet

pytestmark = pytest.mark.skipif(
    api.KUBECONFIG is None or IMAGE is None,
    reason="no cluster with a node: set TETHER_TEST_KUBECONFIG and TETHER_TEST_RELAY_IMAGE",
)

MODEL = {"name": "tiny", "namespace": "it-a", "hosts": ["gpu1"], "adopt": True}
RIGHTS = pathlib.Path(__file__).parents[2] / "docs" / "cluster-rights.yml"
# What a Service is to its clients and its owner.
KEPT = ("clusterIP", "clusterIPs", "type", "sessionAffinity", "externalTrafficPolicy")


@pytest.fixture
def fleet(tmp_path: pathlib.Path) -> Iterator[Fleet]:
    api.next_world()
    made = Fleet(tmp_path)
    assert not api.run("token", namespaces=["it-a"]).failed
    made.register()
    former_back_end()
    yield made
    api.clean()
    for host in made.hosts:
        host.close()


def former_back_end() -> None:
    """Two pods that answer ``former``, and the Service that their clients know."""
    http = {
        "stat_prefix": "former",
        "http_filters": [{"name": "router", "typed_config": {"@type": _type("router.v3.Router")}}],
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [
                        {
                            "match": {"prefix": "/"},
                            "direct_response": {"status": 200, "body": {"inline_string": "former"}},
                        }
                    ],
                }
            ]
        },
    }
    manager = {"@type": _type("http_connection_manager.v3.HttpConnectionManager"), **http}
    config = {
        "static_resources": {
            "listeners": [
                {
                    "address": {"socket_address": {"address": "0.0.0.0", "port_value": 8000}},
                    "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
                }
            ]
        }
    }
    container = {
        "name": "web",
        "image": IMAGE,
        "command": ["envoy"],
        "args": ["--config-yaml", json.dumps(config), "--concurrency", "1"],
        "ports": [{"containerPort": 8000}],
        "readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 1},
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "it-a"}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "it-a"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
            },
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "tiny",
            "namespace": "it-a",
            "labels": {"team": "a", "app.kubernetes.io/managed-by": "hand"},
            "annotations": {"note": "theirs"},
        },
        "spec": {
            "type": "NodePort",
            "selector": {"app": "web"},
            "ports": [{"name": "api", "port": 80, "targetPort": 8000}],
        },
    }
    api.apply(namespace, deployment, service)
    api.kubectl("rollout", "status", "deployment/web", "-n", "it-a", "--timeout=60s")


def _type(name: str) -> str:
    kind = "network" if "manager" in name else "http"
    return "type.googleapis.com/envoy.extensions.filters.%s.%s" % (kind, name)


class Load:
    """A request every 20 ms to the Service's address, each on its own, until told to end."""

    def __init__(self) -> None:
        self.address = service()["spec"]["clusterIP"]
        self.answers: List[str] = []
        self.failed: List[str] = []
        self._threads: List[threading.Thread] = []
        self._end = threading.Event()
        self._pace = threading.Thread(target=self._run)
        # The proxy of a node learns of a new Service some time after its pods are ready, and what
        # is sent before that is lost whoever answers later.
        eventually(self._reachable)
        self._pace.start()

    def _reachable(self) -> bool:
        try:
            socket.create_connection((self.address, 80), timeout=1).close()
        except OSError:
            return False
        return True

    def _run(self) -> None:
        while not self._end.wait(0.02):
            thread = threading.Thread(target=self._ask)
            thread.start()
            self._threads.append(thread)

    def _ask(self) -> None:
        try:
            connection = http.client.HTTPConnection(self.address, 80, timeout=30)
            connection.request("GET", "/v1/models")
            answer = connection.getresponse()
            text = answer.read().decode()
            connection.close()
        except OSError as error:
            self.failed.append(repr(error))
            return
        if answer.status != 200:
            self.failed.append("%d %s" % (answer.status, text))
        self.answers.append("former" if text == "former" else "relay")

    def all_from(self, giver: str) -> float:
        """Waits until the last fifty requests went there."""
        return eventually(lambda: self.answers[-50:] == [giver] * 50)

    def end(self) -> None:
        self._end.set()
        self._pace.join()
        for thread in self._threads:
            thread.join(40)


def service() -> Dict[str, Any]:
    return api.get("service", "tiny", "it-a") or {}


def survey() -> api.Result:
    return api.survey(
        image=IMAGE, ca_certificate=AUTHORITY.pem, models=[MODEL], namespaces=["it-a"]
    )


def kept(item: Dict[str, Any]) -> Dict[str, Any]:
    spec = {key: item["spec"].get(key) for key in KEPT}
    ports = [
        {key: port.get(key) for key in ("name", "port", "nodePort", "protocol")}
        for port in item["spec"]["ports"]
    ]
    return {**spec, "ports": ports, "uid": item["metadata"]["uid"]}


def told() -> List[str]:
    items = json.loads(api.kubectl("get", "events", "-n", "it-a", "-o", "json"))["items"]
    ours = ("RelayCreated", "ServiceAdopted", "ServiceReleased", "OwnershipRefused")
    found = [item for item in items if item["reason"] in ours]
    return sorted("%s %s" % (item["reason"], item["involvedObject"]["kind"]) for item in found)


def test_handed_over_when_relays_serve_and_back_without_a_lost_request(fleet: Fleet) -> None:
    before = service()
    load = Load()
    load.all_from("former")

    # Its host does not answer: everything is made but the Service stays as it is.
    fleet.hosts[0].healthy = False
    early = fleet.relay([], models=[MODEL], wait_timeout=8)
    assert early.failed
    assert early["models"]["it-a/tiny"]["state"] == "waiting"
    assert "create Deployment it-a/tiny-relay" in early.changes
    assert not [change for change in early.changes if "Service" in change]
    assert service()["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    fleet.hosts[0].healthy = True

    asked = survey()
    assert asked["differs"].startswith("adopt Service it-a/tiny")
    assert asked.writes == 0

    # That run might as well have been killed; the next one goes on from there.
    predicted = fleet.relay([], models=[MODEL], check=True)
    made = fleet.relay([], models=[MODEL])
    assert not made.failed, made["msg"]
    assert made.changes == predicted.changes == ["adopt Service it-a/tiny"]
    assert made["diff"] == predicted["diff"]
    assert made["models"]["it-a/tiny"]["changes"] == made["changes"]
    print("all from relays after", load.all_from("relay"))
    after = service()
    assert kept(after) == kept(before)
    marks = after["metadata"]["labels"]
    assert {key: marks[key] for key in before["metadata"]["labels"]} == (
        before["metadata"]["labels"]
    )
    assert after["metadata"]["annotations"]["note"] == "theirs"
    assert after["spec"]["selector"] != before["spec"]["selector"]
    again = fleet.relay([], models=[MODEL])
    assert not again["changed"]
    assert again["requests"] == {"GET": 7}
    assert survey()["differs"] == ""
    assert not fleet.probe().failed
    assert told() == ["RelayCreated Deployment", "ServiceAdopted Service"]

    # Back: the model leaves the inventory.
    predicted = fleet.relay([], models=[], prune=True, check=True)
    gone = fleet.relay([], models=[], prune=True)
    assert gone.changes == predicted.changes
    assert gone.changes[0] == "release Service it-a/tiny"
    assert "remove Deployment it-a/tiny-relay" in gone.changes
    print("all from the former pods after", load.all_from("former"))
    eventually(lambda: api.get("deployment", "tiny-relay", "it-a") is None)
    time.sleep(12)  # relay pods end after ten seconds at the earliest
    load.end()
    assert load.failed == []
    print("requests", len(load.answers))
    returned = service()
    assert returned["spec"] == before["spec"]
    assert returned["metadata"]["labels"] == before["metadata"]["labels"]
    assert returned["metadata"]["annotations"] == before["metadata"]["annotations"]
    assert told() == [
        "RelayCreated Deployment",
        "ServiceAdopted Service",
        "ServiceReleased Service",
    ]


@pytest.fixture
def documented() -> Iterator[str]:
    """A user with the rights of docs/cluster-rights.yml, and no more."""
    user = "fleet%d" % api._serial[0]
    role = yaml.safe_load(RIGHTS.read_text())
    role["metadata"]["name"] = user
    api.kubectl("apply", "-f", "-", stdin=json.dumps(role))
    api.kubectl("create", "clusterrolebinding", user, "--clusterrole", user, "--user", user)
    yield user
    api.kubectl("delete", "clusterrolebinding,clusterrole", user)


def test_roll_back_by_taking_adopt_away_and_drift(fleet: Fleet, documented: str) -> None:
    before = service()
    made = fleet.relay([], models=[MODEL], impersonate_user=documented)
    assert not made.failed, made["msg"]
    assert made.changes[-1] == "adopt Service it-a/tiny"
    # Its owner applies the old manifest once more: both selectors are in it, which select nothing.
    api.kubectl(
        *("patch", "service", "tiny", "-n", "it-a", "--type=merge", "-p"),
        '{"spec":{"selector":{"app":"web"}}}',
    )
    mended = fleet.relay([], models=[MODEL])
    assert not mended.failed, mended["msg"]
    assert mended.changes == ["adopt Service it-a/tiny"]
    assert "app" not in service()["spec"]["selector"]
    assert fleet.relay([], models=[MODEL]).changes == []

    without = {**MODEL, "adopt": False}
    predicted = fleet.relay([], models=[without], check=True)
    back = fleet.relay([], models=[without], impersonate_user=documented)
    assert back.failed
    assert back.changes == predicted.changes
    assert back.changes == [
        "create Event OwnershipRefused on Service it-a/tiny",
        "create ConfigMap it-fleet/state",
        "release Service it-a/tiny",
    ]
    assert service()["spec"] == before["spec"]
    again = fleet.relay([], models=[without])
    assert again["models"]["it-a/tiny"]["state"] == "refused"
    assert again.writes == 0
    # And once more.
    assert fleet.relay([], models=[MODEL]).changes == [
        "update ConfigMap it-fleet/state",
        "adopt Service it-a/tiny",
    ]
    assert told().count("ServiceAdopted Service") == 2
