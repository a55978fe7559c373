# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which Services are handed over, and what is written then, without a cluster."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any, Dict, List

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    appliers,
    fixed,
    former,
    handover,
    labels,
    objects,
    relay,
    strays,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from test_relay_plan import desired, observed, summaries

MODEL = objects.Model("tiny", "team-a", adopt=True)
KEY = ("Service", "team-a", "tiny")
RELAYS = labels.pod_selector("demo", "tiny")


def service(**more: Any) -> Dict[str, Any]:
    meta = {
        "name": "tiny",
        "namespace": "team-a",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"team": "a", labels.MANAGED_BY: "hand"},
        **more.pop("metadata", {}),
    }
    port = {"name": "api", "port": 80, "protocol": "TCP", "targetPort": 8000, "nodePort": 30080}
    spec = {
        "clusterIP": "10.0.0.9",
        "type": "NodePort",
        "selector": {"app": "web"},
        "ports": [port],
    }
    spec.update(more)
    return {"kind": "Service", "apiVersion": "v1", "metadata": meta, "spec": spec}


def handed_over() -> Dict[str, Any]:
    step = handover.adopt(service(), MODEL, "demo")
    assert step is not None
    merged: Dict[str, Any] = handover._merged(service(), step.data["patch"])
    return merged


def texts(item: Dict[str, Any], model: objects.Model = MODEL) -> str:
    return " ".join(str(refusal) for refusal in handover.judge(item, model, "demo"))


def test_one_request_changes_the_selector_and_nothing_of_its_owners() -> None:
    step = handover.adopt(service(), MODEL, "demo")
    assert step is not None
    patch = step.data["patch"]
    assert patch["metadata"]["uid"] == "u"
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch["spec"]["selector"] == {"app": None, **RELAYS}
    after = handed_over()
    assert after["spec"]["selector"] == RELAYS
    assert after["spec"]["ports"] == [{**service()["spec"]["ports"][0], "targetPort": "http"}]
    assert after["metadata"]["labels"] == {
        "team": "a",
        labels.MANAGED_BY: "hand",
        labels.FLEET: "demo",
        labels.MODEL: "tiny",
    }
    assert former.read(after) == former.Former({"app": "web"}, {"80/TCP": 8000})
    assert step.data["event"][0] == "ServiceAdopted"
    assert "app: web" in str(step.before) and "app: web" not in str(step.after).split("spec:")[1]
    assert handover.adopt(after, MODEL, "demo") is None
    assert texts(after) == ""


def test_a_release_restores_it() -> None:
    step = handover.release(handed_over(), "team-a/tiny", "demo")
    assert step.data["event"][0] == "ServiceReleased"
    after = handover._merged(handed_over(), step.data["patch"])
    assert after["spec"] == service()["spec"]
    assert after["metadata"]["labels"] == service()["metadata"]["labels"]
    assert not former.is_adopted(after)


def test_drift_is_mended_without_another_event_and_the_former_selector_stays() -> None:
    drifted = handed_over()
    drifted["spec"]["selector"] = {"app": "web", **RELAYS}
    step = handover.adopt(drifted, MODEL, "demo")
    assert step is not None
    assert step.data["event"] is None
    merged = handover._merged(drifted, step.data["patch"])
    assert merged["spec"]["selector"] == RELAYS
    assert former.read(merged) == former.read(handed_over())


