# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plans of the relay module from observed states, without a cluster."""

from __future__ import annotations

import base64
import datetime
import json
import pathlib
import sys
from typing import Any, Dict, List

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    labels,
    registration,
    relay,
    state,
    tokens,
    writer,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "integration"))
from cluster_ingress import Authority

CA = Authority()
LEAF = CA.leaf("10.0.0.1")
TOKEN = tokens.new_token()


def record(**more: Any) -> Dict[str, Any]:
    return {
        "schema": 1,
        "host": "gpu1",
        "address": "10.0.0.1",
        "port": 9443,
        "certificates": [LEAF.pem],
        "ingress": {"version": "2"},
        "engines": [{"namespace": "team-a", "model": "tiny", "engine": "e"}],
        **more,
    }


def desired(**more: Any) -> Dict[str, Any]:
    entries = more.pop("models", [{"name": "tiny", "namespace": "team-a", "hosts": ["gpu1"]}])
    return {
        "fleet": "demo",
        "fleet_namespace": "f",
        "image": "e@sha256:" + "a" * 64,
        "ca": CA.pem,
        "models": relay.read_models(entries),
        "hosts": {"gpu1": {"address": "10.0.0.1", "port": 9443}},
        "predicted": {},
        "create_namespaces": True,
        "prune": False,
        "check_mode": False,
        **more,
    }


def observed(*items: Dict[str, Any], **more: Any) -> Dict[str, Any]:
    known = [
        registration.record_object(record(), "demo", "f"),
        tokens.token_object("team-a", TOKEN, "demo", "f"),
        *items,
    ]
    ours = {}
    for item in known:
        item["metadata"].setdefault("uid", "u")
        ours[(item["kind"], item["metadata"]["namespace"], item["metadata"]["name"])] = item
    return {
        "ours": ours,
        "foreign": {},
        "namespaces": {"team-a", "f"},
        "ending": {},
        "now": datetime.datetime.now(datetime.UTC),
        **more,
    }


def summaries(plan: Any) -> List[str]:
    return ["%s %s" % (step.action, step.kind) for step in plan.steps]


def test_applied_plan_leaves_an_empty_one() -> None:
    first = relay.plan(desired(), observed())
    assert len(first.steps) == 6
    made = [step.data["object"] for step in first.steps]
    assert relay.plan(desired(), observed(*made)).steps == []


def test_no_step_shows_the_token() -> None:
    for step in relay.plan(desired(), observed()).steps:
        assert TOKEN not in json.dumps(step.diff())
        assert TOKEN not in json.dumps(step.summary())


def test_token_is_only_predicted_in_check_mode() -> None:
    seen = observed()
    del seen["ours"][("Secret", "f", "token-team-a")]
    assert len(relay.plan(desired(check_mode=True), seen).steps) == 6
    plan = relay.plan(desired(), seen)
    assert plan.steps == []
    assert "tether.fleet.token" in plan.facts["verdicts"]["team-a/tiny"].reason


def test_predicted_records_stand_for_those_in_the_cluster() -> None:
    seen = observed()
    del seen["ours"][("ConfigMap", "f", "host-gpu1")]
    assert relay.plan(desired(), seen).steps == []
    predicted = {"gpu1": record(certificates=[])}
    assert len(relay.plan(desired(predicted=predicted, check_mode=True), seen).steps) == 6


def test_a_prediction_that_equals_the_record_is_judged_like_it() -> None:
    other = record(certificates=[Authority().leaf("10.0.0.1").pem])
    live = registration.record_object(other, "demo", "f")
    plan = relay.plan(desired(predicted={"gpu1": other}, check_mode=True), observed(live))
    assert "not signed by the fleet's CA" in plan.facts["verdicts"]["team-a/tiny"].hosts["gpu1"]


def foreign(kind: str = "Service", name: str = "tiny") -> Dict[str, Any]:
    return {
        "kind": kind,
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": "theirs",
            "managedFields": [{"manager": "kubectl"}, {"manager": "kube-controller-manager"}],
        },
    }


