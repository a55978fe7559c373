# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Manifests of one model."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    drain,
    envoy_data,
    labels,
    objects,
)

IMAGE = "e@sha256:" + "a" * 64
KEY = "k" * 32


def model(*addresses: str, name: str = "tiny") -> objects.Model:
    hosts = [
        envoy_data.Host("gpu%d" % number, address, 9443)
        for number, address in enumerate(addresses or ("10.0.0.1",), 1)
    ]
    return objects.Model(name, "team-a", hosts=hosts)


def by_kind(items: List[Dict[str, Any]]) -> Dict[str, Dict[str, Any]]:
    return {item["kind"]: item for item in items}


def test_names_labels_and_order() -> None:
    items = objects.model_objects(model(), "demo", IMAGE, "t", KEY)
    assert next(item["kind"] for item in items) == "NetworkPolicy"
    assert [item["kind"] for item in items][-1] == "Service"
    for item in items:
        name = "tiny" if item["kind"] == "Service" else "tiny-relay"
        assert item["metadata"]["name"] == name
        assert labels.is_ours(item, "demo")
        assert not labels.is_ours(item, "other")


def test_pod_is_locked_down() -> None:
    spec = by_kind(objects.model_objects(model(), "demo", IMAGE, "t", KEY))["Deployment"]["spec"]
    pod = spec["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 65532
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    container = pod["containers"][0]
    assert container["image"] == IMAGE
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_a_pod_that_ends_is_drained_with_the_key_that_its_envoy_knows() -> None:
    made = by_kind(objects.model_objects(model(), "demo", IMAGE, "t", KEY))
    pod = made["Deployment"]["spec"]["template"]["spec"]
    hook = pod["containers"][0]["lifecycle"]["preStop"]["httpGet"]
    assert hook["httpHeaders"] == [{"name": drain.HEADER, "value": KEY}]
    ports = {port["name"]: port["containerPort"] for port in pod["containers"][0]["ports"]}
    assert ports[hook["port"]] == drain.PORT
    assert pod["terminationGracePeriodSeconds"] == 120
    assert KEY in made["ConfigMap"]["data"]["lds.json"]
    assert drain.read_key(made["Deployment"]) == KEY


@pytest.mark.parametrize("value", ["", "short", 'x" .. os.exit() .. "' + "y" * 20, None])
def test_a_key_that_is_none_is_not_taken_over(value: Any) -> None:
    item = by_kind(objects.model_objects(model(), "demo", IMAGE, "t", KEY))["Deployment"]
    pod = item["spec"]["template"]["spec"]
    pod["containers"][0]["lifecycle"]["preStop"] = drain.pre_stop(value)
    assert drain.read_key(item) is None


def test_hosts_and_token_do_not_roll_the_pods() -> None:
    one = by_kind(objects.model_objects(model("10.0.0.1"), "demo", IMAGE, "t", KEY))
    two = by_kind(objects.model_objects(model("10.0.0.1", "10.0.0.2"), "demo", IMAGE, "u", KEY))
    assert one["Deployment"] == two["Deployment"]
    assert one["ConfigMap"] != two["ConfigMap"]
    assert one["Secret"] != two["Secret"]


@pytest.mark.parametrize(
    ("addresses", "cidrs", "open_ports"),
    [
        (["10.0.0.1"], ["10.0.0.1/32"], []),
        (["fd00::1"], ["fd00::1/128"], []),
        (["10.0.0.1", "10.0.0.2"], ["10.0.0.1/32", "10.0.0.2/32"], []),
        (["gpu.example"], [], [[9443], [53, 53]]),
        (["10.0.0.1", "gpu.example"], ["10.0.0.1/32"], [[9443], [53, 53]]),
    ],
)
def test_egress(addresses: List[str], cidrs: List[str], open_ports: List[List[int]]) -> None:
    spec = objects.network_policy(model(*addresses), "demo")["spec"]
    assert spec["policyTypes"] == ["Egress"]
    narrow = [rule for rule in spec["egress"] if "to" in rule]
    assert [rule["to"][0]["ipBlock"]["cidr"] for rule in narrow] == cidrs
    assert all(rule["ports"] == [{"protocol": "TCP", "port": 9443}] for rule in narrow)
    found = [
        [port["port"] for port in rule["ports"]] for rule in spec["egress"] if "to" not in rule
    ]
    assert found == open_ports


def test_the_files_mounted_are_the_files_rendered() -> None:
    for addresses in (["10.0.0.1"], ["gpu.example"]):
        made = by_kind(objects.model_objects(model(*addresses), "demo", IMAGE, "t", KEY))
        volumes = made["Deployment"]["spec"]["template"]["spec"]["volumes"]
        sources = volumes[0]["projected"]["sources"]
        for kind, source in (("ConfigMap", "configMap"), ("Secret", "secret")):
            items = next(item[source]["items"] for item in sources if source in item)
            assert sorted(made[kind]["data"]) == [item["key"] for item in items]
