# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Services that are not handed over, or not given back, and why: against a real API server.

No pod has to run; ``test_cluster_handover.py`` has those that do.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any, Dict, Optional, Tuple

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cluster_api as api
from test_cluster_modules import created, model, namespace, prepare, record, relay

pytestmark = [api.NEEDS_CLUSTER, pytest.mark.usefixtures("world")]


def service(
    spec: Optional[Dict[str, Any]] = None, name: str = "tiny", **metadata: Any
) -> Dict[str, Any]:
    usual = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "it-a", **metadata},
        "spec": usual if spec is None else spec,
    }


def endpoint_slice(**marks: str) -> Dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "tiny-old",
            "namespace": "it-a",
            "labels": {"kubernetes.io/service-name": "tiny", **marks},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.7"]}],
        "ports": [{"port": 8000}],
    }


def live() -> Dict[str, Any]:
    return api.get("service", "tiny", "it-a") or {}


def selector() -> Dict[str, str]:
    found: Dict[str, str] = live()["spec"].get("selector") or {}
    return found


# Name of a Service -> (its spec, None for the usual one; its metadata; its manager; what is said)
UNFIT: Dict[str, Tuple[Optional[Dict[str, Any]], Dict[str, Any], str, Tuple[str, ...]]] = {
    "alias": (
        {"type": "ExternalName", "externalName": "llm.example.org"},
        {},
        "somebody",
        ("found type ExternalName, an alias of llm.example.org", "rename the model"),
    ),
    "headless": (
        {"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 80}]},
        {},
        "somebody",
        ("found a headless Service", "Rename the model"),
    ),
    "by-hand": (
        {"ports": [{"port": 80}]},
        {},
        "somebody",
        ("found no selector, so that somebody writes its endpoints", "rename the model"),
    ),
    "other-port": (
        {"selector": {"app": "web"}, "ports": [{"port": 8000}]},
        {},
        "somebody",
        ("found the ports 8000/TCP; expected 80/TCP", "Set the model's port"),
    ),
    "more-ports": (
        {
            "selector": {"app": "web"},
            "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 99}],
        },
        {},
        "somebody",
        ("found the ports 99/TCP, at which relays do not listen", "another Service"),
    ),
    "selects-relays": (
        {
            "selector": {"app.kubernetes.io/component": "relay"},
            "ports": [{"port": 80, "protocol": "UDP"}],
        },
        {},
        "somebody",
        # Everything at once.
        (
            "its former selector (app.kubernetes.io/component=relay) selects relay pods too",
            "found the ports 80/UDP; expected 80/TCP",
        ),
    ),
    "argo": (
        None,
        {},
        "argocd-controller",
        ("argocd keeps its selector", "RespectIgnoreDifferences", "list argocd in"),
    ),
    "argo-mark": (
        None,
        {"annotations": {"argocd.argoproj.io/tracking-id": "web:/Service:x"}},
        "somebody",
        ("argocd keeps its selector", "tracking-id=web:/Service:x"),
    ),
    "helm": (None, {}, "helm", ("helm keeps its selector", "helm.sh/resource-policy")),
    "flux": (
        None,
        {"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}},
        "somebody",
        ("flux keeps its selector", "kustomize.toolkit.fluxcd.io/reconcile"),
    ),
    "another-fleet": (
        None,
        {"labels": {"app.kubernetes.io/managed-by": "tether.fleet", "tether.fleet/fleet": "x"}},
        "somebody",
        ("another fleet made it (x)",),
    ),
}


def everything() -> Dict[str, Any]:
    """All Services of the namespace."""
    items = json.loads(api.kubectl("get", "services", "-n", "it-a", "-o", "json"))["items"]
    return {item["metadata"]["name"]: item for item in items}


def record_of(*names: str) -> Dict[str, Any]:
    """A host's record with engines of these models."""
    engines = [
        {"namespace": "it-a", "model": name, "engine": "llama_server", "version": "1"}
        for name in names
    ]
    return record(engines=engines)


def test_services_that_cannot_be_handed_over() -> None:
    """Each is refused with its own words, stays as it is, is told of once; others go on."""
    prepare(record_of("big", *UNFIT))
    api.apply(namespace("it-a"))
    for name, (spec, metadata, manager, _texts) in UNFIT.items():
        api.apply(service(spec, name, **metadata), manager=manager)
    before = everything()
    models = [model("big"), *(model(name, adopt=True) for name in UNFIT)]
    predicted = relay(*models, check=True)
    made = relay(*models)
    assert made.changes == predicted.changes
    events = ["create Event OwnershipRefused on Service it-a/%s" % name for name in sorted(UNFIT)]
    assert made.changes == [*events, "create ConfigMap it-fleet/state", *created("big")]
    for name, (_spec, _metadata, _manager, texts) in UNFIT.items():
        verdict = made["models"]["it-a/" + name]
        assert verdict["state"] == "refused"
        for text in texts:
            assert text in verdict["reason"]
    after = everything()
    del after["big"]
    assert after == before
    assert relay(*models).writes == 0


def test_a_selector_that_is_applied_and_one_that_an_operator_keeps() -> None:
    prepare()
    api.apply(namespace("it-a"))
    text = json.dumps(service())
    apply = ("apply", "--server-side", "--field-manager", "gitops", "-f", "-")
    api.kubectl(*apply, stdin=text)
    told = relay(model(adopt=True))["models"]["it-a/tiny"]
    assert "gitops keeps its selector: gitops wrote its selector (Apply)" in told["reason"]
    assert "then list gitops in the model's adopt_from" in told["reason"]
    # One that has been told is none; another one still is.
    name = "kube-root-ca.crt"  # one that is always there: a Service without its owner is removed
    uid = (api.get("configmap", name, "it-a") or {})["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}
    patch = {"metadata": {"ownerReferences": [{**owner, "controller": True}]}}
    api.kubectl("patch", "service", "tiny", "-n", "it-a", "--type=merge", "-p", json.dumps(patch))
    told = relay(model(adopt=True, adopt_from=["gitops"]))["models"]["it-a/tiny"]
    assert told["state"] == "refused"
    assert "ConfigMap keeps its selector: it is controlled by ConfigMap kube-root" in told["reason"]
    assert "gitops" not in told["reason"]
    last = relay(model(adopt=True, adopt_from=["gitops", "ConfigMap"]))
    assert last["models"]["it-a/tiny"]["state"] == "waiting"
    assert last.changes == ["update ConfigMap it-fleet/state", *created()[:-1]]
    assert selector() == {"app": "web"}


@pytest.mark.parametrize("exists", [True, False], ids=["handed over", "made"])
def test_slices_that_would_send_requests_elsewhere(exists: bool) -> None:
    prepare()
    stray = endpoint_slice(**{"endpointslice.kubernetes.io/managed-by": "hand"})
    api.apply(namespace("it-a"), stray, *([service()] if exists else []))
    predicted = relay(model(adopt=exists), check=True)
    made = relay(model(adopt=exists))
    assert made.changes == predicted.changes
    assert made.changes == [
        "create Event OwnershipRefused on EndpointSlice it-a/tiny-old",
        "create ConfigMap it-fleet/state",
    ]
    assert "EndpointSlice it-a/tiny-old exists" in made["msg"]
    assert "written by somebody" in made["msg"]
    assert "kubectl delete endpointslice tiny-old -n it-a" in made["msg"]
    assert relay(model(adopt=exists)).writes == 0
    api.kubectl("delete", "endpointslice", "tiny-old", "-n", "it-a")
    assert created()[0] in relay(model(adopt=exists)).changes


def test_a_check_predicts_the_hand_over_from_nothing() -> None:
    prepare()
    api.apply(namespace("it-a"), service())
    predicted = relay(model(adopt=True), model("big"), check=True)
    assert predicted["models"]["it-a/tiny"]["state"] == "planned"
    assert predicted.changes == [*created("big"), *created()[:-1], "adopt Service it-a/tiny"]
    assert "app: web" in json.dumps(predicted["diff"][-1]["before"])
    # Relays that never get ready do not get it, now or later.
    made = relay(model(adopt=True), model("big"))
    assert made.changes == predicted.changes[:-1]
    assert relay(model(adopt=True), model("big")).writes == 0
    assert selector() == {"app": "web"}
    # What is not handed over is not given back either: the relays alone go.
    gone = relay(model("big"), prune=True)
    assert len(gone.changes) == 5
    assert not [change for change in gone.changes if " Service " in change]
    assert selector() == {"app": "web"}


def adopted(former: str, name: str = "tiny") -> Dict[str, Any]:
    """A Service as a hand-over leaves it, its annotation perhaps in other hands since."""
    fleet = "it%d" % api._serial[0]
    relays = {
        "tether.fleet/fleet": fleet,
        "tether.fleet/model": name,
        "app.kubernetes.io/component": "relay",
    }
    return service(
        {"selector": relays, "ports": [{"port": 80, "targetPort": "http"}]},
        name,
        labels={"tether.fleet/fleet": fleet, "tether.fleet/model": name, "team": "a"},
        annotations={"tether.fleet/adopted": former},
    )


SOUND = '{"schema": 1, "selector": {"app": "web"}, "targetPorts": {"80/TCP": 8000}}'


TAMPERED = (
    "",
    "[]",
    "[" * 5000,
    '{"schema": 2}',
    SOUND.replace('{"app": "web"}', "{}"),
    SOUND.replace('"web"', '"{{ lookup(1) }}"'),
    SOUND.replace('"app"', '"%REQ(x)%"'),
    SOUND.replace('"web"', "7"),
    SOUND.replace("8000", "true"),
    SOUND.replace("8000", "65536"),
    SOUND.replace("8000", '"no name of a port"'),
    SOUND.replace("80/TCP", "80"),
    SOUND.replace('"app": "web"', '"app.kubernetes.io/component": "relay"'),
)


def test_a_former_selector_in_other_hands() -> None:
    """Nothing of it reaches the cluster: not given back, not handed over again, told each time."""
    names = ["m%d" % number for number in range(len(TAMPERED))]
    prepare(record_of("big", *names))
    items = [adopted(text, name) for name, text in zip(names, TAMPERED, strict=True)]
    api.apply(namespace("it-a"), *items)
    before = everything()
    held = relay(model("big"), prune=True)
    keys = sorted("it-a/" + name for name in names)
    assert sorted(held["not_released"]) == held["orphans"] == keys
    assert json.dumps(held["warnings"]).count("tether.fleet/adopted") >= len(names)
    for adopt in (True, False):
        told = relay(*(model(name, adopt=adopt) for name in names))
        assert {told["models"][key]["state"] for key in keys} == {"refused"}
    after = everything()
    del after["big"]
    assert after == before


def test_a_release_finds_what_others_did_meanwhile() -> None:
    prepare()
    api.apply(namespace("it-a"), adopted(SOUND))
    # Its labels are its owner's to change; a Service is given back, not removed, whatever they say.
    api.kubectl(
        *("label", "service", "tiny", "-n", "it-a", "--overwrite", "tether.fleet/model=zzz"),
        "app.kubernetes.io/managed-by=tether.fleet",
    )
    held = relay(model("big"))
    assert held["orphans"] == ["it-a/tiny"]
    # Its owner has taken it back already: then only what is ours goes.
    api.kubectl(
        *("patch", "service", "tiny", "-n", "it-a", "--type=json", "-p"),
        '[{"op": "replace", "path": "/spec/selector", "value": {"app": "new"}}]',
    )
    predicted = relay(model("big"), prune=True, check=True)
    gone = relay(model("big"), prune=True)
    assert gone.changes == predicted.changes == ["release Service it-a/tiny"]
    assert selector() == {"app": "new"}
    meta = live()["metadata"]
    assert meta["labels"] == {"team": "a", "app.kubernetes.io/managed-by": "tether.fleet"}
    assert "tether.fleet/adopted" not in meta.get("annotations", {})
    assert relay(model("big"), prune=True).changes == []


def test_a_service_that_only_looks_adopted_is_foreign() -> None:
    prepare()
    item = adopted(SOUND)
    del item["metadata"]["annotations"]
    api.apply(namespace("it-a"), item)
    result = relay(model("big"), prune=True)
    assert result["orphans"] == []
    assert selector() == item["spec"]["selector"]
    told = relay(model(adopt=True))["models"]["it-a/tiny"]["reason"]
    assert "it selects the relays without the annotation tether.fleet/adopted" in told