def test_a_finding_is_said_once_and_again_when_it_changes() -> None:
    key = ("Service", "team-a", "tiny")
    seen = observed(foreign={key: foreign()})
    plan = relay.plan(desired(), seen)
    assert summaries(plan) == ["create Event", "create ConfigMap"]
    remembered = plan.steps[1].data["object"]
    assert summaries(relay.plan(desired(), observed(remembered, foreign={key: foreign()}))) == []
    other = foreign()
    other["metadata"]["ownerReferences"] = [{"kind": "Foo", "name": "bar"}]
    plan = relay.plan(desired(), observed(remembered, foreign={key: other}))
    assert summaries(plan) == ["create Event", "update ConfigMap"]
    assert "owned by Foo bar; written by kubectl" in plan.facts["verdicts"]["team-a/tiny"].reason
    plan = relay.plan(desired(), observed(remembered))
    assert "update ConfigMap" in summaries(plan)
    assert state.refused(plan.steps[0].data["object"]) == {}


def test_unreadable_state_counts_as_empty() -> None:
    for text in ("", "[]", "{", '{"refused": 3}', "null"):
        assert state.refused({"data": {"state.json": text}}) == {}
    assert state.refused(None) == {}


def test_one_model_does_not_stop_another() -> None:
    models = [
        {"name": "tiny", "namespace": "team-a", "hosts": ["gpu1"]},
        {"name": "other", "namespace": "team-a", "hosts": ["gpu9"]},
    ]
    plan = relay.plan(desired(models=models), observed())
    assert len(plan.steps) == 6
    assert plan.facts["verdicts"]["team-a/other"].state == "refused"
    assert plan.facts["verdicts"]["team-a/tiny"].state == "served"


def test_records_of_a_broken_form_refuse_their_host_alone() -> None:
    broken = registration.record_object(record(host="gpu2"), "demo", "f")
    broken["data"]["record.json"] = "{"
    models = [{"name": "tiny", "namespace": "team-a", "hosts": ["gpu1", "gpu2"]}]
    plan = relay.plan(desired(models=models), observed(broken))
    verdict = plan.facts["verdicts"]["team-a/tiny"]
    assert verdict.hosts["gpu1"] == "accepted"
    assert "ConfigMap f/host-gpu2" in verdict.hosts["gpu2"]


def test_orphans() -> None:
    made = [step.data["object"] for step in relay.plan(desired(), observed()).steps]
    plan = relay.plan(desired(models=[]), observed(*made))
    assert plan.facts["orphans"] == ["team-a/tiny"]
    assert plan.steps == []
    plan = relay.plan(desired(models=[], prune=True), observed(*made))
    assert summaries(plan)[0] == "remove Service"
    assert summaries(plan)[-1] == "remove NetworkPolicy"
    assert len(plan.steps) == 6


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"name": "Tiny"}, "name is not"),
        ({"name": "1tiny"}, "name is not"),
        ({"name": "t" * 51}, "name is not"),
        ({"namespace": "a.b"}, "namespace is not"),
        ({"hosts": []}, "hosts is not"),
        ({"hosts": "gpu1"}, "hosts is not"),
        ({"port": 70000}, "port is not"),
        ({"replicas": True}, "replicas is not"),
        ({"port": 9464}, "port is that of its metrics"),
        ({"clients": []}, "clients is no list"),
        ({"metrics_clients": [{"cidr": "10.0.0.1/8"}]}, r"metrics_clients\[0\].cidr .* is no net"),
        ({"metrics_clients": [{"cidr": "10.0.0.0/8"}]}, "metrics_clients without clients"),
        ({"health_path": "/x y"}, "health_path is not"),
        ({"health_path": "/%2e"}, "health_path is not"),
    ],
)
def test_wrong_models(entry: Dict[str, Any], text: str) -> None:
    right = {"name": "tiny", "namespace": "team-a", "hosts": ["gpu1"]}
    with pytest.raises(Refusal, match=text):
        relay.read_models([{**right, **entry}])
    with pytest.raises(Refusal, match="given twice"):
        relay.read_models([right, right])


@pytest.mark.parametrize(
    "image", ["envoy", "envoy:1.40", "envoy@sha256:abc", "@sha256:" + "a" * 64]
)
def test_images_are_pinned(image: str) -> None:
    with pytest.raises(Refusal, match="no digest"):
        relay.check_image(image)
    relay.check_image("envoy:1.40@sha256:" + "a" * 64)


def test_labels() -> None:
    assert labels.fleet_selector("demo", "token") == (
        "app.kubernetes.io/managed-by=tether.fleet,tether.fleet/fleet=demo,"
        "tether.fleet/record=token"
    )


