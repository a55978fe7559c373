# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Limits and policies as data; that Envoy keeps them is an integration test."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Dict

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    balancing,
    envoy,
    envoy_data,
)

HOSTS = [envoy_data.Host("gpu%d" % number, "10.0.0.%d" % number, 9443) for number in (1, 2, 3)]


def rendered(spread: balancing.Balancing, hosts: Any = HOSTS) -> envoy.Files:
    return envoy.render("team-a", "tiny", hosts, "token", "k" * 32, spread=spread)


def cluster(files: envoy.Files) -> Dict[str, Any]:
    found: Dict[str, Any] = json.loads(files.secret["cds.json"])["resources"][0]
    return found


@pytest.mark.parametrize(
    ("parallel", "relays", "each"),
    [(0, 2, 0), (1, 2, 1), (4, 2, 2), (4, 3, 2), (1, 64, 1), (9, 2, 5), (4096, 1, 4096)],
)
def test_each_relay_has_its_part_and_at_least_one(parallel: int, relays: int, each: int) -> None:
    spread = balancing.Balancing(parallel=parallel, relays=relays)
    assert spread.per_relay == each
    limits = cluster(rendered(spread))["circuit_breakers"]
    if parallel:
        assert limits["per_host_thresholds"] == [{"max_connections": each}]
        pending = {item["max_pending_requests"] for item in limits["thresholds"]}
        assert pending == {balancing.QUEUE + 3 * each}
    else:
        assert "per_host_thresholds" not in limits
        assert {item["max_pending_requests"] for item in limits["thresholds"]} == {100000}


def clusters(files: envoy.Files) -> list[Dict[str, Any]]:
    found: list[Dict[str, Any]] = json.loads(files.secret["cds.json"])["resources"]
    return found


@pytest.mark.parametrize("policy", balancing.POLICIES)
def test_a_drain_changes_the_list_of_hosts_alone(policy: str) -> None:
    """Whatever the policy: another cluster would be warmed and would count anew."""
    spread = balancing.Balancing(policy, "X-Session", 4)
    before = rendered(spread)
    after = rendered(spread, [replace(HOSTS[0], draining=True), *HOSTS[1:]])
    changed = [
        one["name"]
        for one, other in zip(clusters(before), clusters(after), strict=True)
        if one != other
    ]
    assert changed == ["metrics-gpu1"], "its scrapes must not keep the drain from ending"
    assert {key for key in before.plain if before.plain[key] != after.plain[key]} == {"eds.json"}


def test_only_affinity_looks_at_a_header() -> None:
    for policy in balancing.POLICIES:
        text = rendered(balancing.Balancing(policy, "X-Session")).plain["rds.json"]
        assert ("X-Session" in text) is (policy == balancing.AFFINITY)


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ({}, balancing.Balancing(relays=3)),
        ({"parallel": None, "queue": None, "balancing": None}, balancing.Balancing(relays=3)),
        ({"parallel": "4", "queue": "5"}, balancing.Balancing(parallel=4, queue=5, relays=3)),
        (
            {"balancing": "affinity", "affinity_header": "X-Session"},
            balancing.Balancing("affinity", "X-Session", relays=3),
        ),
    ],
)
def test_an_entry_is_read(entry: Dict[str, Any], wanted: balancing.Balancing) -> None:
    assert balancing.read(entry, 3) == (wanted, [])


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ({"balancing": "random"}, "balancing is not one of least_request"),
        ({"balancing": "affinity"}, "affinity_header is not"),
        ({"balancing": "affinity", "affinity_header": "x%y%"}, "affinity_header is not"),
        ({"affinity_header": "a b"}, "affinity_header is not"),
        ({"parallel": -1}, "parallel is not a number from 0"),
        ({"parallel": True}, "parallel is not"),
        ({"parallel": 5000}, "parallel is not"),
        ({"queue": 0}, "queue is not a number from 1"),
        ({"queue": "many"}, "queue is not"),
    ],
)
def test_what_is_wrong_is_told(entry: Dict[str, Any], found: str) -> None:
    _read, mistakes = balancing.read(entry, 2)
    assert len(mistakes) == 1
    assert found in mistakes[0]
