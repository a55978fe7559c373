# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plans of the relay module for services, without a cluster."""

from __future__ import annotations

import copy
import json
import pathlib
import sys
from typing import Any, Dict, List

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    envoy_data,
    labels,
    objects,
    registration,
    relay,
    service_objects,
    survey,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from test_relay_plan import desired, observed, record

INGRESS = {"host": "art.example.org", "tls_secret": "art-tls", "annotations": {"a/b": "c"}}


def entry(**more: Any) -> Dict[str, Any]:
    return {"name": "art", "namespace": "team-a", "hosts": ["gpu1"], "kind": "service", **more}


def direct(**more: Any) -> Dict[str, Any]:
    return entry(expose="direct", host_port=8188, port=8000, **more)


def offering(since: str = "", **more: Any) -> Dict[str, Any]:
    """The record of a host with the service; it is direct where a port is given."""
    told = {"expose": "direct" if "port" in more else "relay", **more}
    known = record(services=[{"namespace": "team-a", "name": "art", **told}])
    return registration.record_object(known, "demo", "f", since)


def offer(wanted: Dict[str, Any]) -> Dict[str, Any]:
    return offering(**({"port": 8188} if wanted.get("expose") == "direct" else {}))


def plan(wanted: Dict[str, Any], *items: Dict[str, Any], **more: Any) -> Any:
    return relay.plan(desired(models=[wanted], **more), observed(offer(wanted), *items))


def changes(made: Any) -> List[str]:
    return ["%s %s %s" % (one.action, one.kind, one.name) for one in made.steps]


def objects_of(made: Any) -> List[Dict[str, Any]]:
    return [copy.deepcopy(one.data["object"]) for one in made.steps if one.data["object"]]


def by_kind(made: Any, kind: str) -> Dict[str, Any]:
    (found,) = [item for item in objects_of(made) if item["kind"] == kind]
    return found


@pytest.mark.parametrize(
    "wanted", [entry(), direct(), entry(ingress=INGRESS), direct(ingress=INGRESS)]
)
def test_applied_plan_leaves_an_empty_one(wanted: Dict[str, Any]) -> None:
    first = plan(wanted)
    assert first.facts["verdicts"]["team-a/art"].state == "served"
    made = objects_of(first)
    keys = {
        (item["kind"], item["metadata"]["namespace"], item["metadata"]["name"]) for item in made
    }
    (model,) = desired(models=[wanted])["models"]
    assert keys == set(relay._keys(model, ""))
    assert plan(wanted, *made).steps == []


def test_a_direct_service_has_no_relays() -> None:
    made = plan(direct())
    assert changes(made) == [
        "create ConfigMap team-a/art-direct",
        "create EndpointSlice team-a/art-direct",
        "create Service team-a/art",
    ]
    service, slices = by_kind(made, "Service"), by_kind(made, "EndpointSlice")
    assert "selector" not in service["spec"]
    assert service["spec"]["ports"][0]["targetPort"] == slices["ports"][0]["port"] == 8188
    assert slices["endpoints"] == [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}]
    assert slices["metadata"]["labels"][labels.SLICE_SERVICE] == "art"
    assert by_kind(made, "ConfigMap")["data"] == {
        "address": "10.0.0.1:8188",
        "addresses": "10.0.0.1:8188",
    }
    assert made.facts["verdicts"]["team-a/art"].ready


def test_relays_of_a_service_let_in_its_clients() -> None:
    policy = by_kind(plan(entry(clients=[{"namespace": "team-b"}])), "NetworkPolicy")
    peers = [rule.get("from") for rule in policy["spec"]["ingress"]]
    team_b = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "team-b"}}}]
    assert peers == [team_b, team_b, None]


def test_a_direct_service_needs_no_token() -> None:
    seen = observed(offer(direct()))
    del seen["ours"][("Secret", "f", "token-team-a")]
    assert relay.plan(desired(models=[direct()]), seen).facts["verdicts"]["team-a/art"].ready


