# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rendered Envoy files as data; that Envoy accepts and obeys them is an integration test."""

from __future__ import annotations

import dataclasses
import json
import socket
import sys
from typing import Any, Dict, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    envoy,
    envoy_data,
    envoy_hosts,
)

PEM = """-----BEGIN CERTIFICATE-----
MIIBAAAA
-----END CERTIFICATE-----
"""

KEY = "k" * 32


def hosts(*addresses: str) -> List[envoy_data.Host]:
    return [
        envoy_data.Host("gpu%d" % number, address, 9443, (PEM,))
        for number, address in enumerate(addresses, 1)
    ]


def cluster(files: envoy.Files) -> Dict[str, Any]:
    found: Dict[str, Any] = json.loads(files.secret["cds.json"])["resources"][0]
    return found


@pytest.mark.parametrize(
    ("addresses", "by_name"),
    [
        (["10.0.0.1"], False),
        (["10.0.0.1", "fd00::1"], False),
        (["gpu.example"], True),
        (["10.0.0.1", "gpu.example"], True),
    ],
)
def test_endpoints_are_a_file_unless_a_host_is_a_name(addresses: List[str], by_name: bool) -> None:
    files = envoy.render("team-a", "tiny", hosts(*addresses), "t", KEY)
    assert ("eds.json" in files.plain) is not by_name
    made = cluster(files)
    assert ("cluster_type" in made) is by_name
    assignment = (
        made["load_assignment"] if by_name else json.loads(files.plain["eds.json"])["resources"][0]
    )
    points = assignment["endpoints"][0]["lb_endpoints"]
    found = [point["endpoint"]["address"]["socket_address"]["address"] for point in points]
    assert found == addresses


def test_each_host_has_its_own_pin_and_the_rest_has_none() -> None:
    made = cluster(envoy.render("team-a", "tiny", hosts("10.0.0.1", "FD00::0:1"), "t", KEY))
    matches = made["transport_socket_matches"]
    assert [match["match"] for match in matches] == [{"host": "gpu1"}, {"host": "gpu2"}]
    for match, address in zip(matches, ("10.0.0.1", "fd00::1"), strict=True):
        context = match["transport_socket"]["typed_config"]["common_tls_context"]
        assert context["tls_params"]["tls_minimum_protocol_version"] == "TLSv1_3"
        validation = context["validation_context"]
        assert validation["verify_certificate_hash"] == [envoy_hosts.pin_hash(PEM)]
        assert validation["trusted_ca"]["inline_string"] == PEM
        names = validation["match_typed_subject_alt_names"]
        assert names == [{"san_type": "IP_ADDRESS", "matcher": {"exact": address}}]
    context = made["transport_socket"]["typed_config"]["common_tls_context"]
    assert context["validation_context"] == {"verify_certificate_hash": ["00" * 32]}


@pytest.mark.parametrize("address", ["10.0.0.1", "gpu.example"])
def test_nobody_scrapes_a_host_that_drains(address: str) -> None:
    (host,) = hosts(address)
    found = []
    for draining in (False, True):
        one = dataclasses.replace(host, draining=draining)
        files = envoy.render("team-a", "tiny", [one], "t", KEY)
        made = json.loads(files.secret["cds.json"])["resources"]
        (scrape,) = [item for item in made if item["name"] == "metrics-gpu1"]
        (point,) = scrape["load_assignment"]["endpoints"][0]["lb_endpoints"]
        found.append(point["endpoint"]["address"]["socket_address"])
        # No connection stays behind a scrape.
        options = next(iter(scrape["typed_extension_protocol_options"].values()))
        assert options["common_http_protocol_options"]["max_requests_per_connection"] == 1
    assert found == [
        {"address": address, "port_value": 9443},
        {"address": "127.0.0.1", "port_value": 1},
    ]


def test_larger_bodies_may_take_longer() -> None:
    seconds = [envoy_data.Limits(max_body=size << 20).reception for size in (1, 32, 64, 1024)]
    assert seconds == [300, 300, 597, 9545]


def test_who_is_slow_or_dead_is_given_up() -> None:
    files = envoy.render("team-a", "tiny", hosts("10.0.0.1"), "t", KEY)
    service = json.loads(files.plain["lds.json"])["resources"][0]
    (chain,) = service["filter_chains"]
    config = chain["filters"][0]["typed_config"]
    assert config["request_timeout"] == "300s"
    # Silence of an answer is no reason.
    assert config["stream_idle_timeout"] == "0s"
    assert {item["description"]: item["int_value"] for item in service["socket_options"]} == {
        "SO_KEEPALIVE": 1,
        "TCP_KEEPIDLE": 30,
        "TCP_KEEPINTVL": 10,
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": 60000,
    }
    if sys.platform == "linux":
        for item in service["socket_options"]:
            name, value = item["description"], item["name"]
            assert getattr(socket, name) == value
            level = socket.SOL_SOCKET if name.startswith("SO_") else socket.IPPROTO_TCP
            assert item["level"] == level


def test_token_is_in_the_secret_files_alone() -> None:
    files = envoy.render("team-a", "tiny", hosts("10.0.0.1"), "the-token", KEY)
    assert not [name for name, text in files.plain.items() if "the-token" in text]
    assert sorted(files.secret) == ["cds.json", "sds.json"]
    for text in files.secret.values():
        assert "the-token" in text
        masked = envoy.mask_token(text, "MASK")
        assert "the-token" not in masked
        assert "MASK" in masked
    assert "BEGIN CERTIFICATE" in envoy.mask_token(files.secret["cds.json"], "MASK")


def test_order_of_hosts_does_not_matter() -> None:
    two = hosts("10.0.0.1", "10.0.0.2")
    assert envoy.render("a", "b", two, "t", KEY) == envoy.render("a", "b", two[::-1], "t", KEY)


def test_a_percent_sign_is_no_command() -> None:
    made = cluster(envoy.render("team-a", "tiny", hosts("10.0.0.1"), "a%b", KEY))
    check = made["health_checks"][0]["http_health_check"]
    assert "a%%b" in [item["header"]["value"] for item in check["request_headers_to_add"]]


@given(st.text())
def test_what_is_no_json_is_masked_as_a_whole(text: str) -> None:
    masked = envoy.mask_token("{" + text, "MASK")
    assert masked == "MASK" or json.loads(masked) is not None
