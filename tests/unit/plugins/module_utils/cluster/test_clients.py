# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who may call a model, and the monitors of those who watch it."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    clients,
    envoy_data,
    labels,
    monitors,
    objects,
)

OWN: Dict[str, Any] = {"pods": {"app": "chat"}}
OTHER: Dict[str, Any] = {"namespace": "team-b", "pods": {"example.org/app": "chat", "tier": ""}}
OUTSIDE: Dict[str, Any] = {"cidr": "2001:db8::/32"}


def test_peers() -> None:
    given = [OWN, OTHER, {"namespace": "c"}, OUTSIDE]
    assert clients.mistakes(given) == []
    named = "kubernetes.io/metadata.name"
    assert clients.peers(given) == [
        {"podSelector": {"matchLabels": {"app": "chat"}}},
        {
            "namespaceSelector": {"matchLabels": {named: "team-b"}},
            "podSelector": {"matchLabels": {"example.org/app": "chat", "tier": ""}},
        },
        {"namespaceSelector": {"matchLabels": {named: "c"}}},
        {"ipBlock": {"cidr": "2001:db8::/32"}},
    ]


@pytest.mark.parametrize(
    ("given", "places"),
    [
        (None, [""]),
        ([], [""]),
        ({}, [""]),
        ("team-b", [""]),
        (["team-b"], ["[0]"]),
        ([{}], ["[0]"]),
        ([{"name": "x"}], ["[0].name", "[0]"]),
        ([{"namespace": None}], ["[0].namespace"]),
        ([{"namespace": "*"}], ["[0].namespace"]),
        ([{"namespace": "Team"}], ["[0].namespace"]),
        ([{"namespace": "a\n"}], ["[0].namespace"]),
        ([{"pods": {}}], ["[0].pods"]),
        ([{"pods": ["app"]}], ["[0].pods"]),
        ([{"pods": {"app": 1}}], ["[0].pods"]),
        ([{"pods": {"app": "{{ x }}"}}], ["[0].pods"]),
        ([{"pods": {"app": "v" * 64}}], ["[0].pods"]),
        ([{"pods": {"a b": "c"}}], ["[0].pods"]),
        ([{"cidr": 10}], ["[0].cidr"]),
        ([{"cidr": "10.0.0.0/33"}], ["[0].cidr"]),
        ([{"cidr": "10.0.0.1/8"}], ["[0].cidr"]),
        ([{"cidr": "10.0.0.1"}], ["[0].cidr"]),
        ([{"cidr": "10.0.0.0/8", "namespace": "a"}], ["[0].cidr"]),
        ([OWN, {"pods": {}, "cidr": "x", "z": 1}, {}], ["[1].z", "[1].cidr", "[1].cidr"]),
    ],
)
def test_mistakes_are_all_found(given: Any, places: List[str]) -> None:
    found = [place for place, _text in clients.mistakes(given)]
    assert found[: len(places)] == places


def test_the_network_is_named_that_was_meant() -> None:
    ((_place, text),) = clients.mistakes([{"cidr": "10.0.0.1/8"}])
    assert "expected 10.0.0.0/8" in text


def policy(
    listed: Optional[List[Dict[str, Any]]], readers: Optional[List[Dict[str, Any]]]
) -> Dict[str, Any]:
    model = objects.Model("tiny", "team-a", clients=listed, metrics_clients=readers)
    spec: Dict[str, Any] = objects.network_policy(model, "demo")["spec"]
    return spec


@pytest.mark.parametrize(
    ("listed", "readers", "calls", "reads"),
    [
        ([OWN], None, [OWN], [OWN]),
        ([OWN], [OUTSIDE], [OWN], [OUTSIDE]),
    ],
)
def test_policy(
    listed: Optional[List[Dict[str, Any]]],
    readers: Optional[List[Dict[str, Any]]],
    calls: List[Dict[str, Any]],
    reads: List[Dict[str, Any]],
) -> None:
    spec = policy(listed, readers)
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    allowed: Dict[int, Any] = {
        port["port"]: rule.get("from") for rule in spec["ingress"] for port in rule["ports"]
    }
    assert allowed == {
        envoy_data.SERVICE_PORT: clients.peers(calls),
        envoy_data.METRICS_PORT: clients.peers(reads),
        envoy_data.PROBE_PORT: None,
        8082: None,
    }
    # An empty list of peers would be everybody.
    assert all(rule.get("from", [1]) for rule in spec["ingress"])


@pytest.mark.parametrize("readers", [None, [OUTSIDE]])
def test_without_clients_ingress_is_not_the_policys(
    readers: Optional[List[Dict[str, Any]]],
) -> None:
    # Readers alone are refused before; a rule for everybody would widen a tenant's own policy.
    spec = policy(None, readers)
    assert spec["policyTypes"] == ["Egress"]
    assert "ingress" not in spec


@pytest.mark.parametrize("kind", sorted(monitors.KINDS.values()))
def test_monitor(kind: str) -> None:
    hosts = [envoy_data.Host(name, "10.0.0.1", 9443) for name in ("gpu2", "gpu1.example")]
    model = objects.Model("tiny", "team-a", hosts=hosts, monitor=kind)
    items = objects.model_objects(model, "demo", "e@sha256:" + "a" * 64, "t", "k" * 32)
    made, rule = items[-1], items[0]
    assert (made["kind"], made["metadata"]["name"]) == (kind, "tiny-relay")
    assert labels.is_ours(made, "demo")
    assert monitors.noted([rule]) == {kind}
    endpoints = made["spec"].get("podMetricsEndpoints") or made["spec"]["endpoints"]
    assert {item["path"]: item["relabelings"][0]["replacement"] for item in endpoints} == {
        "/metrics/relay": "",
        "/metrics/gpu1.example": "gpu1.example",
        "/metrics/gpu2": "gpu2",
    }
    (deployment,) = [item for item in items if item["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]
    assert made["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    ports = [port["name"] for port in pod["spec"]["containers"][0]["ports"]]
    assert {item["port"] for item in endpoints} <= set(ports)


def test_without_a_monitor_nothing_is_noted() -> None:
    model = objects.Model("tiny", "team-a")
    rule = objects.network_policy(model, "demo")
    assert "annotations" not in rule["metadata"]
    assert monitors.noted([rule]) == set()
    rule["metadata"]["annotations"] = {labels.MONITOR: "Secret"}
    assert monitors.noted([rule]) == set()