def test_a_direct_service_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's summary must not say that it answered."""
    there = objects_of(plan(direct()))
    seen = observed(offering(port=8188), *there)
    monkeypatch.setattr(relay, "observe", lambda _client, _desired: seen)
    wanted = desired(models=[direct()])
    options = dict(wanted, models=[direct()], ca_certificate=wanted["ca"], namespaces=[])
    options.update(host_wait=60, max_body=1 << 20, drain_timeout=60, probe_timeout=1)
    found = survey.survey(None, options)  # type: ignore[arg-type]
    assert (found["differs"], found["asked"]) == ("", [])
    assert found["models"]["team-a/art"]["state"] == "served"


def test_who_drains_leaves_the_slice() -> None:
    resting = offering("today", port=8188)
    made = relay.plan(desired(models=[direct()]), observed(resting))
    assert by_kind(made, "EndpointSlice")["endpoints"] == []
    assert by_kind(made, "ConfigMap")["data"] == {"address": "", "addresses": ""}
    assert made.facts["verdicts"]["team-a/art"].state == "drained"


def test_a_restart_does_not_take_a_host_out_of_the_slice() -> None:
    """It is one of the ingress or of engines, and a direct service is reached past both."""
    since = "2030-01-01T00:00:00Z for a restart"
    there = objects_of(plan(direct()))
    made = relay.plan(desired(models=[direct()]), observed(offering(since, port=8188), *there))
    verdict = made.facts["verdicts"]["team-a/art"]
    assert (made.steps, verdict.state, verdict.draining) == ([], "served", [])
    made = relay.plan(desired(models=[entry()]), observed(offering(since)))
    assert made.facts["verdicts"]["team-a/art"].draining == ["gpu1"]


def test_a_failed_switch_to_direct_leaves_relays_that_serve() -> None:
    there = objects_of(plan(entry()))
    made = relay.plan(desired(models=[direct()]), observed(*there))
    verdict = made.facts["verdicts"]["team-a/art"]
    assert (verdict.state, verdict.steps, made.steps) == ("refused", [], [])
    # Nor does one that is known only by its selector lose them.
    (service,) = [item for item in there if item["kind"] == "Service"]
    del service["metadata"]["labels"][labels.COMPONENT]
    assert relay.plan(desired(models=[direct()]), observed(*there)).steps == []


def test_a_slice_of_nobody_keeps_its_kind_of_address() -> None:
    there = objects_of(plan(direct()))
    (slices,) = [item for item in there if item["kind"] == "EndpointSlice"]
    slices["addressType"] = "IPv6"
    for seen in (observed(*there), observed(offering("today", port=8188), *there)):
        made = relay.plan(desired(models=[direct()]), seen)
        assert "update EndpointSlice team-a/art-direct" in changes(made)
        assert not any(text.startswith("remove") for text in changes(made))
        assert by_kind(made, "EndpointSlice")["addressType"] == "IPv6"


def test_a_record_speaks_for_the_service_as_it_is_declared() -> None:
    """What answered before a change of expose or of the port says nothing of what is now."""
    for wanted, told in (
        (direct(), offering()),
        (direct(), offering(port=8189)),
        (entry(), offering(port=8188)),
    ):
        made = relay.plan(desired(models=[wanted]), observed(told))
        assert "as it was declared before" in made.facts["verdicts"]["team-a/art"].reason
        assert made.steps == []


def test_who_does_not_answer_leaves_the_slice() -> None:
    there = objects_of(plan(direct()))
    made = relay.plan(desired(models=[direct()]), observed(*there))
    verdict = made.facts["verdicts"]["team-a/art"]
    assert verdict.state == "refused"
    assert "port 8188 did not answer as declared" in verdict.reason
    assert by_kind(made, "EndpointSlice")["endpoints"] == []
    # Nothing is made for a service that was never there.
    assert relay.plan(desired(models=[direct()]), observed()).steps == []


def test_a_relayed_service_that_no_record_lists() -> None:
    made = relay.plan(desired(models=[entry()]), observed())
    assert "lists no such service" in made.facts["verdicts"]["team-a/art"].reason


