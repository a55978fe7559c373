# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who reaches relays, and whom they reach, by a cluster's real policy engine; and monitors.

Like ``test_cluster_pods.py``; the node must have the test bed's image of client pods.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any, Dict, Iterator, List, Optional

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cluster_api as api
import prometheus_text
import test_cluster_pods
from cluster_ingress import eventually

CLIENT_IMAGE = "tether.bed/client:1"
MODEL = {"name": "tiny", "namespace": "it-a", "hosts": ["gpu1"]}

pytestmark = test_cluster_pods.pytestmark
fleet = test_cluster_pods.fleet


def pod(namespace: str, name: str, labels: Dict[str, str]) -> None:
    """A pod of a user, once it runs."""
    container = {
        "name": "client",
        "image": CLIENT_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "600"],
    }
    item = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }

    def made() -> bool:
        # A namespace that is new has no account for its pods at first.
        api.kubectl("apply", "-f", "-", stdin=json.dumps(item), check=False)
        found = api.get("pod", name, namespace)
        return found is not None and found["status"]["phase"] == "Running"

    eventually(made)


def get(namespace: str, name: str, url: str) -> str:
    """The status that a pod gets, 000 when it gets none."""
    words = ["curl", "-sk", "-o", "/dev/null", "-m", "3", "-w", "%{http_code}", url]
    return api.kubectl("exec", "-n", namespace, name, "--", *words, check=False)


def serve(fleet: test_cluster_pods.Fleet, **more: Any) -> api.Result:
    done = fleet.relay([], **{"models": [{**MODEL, **more.pop("model", {})}], **more})
    assert not done.failed, done["msg"]
    return done


def policy() -> Dict[str, Any]:
    found = api.get("networkpolicy", "tiny-relay", "it-a")
    assert found is not None
    spec: Dict[str, Any] = found["spec"]
    return spec


def test_clients_reach_relays_and_others_do_not(fleet: test_cluster_pods.Fleet) -> None:
    fleet.register()
    serve(fleet)
    assert policy()["policyTypes"] == ["Egress"]
    api.kubectl("create", "namespace", "it-b")
    pod("it-a", "chat", {"app": "chat"})
    pod("it-a", "other", {"app": "other"})
    pod("it-b", "chat", {"app": "chat"})
    url, page = "http://tiny.it-a.svc/v1/models", "http://tiny.it-a.svc:9464/metrics/relay"
    pairs = [("it-a", "chat"), ("it-a", "other"), ("it-b", "chat")]

    def reach(where: str) -> List[str]:
        real = api.kubectl(
            "get", "service", "tiny", "-n", "it-a", "-o", "jsonpath={.spec.clusterIP}"
        )
        return [get(*pair, where.replace("tiny.it-a.svc", real)) for pair in pairs]

    assert reach(url) == ["200"] * 3
    assert reach(page) == ["200"] * 3

    # A label in the model's own namespace.
    own = {"clients": [{"pods": {"app": "chat"}}]}
    serve(fleet, model=own)
    eventually(lambda: reach(url) == ["200", "000", "000"])
    assert reach(page) == ["200", "000", "000"]
    again = serve(fleet, model=own)
    assert not again["changed"]

    # Another namespace as a whole for requests; metrics for others than those.
    serve(
        fleet,
        model={
            "clients": [{"namespace": "it-b"}],
            "metrics_clients": [{"namespace": "it-a", "pods": {"app": "other"}}],
        },
    )
    eventually(lambda: reach(url) == ["000", "000", "200"])
    eventually(lambda: reach(page) == ["000", "200", "000"])

    # Nobody of the cluster; the kubelet asks on: a new pod becomes ready, an old one is drained.
    serve(fleet, model={"clients": [{"cidr": "203.0.113.0/24"}]})
    eventually(lambda: reach(url) == ["000"] * 3)
    relays = [name for name in test_cluster_pods.pods() if name.startswith("tiny-relay-")]
    api.kubectl("delete", "pod", "-n", "it-a", relays[0])
    serve(fleet, model={"clients": [{"cidr": "203.0.113.0/24"}]})
    deployment = api.get("deployment", "tiny-relay", "it-a") or {}
    assert deployment["status"]["readyReplicas"] == 2
    events = json.loads(api.kubectl("get", "events", "-n", "it-a", "-o", "json"))["items"]
    assert [item["message"] for item in events if item["reason"] == "FailedPreStopHook"] == []

    # Everybody again.
    serve(fleet)
    assert "ingress" not in policy()
    eventually(lambda: reach(url) == ["200"] * 3)