def test_what_is_not_handed_over_yet_is_one_step_more_for_a_check() -> None:
    entry = {"name": "tiny", "namespace": "team-a", "hosts": ["gpu1"], "adopt": True}
    seen = observed(foreign={KEY: service()}, services={KEY: service()})
    kinds = ["NetworkPolicy", "ConfigMap", "Secret", "PodDisruptionBudget", "Deployment"]
    made = ["create %s" % kind for kind in kinds]
    models = [entry]
    assert summaries(relay.plan(desired(models=models), seen)) == [*made, "adopt Service"]
    first = relay.plan(desired(models=models, hand_over=()), seen)
    assert summaries(first) == made
    assert first.facts["verdicts"]["team-a/tiny"].transfer
    second = relay.plan(desired(models=models, hand_over={"team-a/tiny"}), seen)
    assert summaries(second)[-1] == "adopt Service"
    # Without the word of the inventory it is somebody else's, as ever.
    plan = relay.plan(desired(), seen)
    assert summaries(plan) == ["create Event", "create ConfigMap"]
    assert "adopt: true" in plan.facts["verdicts"]["team-a/tiny"].reason


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_a_service_monitor_finds_nothing_of_it(done: bool, kind: str) -> None:
    entry = {"name": "tiny", "namespace": "team-a", "hosts": ["gpu1"], "adopt": True}
    wanted = desired(models=[entry], monitor=kind[: -len("Monitor")].lower())
    key = ("Service", "team-a", "tiny")
    if done:
        seen = observed(handed_over(), monitor=kind)
    else:
        seen = observed(foreign={key: service()}, services={key: service()}, monitor=kind)
    plan = relay.plan(wanted, seen)
    assert "create %s" % kind in summaries(plan)
    told = plan.facts["told"]
    assert len(told) == (kind == "ServiceMonitor")
    assert all("relay_monitor: pod" in text for text in told)


def test_a_service_taken_out_of_the_inventory_is_released_not_removed() -> None:
    plan = relay.plan(desired(models=[], prune=True), observed(handed_over()))
    assert summaries(plan) == ["release Service"]
    broken = handed_over()
    broken["metadata"]["annotations"][labels.ADOPTED] = "x"
    plan = relay.plan(desired(models=[], prune=True), observed(broken))
    assert plan.steps == []
    assert "no JSON of schema 1" in plan.facts["not_released"]["team-a/tiny"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"type": "ExternalName", "externalName": "x", "selector": None}, "an alias of x"),
        ({"clusterIP": "None"}, "a headless Service"),
        ({"selector": None}, "no selector"),
        ({"metadata": {"deletionTimestamp": "now"}}, "it is being deleted"),
        ({"selector": RELAYS}, "without the annotation"),
        ({"selector": {labels.COMPONENT: "relay"}}, "selects relay pods too"),
        ({"ports": [{"port": 80, "protocol": "UDP"}]}, "found the ports 80/UDP; expected 80/TCP"),
        ({"ports": [{"port": 80}, {"port": 9}]}, "the ports 9/TCP, at which relays"),
        ({"metadata": {"labels": {labels.MANAGED_BY: labels.MANAGER}}}, "another fleet made it"),
    ],
)
def test_refused(change: Dict[str, Any], text: str) -> None:
    assert text in texts(service(**change))


def written_by(manager: str, operation: str = "Update", **more: Any) -> Dict[str, Any]:
    fields = {"f:spec": {"f:selector": {}}}
    entry = {"manager": manager, "operation": operation, "fieldsV1": fields, **more}
    return service(metadata={"managedFields": [entry]})


@pytest.mark.parametrize(
    ("item", "names"),
    [
        (written_by("kubectl-create"), []),
        (written_by("kubectl-client-side-apply"), []),
        (written_by(labels.MANAGER, "Apply"), []),
        (written_by("kubectl", "Apply"), ["kubectl"]),
        (written_by("argocd-controller"), ["argocd"]),
        (written_by("argocd-application-controller", "Apply"), ["argocd"]),
        (written_by("helm"), ["helm"]),
        (written_by("helm-controller", "Apply"), ["flux"]),
        (written_by("kustomize-controller", "Apply"), ["flux"]),
        (written_by("Terraform"), ["terraform"]),
        (written_by("operator", "Apply", fieldsV1={"f:metadata": {}}), []),
        (written_by("operator", "Apply", subresource="status"), []),
        (
            service(
                metadata={
                    "annotations": {"meta.helm.sh/release-name": "r"},
                    "labels": {"helm.toolkit.fluxcd.io/name": "h"},
                    "ownerReferences": [
                        {"kind": "App", "name": "x", "controller": True},
                        {"kind": "Other", "name": "y"},
                    ],
                }
            ),
            ["App", "flux", "helm"],
        ),
    ],
)
def test_who_keeps_a_selector(item: Dict[str, Any], names: List[str]) -> None:
    assert sorted(appliers.of_selector(item)) == names
    for name in names:
        assert "then list %s in the model's adopt_from" % name in texts(item)
    told = objects.Model("tiny", "team-a", adopt=True, adopt_from=tuple(names))
    assert texts(item, told) == ""