def test_an_engine_of_that_name_is_no_service() -> None:
    """A record's engines are what a model may be served by, its services what a service may."""
    wanted = entry(name="tiny")
    assert relay.plan(desired(models=[wanted]), observed()).steps == []


def test_from_relays_to_direct_and_back() -> None:
    relayed, straight = objects_of(plan(entry())), objects_of(plan(direct()))
    to_direct = changes(plan(direct(), *relayed))
    assert to_direct[:4] == [
        "create ConfigMap team-a/art-direct",
        "create EndpointSlice team-a/art-direct",
        # With it go the slices that Kubernetes made for its selector.
        "remove Service team-a/art",
        "create Service team-a/art",
    ]
    assert "remove Deployment team-a/art-relay" in to_direct
    back = changes(plan(entry(), *straight))
    assert back[-4:] == [
        "remove Service team-a/art",
        "create Service team-a/art",
        "remove EndpointSlice team-a/art-direct",
        "remove ConfigMap team-a/art-direct",
    ]


def test_a_relayed_service_whose_selector_was_taken_away_keeps_its_address() -> None:
    there = objects_of(plan(entry()))
    (service,) = [item for item in there if item["kind"] == "Service"]
    selector = service["spec"].pop("selector")
    made = plan(entry(), *there)
    assert changes(made) == ["update Service team-a/art"]
    assert by_kind(made, "Service")["spec"]["selector"] == selector
    # Nor does one lose it whose label was taken away.
    service["spec"]["selector"] = selector
    del service["metadata"]["labels"][labels.COMPONENT]
    assert changes(plan(entry(), *there)) == ["update Service team-a/art"]
    # Without both nothing says that it had relays.
    del service["spec"]["selector"]
    assert changes(plan(entry(), *there))[0] == "remove Service team-a/art"


def test_a_selector_that_somebody_gave_a_direct_service() -> None:
    there = objects_of(plan(direct()))
    there[-1]["spec"]["selector"] = {"app": "theirs"}
    assert changes(plan(direct(), *there)) == [
        "remove Service team-a/art",
        "create Service team-a/art",
    ]


def test_an_ingress_that_is_no_longer_wanted() -> None:
    there = objects_of(plan(entry(ingress=INGRESS)))
    for item in there:
        # As the API server notes what was applied: a label of ours that is not wanted any more.
        fields = {
            "f:metadata": {"f:labels": dict.fromkeys(map("f:".__add__, item["metadata"]["labels"]))}
        }
        entries = [{"manager": "tether.fleet", "operation": "Apply", "fieldsV1": fields}]
        item["metadata"]["managedFields"] = entries
    made = changes(plan(entry(), *there))
    # First, since a run that is killed in between is to be finished by the next.
    assert made == [
        "remove Ingress team-a/art",
        "update ConfigMap team-a/art-relay",
        "update Service team-a/art",
    ]


def test_the_ingress() -> None:
    item = by_kind(plan(entry(ingress=dict(INGRESS, **{"class": "nginx"}))), "Ingress")
    assert item["spec"] == {
        "ingressClassName": "nginx",
        "tls": [{"hosts": ["art.example.org"], "secretName": "art-tls"}],
        "rules": [
            {
                "host": "art.example.org",
                "http": {
                    "paths": [
                        {
                            "path": "/",
                            "pathType": "Prefix",
                            "backend": {"service": {"name": "art", "port": {"name": "http"}}},
                        }
                    ]
                },
            }
        ],
    }
    assert item["metadata"]["annotations"] == {"a/b": "c"}


def test_a_foreign_ingress_refuses_the_service_as_a_whole() -> None:
    theirs = {
        "kind": "Ingress",
        "apiVersion": "networking.k8s.io/v1",
        "metadata": {"name": "art", "namespace": "team-a", "uid": "theirs"},
    }
    seen = observed(offering(), foreign={("Ingress", "team-a", "art"): theirs})
    made = relay.plan(desired(models=[entry(ingress=INGRESS)]), seen)
    verdict = made.facts["verdicts"]["team-a/art"]
    assert (verdict.state, verdict.steps) == ("refused", [])
    assert "Ingress team-a/art exists and is not this fleet's" in verdict.reason