def test_relays_reach_their_hosts_alone(fleet: test_cluster_pods.Fleet) -> None:
    """A pod under the relays' policy, with what a relay has not: a program to try with."""
    fleet.register()
    serve(fleet)
    live = api.get("deployment", "tiny-relay", "it-a") or {}
    labels = live["spec"]["selector"]["matchLabels"]
    first, second = fleet.hosts
    urls = ["https://%s:%d/health" % (fleet.address, host.port) for host in (first, second)]
    server = api.kubectl(
        "get", "endpointslices", "-n", "default", "-o", "json", "-l",
        "kubernetes.io/service-name=kubernetes",
    )  # fmt: skip
    found = json.loads(server)["items"][0]
    urls.append(
        "https://%s:%d/" % (found["endpoints"][0]["addresses"][0], found["ports"][0]["port"])
    )
    pod("it-a", "free", {"app": "free"})
    assert [get("it-a", "free", url) != "000" for url in urls] == [True] * 3
    pod("it-a", "bound", labels)
    eventually(lambda: [get("it-a", "bound", url) != "000" for url in urls] == [True, False, False])


MONITORS = ("podmonitors", "servicemonitors")


def definition(plural: str) -> Dict[str, Any]:
    """A CRD that takes anything, of the operator's name."""
    kind = {"podmonitors": "PodMonitor", "servicemonitors": "ServiceMonitor"}[plural]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": plural + ".monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


@pytest.fixture
def operator() -> Iterator[None]:
    yield
    for plural in MONITORS:
        api.kubectl("delete", "crd", plural + ".monitoring.coreos.com", "--ignore-not-found")


def monitors() -> List[Optional[str]]:
    return [api.kubectl("get", plural, "-n", "it-a", "-o", "name").strip() for plural in MONITORS]


@pytest.mark.usefixtures("operator")
def test_monitors_come_change_and_go(fleet: test_cluster_pods.Fleet) -> None:
    fleet.register()
    # No such kind: it is told, and everything else is there.
    told = serve(fleet, monitor="pod")
    quiet: Dict[str, Any] = {"wait": False}
    assert "does not know that kind" in json.dumps(told["warnings"])
    assert api.get("service", "tiny", "it-a")
    assert not serve(fleet, **quiet)["changed"]

    for plural in MONITORS:
        api.kubectl("apply", "-f", "-", stdin=json.dumps(definition(plural)))
        api.kubectl("wait", "crd", plural + ".monitoring.coreos.com", "--for=condition=Established")
    made = serve(fleet, monitor="pod", **quiet)
    assert made.changes == [
        "update NetworkPolicy it-a/tiny-relay",
        "create PodMonitor it-a/tiny-relay",
    ]
    assert "warnings" not in made
    found = api.get("podmonitor", "tiny-relay", "it-a") or {}
    paths = [item["path"] for item in found["spec"]["podMetricsEndpoints"]]
    assert paths == ["/metrics/relay", "/metrics/gpu1"]
    again = serve(fleet, monitor="pod", **quiet)
    assert not again["changed"]
    assert again["requests"] == {"GET": 8}

    other = serve(fleet, monitor="service", **quiet)
    assert other.changes == [
        "remove PodMonitor it-a/tiny-relay",
        "update NetworkPolicy it-a/tiny-relay",
        "create ServiceMonitor it-a/tiny-relay",
    ]
    assert monitors() == ["", "servicemonitor.monitoring.coreos.com/tiny-relay"]

    none = serve(fleet, **quiet)
    assert none.changes == [
        "remove ServiceMonitor it-a/tiny-relay",
        "update NetworkPolicy it-a/tiny-relay",
    ]
    assert monitors() == ["", ""]
    last = serve(fleet, **quiet)
    assert (last["changed"], last["requests"]) == (False, {"GET": 7})

    # Somebody else's of that name is left alone, and told.
    foreign = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {"name": "tiny-relay", "namespace": "it-a"},
        "spec": {"by": "hand"},
    }
    api.apply(foreign)
    told = fleet.relay(["gpu1"], monitor="pod", **quiet)
    assert not told.failed
    assert "PodMonitor it-a/tiny-relay" in json.dumps(told["warnings"])
    assert (api.get("podmonitor", "tiny-relay", "it-a") or {})["spec"] == {"by": "hand"}
    api.kubectl("delete", "podmonitor", "tiny-relay", "-n", "it-a")

    # A model that leaves takes its monitor with it.
    assert not fleet.relay(["gpu1"], monitor="pod", **quiet).failed
    gone = fleet.relay([], models=[], prune=True, **quiet)
    assert not gone.failed
    assert gone.changes[0] == "remove PodMonitor it-a/tiny-relay"
    assert monitors() == ["", ""]


def test_metrics_through_the_service(fleet: test_cluster_pods.Fleet) -> None:
    fleet.register()
    serve(fleet, model={"hosts": ["gpu1", "gpu2"]})
    path = "/api/v1/namespaces/it-a/services/http:tiny:metrics/proxy/metrics"
    own = prometheus_text.parse(api.kubectl("get", "--raw", path + "/relay"))
    healthy = [item for item in own if item.name == "envoy_cluster_membership_healthy"]
    assert {item.labels["envoy_cluster_name"]: item.value for item in healthy}["hosts"] == 2
    assert prometheus_text.parse(api.kubectl("get", "--raw", path)) == []