@pytest.mark.parametrize(
    ("planned", "fits"),
    [
        ({"address": "10.0.0.1", "port": 9443}, True),
        ({"address": "10.0.0.2", "port": 9443}, False),
        ({"address": "10.0.0.1", "port": 443}, False),
        (None, True),
    ],
)
def test_a_record_cannot_lead_elsewhere_than_the_inventory(planned: Any, fits: bool) -> None:
    """Another host's record, with its good certificate, under this host's name."""
    verdicts = relay.plan(desired(hosts={"gpu1": planned}), observed()).facts["verdicts"]
    verdict = verdicts["team-a/tiny"]
    assert (verdict.state == "served") is fits
    assert (verdict.hosts["gpu1"] == "accepted") is fits


def test_a_deeply_nested_record_refuses_its_host_alone() -> None:
    item = registration.record_object(record(), "demo", "f")
    item["data"][registration.KEY] = "[" * 200000
    with pytest.raises(Refusal, match="registration record"):
        registration.parse(item)
    assert state.refused({"data": {"state.json": "[" * 200000}}) == {}


def test_a_namespace_that_is_being_deleted_refuses_its_models_before_any_write() -> None:
    seen = observed(ending={"team-a": "2026-01-01T00:00:00Z"})
    plan = relay.plan(desired(), seen)
    verdict = plan.facts["verdicts"]["team-a/tiny"]
    assert (plan.steps, verdict.state) == ([], "refused")
    assert "it is being deleted, since 2026-01-01T00:00:00Z" in verdict.reason
    assert "kubectl get namespace team-a" in verdict.reason


def test_a_missing_namespace_is_told_before_what_its_hosts_lack() -> None:
    """A survey tells it before hosts are provisioned, when there are no records yet."""
    models = [{"name": "tiny", "namespace": "team-a", "hosts": ["gpu9"]}]
    wanted = desired(models=models, create_namespaces=False)
    found = relay.plan(wanted, observed(namespaces={"f"}))
    verdict = found.facts["verdicts"]["team-a/tiny"]
    assert (verdict.state, verdict.blocked) == ("refused", True)
    assert verdict.reason.startswith("namespace team-a does not exist.")
    # What a host's registration mends does not block.
    verdict = relay.plan(wanted, observed()).facts["verdicts"]["team-a/tiny"]
    assert (verdict.state, verdict.blocked) == ("refused", False)


def test_the_step_of_a_new_namespace_knows_whom_it_is_for() -> None:
    models = [
        {"name": name, "namespace": "team-a", "hosts": ["gpu1"]} for name in ("tiny", "small")
    ]
    both = record(
        engines=[
            {"namespace": "team-a", "model": name, "engine": "e"} for name in ("tiny", "small")
        ]
    )
    seen = observed(registration.record_object(both, "demo", "f"), namespaces={"f"})
    first = relay.plan(desired(models=models), seen).steps[0]
    assert (first.kind, first.name) == ("Namespace", "team-a")
    assert writer.needed_by(first) == ["team-a/small", "team-a/tiny"]


def test_a_finding_that_nobody_was_told_of_is_not_remembered() -> None:
    findings = {
        "Service a/x": {"uid": "1", "owner": "o"},
        "Service a/y": {"uid": "2", "owner": "p"},
    }
    item = state.without(state.state_object(findings, "demo", "f"), ["Service a/x"])
    assert state.refused(item) == {"Service a/y": findings["Service a/y"]}
    assert item["metadata"] == state.state_object({}, "demo", "f")["metadata"]


def resting(host: str, since: str = "2026-01-01T00:00:00Z") -> Dict[str, Any]:
    """The record of a host that drains."""
    return registration.record_object(record(host=host), "demo", "f", since)


def endpoints(plan: Any) -> List[str]:
    """The hosts that the first model's relays send to."""
    made = [step.data["object"] for step in plan.steps if step.kind == "ConfigMap"]
    found = json.loads(made[0]["data"]["eds.json"])["resources"][0]["endpoints"][0]["lb_endpoints"]
    return [one["endpoint"]["hostname"] for one in found]