def test_who_took_a_handed_over_selector_back_is_named() -> None:
    item = handed_over()
    item["metadata"]["managedFields"] = written_by("argocd-controller")["metadata"]["managedFields"]
    assert texts(item) == ""  # of the time before
    item["spec"]["selector"] = {"app": "web"}
    assert "argocd keeps its selector" in texts(item)


SOUND = {"schema": 1, "selector": {"app": "web"}, "targetPorts": {"80/TCP": 8000}}


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"selector": {}},
        {"selector": {"app": "a b"}},
        {"selector": {"app": "%REQ(x)%"}},
        {"selector": {"{{ x }}": "a"}},
        {"selector": {"app": 1}},
        {"selector": ["app"]},
        {"selector": {"a%d" % number: "b" for number in range(65)}},
        {"targetPorts": {"80/TCP": 0}},
        {"targetPorts": {"80/TCP": True}},
        {"targetPorts": {"80/TCP": "UPPER"}},
        {"targetPorts": {"80": 80}},
        {"targetPorts": None},
    ],
)
def test_an_annotation_that_no_hand_over_wrote(change: Dict[str, Any]) -> None:
    item = service(metadata={"annotations": {labels.ADOPTED: json.dumps({**SOUND, **change})}})
    with pytest.raises(Refusal, match=r"no Service can have|schema 1"):
        former.read(item)


@pytest.mark.parametrize("text", ["", "[]", "null", "[" * 100000, "{"])
def test_an_annotation_that_is_no_object(text: str) -> None:
    item = service(metadata={"annotations": {labels.ADOPTED: text}})
    with pytest.raises(Refusal, match="schema 1"):
        former.read(item)


def test_slices_say_what_to_remove() -> None:
    meta = {"name": "s", "namespace": "team-a", "labels": {"kubernetes.io/service-name": "tiny"}}
    assert "kubectl delete endpointslice s -n team-a" in strays.reason({"metadata": meta}, "x")
    meta["labels"]["endpointslice.kubernetes.io/managed-by"] = (
        "endpointslicemirroring-controller.k8s.io"
    )
    assert "kubectl delete endpoints tiny -n team-a" in strays.reason({"metadata": meta}, "x")


def test_thousands_of_slices_are_three_things_to_tell() -> None:
    marks = {"kubernetes.io/service-name": "tiny"}
    found = [
        {
            "kind": "EndpointSlice",
            "metadata": {"name": "s%04d" % number, "namespace": "team-a", "labels": marks},
        }
        for number in range(3000)
    ]
    plan = relay.plan(desired(), {**observed(), "strays": {("team-a", "tiny"): found}})
    told = [step.name for step in plan.steps if step.kind == "Event"]
    assert told == [
        "OwnershipRefused on EndpointSlice team-a/s%04d" % number for number in range(3)
    ]
    assert plan.facts["verdicts"]["team-a/tiny"].state == "refused"


def test_an_annotation_makes_no_service_of_the_fleet_somebody_elses() -> None:
    """Else a tenant could have it given back to a selector of its choice, or keep its relays."""
    made = [step.data["object"] for step in relay.plan(desired(), observed()).steps]
    (ours,) = [item for item in made if item["kind"] == "Service"]
    ours["metadata"]["annotations"] = {labels.ADOPTED: json.dumps(SOUND)}
    assert not former.is_adopted(ours)
    gone = relay.plan(desired(models=[], prune=True), observed(*made))
    assert "remove Service" in summaries(gone)
    assert gone.facts["not_released"] == {}


def test_what_no_change_mends() -> None:
    made = [step.data["object"] for step in relay.plan(desired(), observed()).steps]
    found = [fixed.beyond_change(item, "demo", "tiny") for item in made]
    assert not any(found)
    deployment = next(item for item in made if item["kind"] == "Deployment")
    deployment["spec"]["selector"] = {"matchLabels": {"a": "b"}}
    assert "another selector (a=b)" in str(fixed.beyond_change(deployment, "demo", "tiny")[0])
    headless = service(clusterIP="None")
    assert "kubectl delete service tiny" in str(fixed.beyond_change(headless, "demo", "tiny")[0])
