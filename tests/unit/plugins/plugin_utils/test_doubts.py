# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a sound inventory is asked about."""

from __future__ import annotations

import hashlib
from typing import Any, Dict, List

import pytest

from ansible_collections.tether.fleet.plugins.plugin_utils.doubts import doubts

DIGEST = hashlib.sha256(b"a model").hexdigest()
IMAGE = "registry.lan/envoy@sha256:" + hashlib.sha256(b"an image").hexdigest()


def plan(
    address: str = "10.0.0.4", source: str = "/models/a.gguf", sha256: str = DIGEST
) -> Dict[str, Any]:
    file = {"name": "a.gguf", "source": source, "sha256": sha256}
    return {
        "hosts": {"gpu1": {"address": address}},
        "models": {"team-a/chat": {"files": [file]}},
    }


def ask(
    given: Dict[str, Any], image: str = IMAGE, networks: Any = None, files: Any = None
) -> List[str]:
    return doubts(
        given,
        image,
        {"gpu1": networks},
        lambda path, _digest: path == "/models/a.gguf",
        files or {},
    )


def test_nothing_to_ask() -> None:
    assert ask(plan(), networks=["10.0.0.0/8", "fd00::/8"]) == []
    assert ask(plan(source="https://models.lan/a.gguf")) == []


@pytest.mark.parametrize(
    ("address", "left"),
    [
        ("192.0.2.11", True),
        ("2001:db8::5", True),
        ("gpu3.example.org", True),
        ("GPU3.Example.Org.", True),
        ("example.com", True),
        ("gpu.example", True),
        ("192.0.3.11", False),
        ("gpu.myexample.org", False),
        ("example.org.lan", False),
    ],
)
def test_addresses_for_documents(address: str, left: bool) -> None:
    told = ask(plan(address))
    assert bool(told) is left
    assert not left or "host gpu1: its address" in told[0]


def test_all_placeholders_are_one_warning() -> None:
    given = plan("192.0.2.1", "https://models.example.org/a.gguf", "1" * 64)
    (told,) = ask(given, "envoy@sha256:" + "0" * 64, ["198.51.100.0/24", "10.0.0.0/8"])
    assert told == (
        "Placeholders of an example are left in the inventory: relay_image, host gpu1: its address,"
        " fleet_cluster_networks (198.51.100.0/24), model team-a/chat: sha256 and source of a.gguf."
        " A run needs your own addresses, networks, files and digests in their place."
    )


def test_a_network_of_all_hosts_is_told_once() -> None:
    given = plan()
    given["hosts"]["gpu2"] = given["hosts"]["gpu1"]
    networks = {host: ["198.51.100.0/24"] for host in given["hosts"]}
    (told,) = doubts(given, IMAGE, networks, lambda *_file: True, {})
    assert told.count("198.51.100.0/24") == 1


def test_files_that_are_nowhere() -> None:
    assert ask(plan(source="/models/b.gguf")) == [
        "Files that are not on this controller: /models/b.gguf for model team-a/chat. A run stops"
        " where it needs them: put them there, or mend their paths."
    ]


def test_files_that_variables_name() -> None:
    files = {
        "fleet_kubeconfig": "/home/me/.kube/confg",
        "fleet_ca_passphrase_file": "/models/a.gguf",
    }
    (told,) = ask(plan(), files=files)
    assert "controller: /home/me/.kube/confg (fleet_kubeconfig)." in told


def test_many_are_counted() -> None:
    given = plan()
    given["hosts"] = {"gpu%d" % number: {"address": "192.0.2.9"} for number in range(50)}
    (told,) = ask(given)
    assert "host gpu39: its address and 10 more." in told