def test_removal() -> None:
    there = objects_of(plan(direct(ingress=INGRESS)))
    seen = observed(offering(), *there)
    made = relay.plan(desired(models=[], prune=True), seen)
    assert made.facts["orphans"] == ["team-a/art"]
    assert changes(made) == [
        "remove Ingress team-a/art",
        "remove Service team-a/art",
        "remove EndpointSlice team-a/art-direct",
        "remove ConfigMap team-a/art-direct",
    ]


def test_kinds_are_asked_for_only_where_there_are_some() -> None:
    def kinds(*wanted: Dict[str, Any], there: Any = ()) -> List[str]:
        return service_objects.kinds_there(desired(models=list(wanted))["models"], there)

    plain = {"name": "tiny", "namespace": "team-a", "hosts": ["gpu1"]}
    assert kinds(plain, entry()) == []
    assert kinds(direct()) == ["EndpointSlice"]
    assert kinds(entry(ingress=INGRESS)) == ["Ingress"]
    # What is there tells of it after it left the inventory, up to its last object.
    made = objects_of(plan(direct(ingress=INGRESS)))
    assert kinds(there=made[:1]) == ["EndpointSlice", "Ingress"]
    assert kinds(there=objects_of(plan(entry()))) == []


def test_slices_that_kubernetes_made_are_not_listed() -> None:
    text = service_objects.selector("EndpointSlice", "demo")
    assert text.endswith(",endpointslice.kubernetes.io/managed-by=tether.fleet")
    assert "endpointslice" not in service_objects.selector("Ingress", "demo")


def test_ipv6() -> None:
    (model,) = desired(models=[direct()])["models"]
    hosts = [envoy_data.Host("gpu1", "fd00::1", 9443)]
    model = objects.Model(**{**model.__dict__, "hosts": hosts})
    config, slices, _service = service_objects.direct_objects(model, "demo")
    assert slices["addressType"] == "IPv6"
    assert config["data"]["address"] == "[fd00::1]:8188"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (entry(expose="direct"), "host_port is missing"),
        (direct(health_status=99), "health_status is not a number from 200 to 499"),
        (dict(direct(), host_port=True), "host_port is not a number"),
        (entry(ingress={"host": "a b"}), "ingress.host is not of the form"),
        (entry(ingress={"host": "a", "path": "/{x}"}), "ingress.path is not of the form"),
        (entry(ingress={"host": "a", "annotations": {"b": 1}}), "ingress.annotations is not"),
        (entry(ingress=[]), "ingress is not a mapping"),
    ],
)
def test_entries_that_the_plan_would_not_make(wanted: Dict[str, Any], words: str) -> None:
    with pytest.raises(Refusal, match=words.replace(".", "[.]")) as caught:
        relay.read_models([wanted])
    assert caught.value.found.startswith("service team-a/art: ")
    assert "services in fleet_services" in caught.value.remedy


def test_what_is_sound_in_fleet_services_is_taken() -> None:
    relay.read_models([entry(health_path="/~x/")])
    # It has no metrics beside it.
    relay.read_models([dict(direct(), port=envoy_data.METRICS_PORT)])


def test_mistakes_of_models_and_services_at_once() -> None:
    tiny = {"name": "tiny", "namespace": "team-a", "hosts": ["gpu1"], "balancing": "by lot"}
    with pytest.raises(Refusal, match="model team-a/tiny: balancing is not one of") as caught:
        relay.read_models([tiny, entry(port=0)])
    assert "service team-a/art: port is not a number" in caught.value.found


def test_a_record_of_a_wrong_form() -> None:
    named = {"namespace": "a", "name": "b"}
    wrong = [1, {"namespace": "a", "expose": "relay"}, named, dict(named, expose="direct")]
    assert registration.problems(record(services="x")) == ["services is not a list"]
    assert registration.problems(record(services=wrong)) == [
        "services[0] is not a mapping",
        "services[1].name is missing or not a text",
        "services[2].expose is neither relay nor direct",
        "services[3].port is missing or not a number",
    ]
    assert json.loads(offering()["data"]["record.json"])["services"]