def test_a_host_that_drains_is_accepted_and_gets_nothing() -> None:
    models = [{"name": "tiny", "namespace": "team-a", "hosts": ["gpu1", "gpu2"]}]
    hosts = {name: {"address": "10.0.0.1", "port": 9443} for name in ("gpu1", "gpu2")}
    wanted = desired(models=models, hosts=hosts)
    before = relay.plan(
        wanted, observed(registration.record_object(record(host="gpu2"), "demo", "f"))
    )
    seen = observed(resting("gpu2"))
    plan = relay.plan(wanted, seen)
    verdict = plan.facts["verdicts"]["team-a/tiny"].result()
    assert verdict["hosts"] == {"gpu1": "accepted", "gpu2": "accepted"}
    assert verdict["draining"] == ["gpu2"]
    assert not relay.needs_attention(verdict)
    assert endpoints(before) == ["gpu1", "gpu2"]
    assert endpoints(plan) == ["gpu1"]
    assert relay.draining(wanted, seen) == {"gpu2": "2026-01-01T00:00:00Z"}
    # Its pins and its place in the policy stay; only scrapes do not reach it any more.
    made = [{one.kind: one.data["object"] for one in each.steps} for each in (before, plan)]
    assert made[0]["NetworkPolicy"] == made[1]["NetworkPolicy"]
    clusters = [
        {
            one["name"]: one
            for one in json.loads(base64.b64decode(each["Secret"]["data"]["cds.json"]))["resources"]
        }
        for each in made
    ]
    assert {name for name, one in clusters[0].items() if one != clusters[1][name]} == {
        "metrics-gpu2"
    }


def test_of_a_model_whose_hosts_all_drain_requests_wait() -> None:
    plan = relay.plan(desired(), observed(resting("gpu1")))
    assert endpoints(plan) == ["nobody"]
    verdict = plan.facts["verdicts"]["team-a/tiny"]
    assert (verdict.state, verdict.reason) == ("drained", "all of its hosts drain (gpu1)")
    assert not relay.needs_attention(verdict.result())


def test_a_cluster_without_monitors_is_told_of() -> None:
    plan = relay.plan(desired(monitor="pod"), observed(monitor=""))
    assert len(plan.steps) == 6
    assert "PodMonitor" in plan.facts["told"][0]
    assert relay.plan(desired(), observed(monitor="")).facts["told"] == []


@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_somebody_elses_monitor_costs_the_monitor_alone(kind: str) -> None:
    key = (kind, "team-a", "tiny-relay")
    other = {
        "kind": kind,
        "metadata": {
            "namespace": key[1],
            "name": key[2],
            "uid": "x",
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
        },
    }
    wanted = desired(monitor=kind[: -len("Monitor")].lower())
    plan = relay.plan(wanted, observed(foreign={key: other}, monitor=kind))
    verdict = plan.facts["verdicts"]["team-a/tiny"]
    assert verdict.state == "served"
    assert kind not in {step.kind for step in plan.steps}
    assert len(plan.steps) == 6
    (text,) = plan.facts["told"]
    assert text.startswith("%s team-a/tiny-relay exists and is not this fleet's (" % kind)
    assert "Helm" in text
    made = [step.data["object"] for step in plan.steps]
    again = relay.plan(wanted, observed(*made, foreign={key: other}, monitor=kind))
    assert again.steps == []
    # Once it is gone, the model has one of its own.
    after = relay.plan(wanted, observed(*made, monitor=kind))
    assert summaries(after) == ["update NetworkPolicy", "create %s" % kind]


def test_a_monitor_comes_last_and_goes_first() -> None:
    first = relay.plan(desired(monitor="pod"), observed(monitor="PodMonitor"))
    assert summaries(first)[0] == "create NetworkPolicy"
    assert summaries(first)[-1] == "create PodMonitor"
    made = [step.data["object"] for step in first.steps]
    assert relay.plan(desired(monitor="pod"), observed(*made, monitor="PodMonitor")).steps == []
    other = relay.plan(desired(monitor="service"), observed(*made, monitor="ServiceMonitor"))
    assert summaries(other) == [
        "remove PodMonitor",
        "update NetworkPolicy",
        "create ServiceMonitor",
    ]
    gone = relay.plan(desired(models=[], prune=True), observed(*made, monitor=""))
    assert summaries(gone)[0] == "remove PodMonitor"
    assert summaries(gone)[-1] == "remove NetworkPolicy"
