# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import copy
import itertools
import json
import pathlib
import random
import re
import sys

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.tether.fleet.plugins.module_utils import accounts, model_store
from ansible_collections.tether.fleet.plugins.module_utils.cluster import forms
from ansible_collections.tether.fleet.plugins.module_utils.daemon import base
from ansible_collections.tether.fleet.plugins.plugin_utils import (
    catalogue,
    ingress_config,
    inventory,
    schema,
)
from ansible_collections.tether.fleet.plugins.plugin_utils import settings as fleet_settings
from ansible_collections.tether.fleet.plugins.plugin_utils.mistakes import SCHEMA

ROOT = pathlib.Path(__file__).resolve().parents[4]
INVENTORY_PAGE, ROLES = ROOT / "docs" / "inventory.md", ROOT / "roles"

CATALOGUE = catalogue.load()
FLEET = inventory.Fleet("demo")
HOSTS = {
    "gpu1": {"ansible_host": "192.0.2.1"},
    "gpu2": {"ansible_host": "10.0.0.2", "fleet_address": "gpu2.example.org"},
    "gpu3": {"ansible_host": "2001:db8::3"},
    "spare": {"ansible_host": "192.0.2.9"},
}
GROUPS = {
    "all": ["gpu1", "gpu2", "gpu3", "spare", "cluster"],
    "ungrouped": [],
    "fleet_hosts": ["gpu1", "gpu2", "gpu3"],
    "fleet_cluster": ["cluster"],
    "large": ["gpu1", "gpu2"],
    "empty": [],
}
DIGEST = "0123456789abcdef" * 4


def model(**changes):
    entry = {
        "name": "tiny",
        "namespace": "team-a",
        "engine": "llama_server",
        "hosts": ["gpu1"],
        "files": [
            {"name": "tiny.gguf", "source": "https://example.org/tiny.gguf", "sha256": DIGEST}
        ],
    }
    entry.update(changes)
    return {key: value for key, value in entry.items() if value is not None}


def file(**changes):
    return [dict(model()["files"][0], **changes)]


def resolve(models, hosts=None, groups=None, fleet=FLEET, **more):
    hosts, groups = hosts or HOSTS, groups or GROUPS
    return inventory.resolve(models, hosts, groups, CATALOGUE, fleet, **more)


def mistakes(*args, **more):
    with pytest.raises(inventory.InventoryErrors) as caught:
        resolve(*args, **more)
    return caught.value.mistakes


# Each row: changes to a sound entry, the key that is named, words of the message.
MISTAKES = [
    ({"name": None}, "name", "is missing"),
    ({"name": "Tiny"}, "name", '"Tiny"; expected a Service name'),
    ({"name": "1tiny"}, "name", "beginning with a letter"),
    ({"name": "tiny-"}, "name", "ending in a letter or digit"),
    ({"name": "a.b"}, "name", "a Service name"),
    ({"name": "tiny\n"}, "name", "a Service name"),
    ({"name": "t" * 51}, "name", "it has 51 characters"),
    ({"name": 1.10}, "name", "the number 1.1"),
    ({"name": True}, "name", "the boolean true"),
    ({"name": True}, "name", "write it in quotes"),
    ({"namespace": None}, "namespace", "is missing"),
    ({"namespace": "n" * 64}, "namespace", "it has 64 characters"),
    ({"namespace": "kube-system"}, "namespace", "belongs to Kubernetes"),
    ({"namespace": "tether-fleet"}, "namespace", "belongs to the fleet itself"),
    ({"namespace": 7}, "namespace", "write it in quotes"),
    ({"engine": None}, "engine", "is missing"),
    ({"engine": "llama-server"}, "engine", "did you mean llama_server?"),
    ({"hosts": None}, "hosts", "is missing"),
    ({"hosts": []}, "hosts", "at least one host or group"),
    ({"hosts": "gpu1"}, "hosts", '"gpu1"; expected a list'),
    ({"hosts": ["gpu1", "gpu1"]}, "hosts", "lists something twice"),
    ({"hosts": ["gpu4"]}, "hosts[0]", "did you mean gpu"),
    ({"hosts": ["gpu1", "larg"]}, "hosts[1]", "did you mean large?"),
    ({"hosts": ["spare"]}, "hosts[0]", "not in the group fleet_hosts"),
    ({"hosts": ["all"]}, "hosts[0]", "hosts outside fleet_hosts: spare, cluster"),
    ({"hosts": ["empty"]}, "hosts[0]", "is empty"),
    ({"hosts": ["cluster"]}, "hosts[0]", "stands for the cluster"),
    ({"hosts": [1]}, "hosts[0]", "write it in quotes"),
    ({"port": 0}, "port", "a port from 1 to 65535"),
    ({"port": 70000}, "port", "a port from 1 to 65535"),
    ({"port": "80"}, "port", "without quotes"),
    ({"port": True}, "port", "the boolean true"),
    ({"port": 80.5}, "port", "the number 80.5"),
    ({"port": 9464}, "port", "is the port of the Service's metrics"),
    ({"clients": []}, "clients", "a list of at least one client"),
    ({"clients": "team-b"}, "clients", "a list of at least one client"),
    ({"clients": ["team-b"]}, "clients[0]", "a mapping with namespace, pods or both, or cidr"),
    ({"clients": [{"namespce": "x"}]}, "clients[0].namespce", "did you mean namespace?"),
    ({"clients": [{"namespace": 1}]}, "clients[0].namespace", "write it in quotes"),
    ({"clients": [{"namespace": "A"}]}, "clients[0].namespace", "is no namespace's name"),
    ({"clients": [{"pods": {}}]}, "clients[0].pods", "at least one label"),
    ({"clients": [{"pods": {"app": True}}]}, "clients[0].pods.app", "write it in quotes"),
    ({"clients": [{}]}, "clients[0]", "names nobody"),
    ({"metrics_clients": [{"cidr": "10.0.0.0/8"}]}, "clients", "is missing, but metrics_clients"),
    (
        {"clients": [{"namespace": "a"}], "metrics_clients": [{"cidr": "10.1/8"}]},
        "metrics_clients[0].cidr",
        "is no network",
    ),
    ({"replicas": 0}, "replicas", "from 1 to 64"),
    ({"files": None}, "files", "is missing"),
    ({"files": []}, "files", "at least one file"),
    ({"files": ["tiny.gguf"]}, "files[0]", "a mapping with name, source and sha256"),
    ({"files": [{"name": "x"}]}, "files[0].source", "is missing"),
    ({"files": [{"name": "x"}]}, "files[0].sha256", "64 lower-case hexadecimal digits"),
    ({"files": file(sha256="abc")}, "files[0].sha256", "it has 3"),
    ({"files": file(sha256=DIGEST.upper())}, "files[0].sha256", "lower case"),
    ({"files": file(sha256="sha256:" + DIGEST)}, "files[0].sha256", "leave out sha256:"),
    ({"files": file(sha256=DIGEST + "\n")}, "files[0].sha256", "64 lower-case"),
    ({"files": file(sha256=int("1" * 64))}, "files[0].sha256", "write it in quotes"),
    ({"files": file(size="5")}, "files[0].size", "without quotes"),
    ({"files": file(size=0)}, "files[0].size", "size in bytes"),
    ({"files": file(size=1.5)}, "files[0].size", "size in bytes"),
    ({"files": file(sha512="x")}, "files[0].sha512", "did you mean sha256?"),
    ({"files": file(name="../x")}, "files[0].name", "plain file name"),
    ({"files": file(name="a/b")}, "files[0].name", "plain file name"),
    ({"files": file(name="a..b")}, "files[0].name", ".. in it"),
    ({"files": file(name=".x")}, "files[0].name", "plain file name"),
    ({"files": file(name="-x")}, "files[0].name", "plain file name"),
    ({"files": file(name="a b")}, "files[0].name", "plain file name"),
    ({"files": file(name="x" * 201)}, "files[0].name", "it has 201 characters"),
    ({"files": file(name="m-00001-of-00003.gguf")}, "files[0].name", "one part of a split model"),
    ({"files": file() + file()}, "files", "listed 2 times"),
    ({"files": file(source="http://x/y")}, "files[0].source", "plain http"),
    ({"files": file(source="ftp://x/y")}, "files[0].source", "scheme ftp"),
    ({"files": file(source="hf://a/b")}, "files[0].source", "https URL"),
    ({"files": file(source="file:///x")}, "files[0].source", "the path alone"),
    ({"files": file(source="https://u:p@x/y")}, "files[0].source", "user or password"),
    ({"files": file(source="https:///y")}, "files[0].source", "without a host"),
    ({"files": file(source="https://x")}, "files[0].source", "without a file"),
    ({"files": file(source="https://x:99999/y")}, "files[0].source", "is no URL"),
    ({"files": file(source=" x")}, "files[0].source", "blanks"),
    ({"files": file(source="")}, "files[0].source", "an https URL, or a path"),
    ({"args": "--mlock"}, "args", "a list of strings"),
    ({"args": ["--ctx-size", 2048]}, "args[1]", "write it in quotes"),
    ({"args": ["--host", "0.0.0.0"]}, "args[0]", "set by the collection"),
    ({"args": ["--flash-attn", True]}, "args[1]", "the boolean true"),
    ({"environment": ["A=b"]}, "environment", "a mapping"),
    ({"environment": {"CUDA_VISIBLE_DEVICES": 0}}, "environment.CUDA_VISIBLE_DEVICES", "quotes"),
    ({"environment": {"LLAMA_ARG_HOST": "x"}}, "environment.LLAMA_ARG_HOST", "refused"),
    ({"environment": {"A=B": "x"}}, "environment", "not a variable's name"),
    ({"engine_port": 8081}, "engine_port", "listens on a unix socket"),
    ({"engine_port": 80}, "engine_port", "from 1024"),
    ({"parallel": -1}, "parallel", "from 0 to 4096"),
    ({"local_port": 8090}, "local_accounts", "is missing"),
    ({"local_accounts": ["alice"]}, "local_port", "is missing"),
    ({"local_port": 80, "local_accounts": ["alice"]}, "local_port", "from 1024"),
    ({"local_port": 9443, "local_accounts": ["alice"]}, "local_port", "the ingress's own port"),
    ({"local_port": 8090, "local_accounts": ["root"]}, "local_accounts[0]", "root may connect"),
    ({"local_port": 8090, "local_accounts": ["tether-x"]}, "local_accounts[0]", "collection's own"),
    ({"local_port": 8090, "local_accounts": ["a b"]}, "local_accounts[0]", "an account's name"),
    ({"local_port": 8090, "local_accounts": ["a%h"]}, "local_accounts[0]", "an account's name"),
    ({"parallel": "4"}, "parallel", "write it without quotes"),
    ({"queue": 0}, "queue", "from 1 to 100000"),
    ({"parallel": 0, "queue": 5}, "queue", "says nothing without a limit"),
    ({"balancing": "fastest"}, "balancing", "least_request, round_robin or affinity"),
    ({"balancing": "affinity"}, "affinity_header", "is missing"),
    ({"affinity_header": "X-Session"}, "affinity_header", "says nothing without"),
    ({"balancing": "affinity", "affinity_header": "a b"}, "affinity_header", "name of a header"),
    (
        {"balancing": "affinity", "affinity_header": "X-Relay-Token"},
        "affinity_header",
        "take another",
    ),
    ({"adopt": "yes"}, "adopt", '"yes"; expected true or false'),
    ({"adopt": True, "adopt_from": "argocd"}, "adopt_from", "expected a list of names"),
    ({"adopt": True, "adopt_from": ["a b"]}, "adopt_from[0]", "a name as the refusal gives it"),
    ({"adopt": True, "adopt_from": ["a", "a"]}, "adopt_from", "lists something twice"),
    ({"adopt_from": ["argocd"]}, "adopt_from", "adopt is not true"),
    ({"fils": []}, "fils", "did you mean files?"),
]


@pytest.mark.parametrize(("changes", "key", "words"), MISTAKES)
def test_mistake_is_named(changes, key, words):
    found = mistakes([model(**changes)])
    assert any(m.key == key and words in m.message for m in found), [m.line() for m in found]
    assert all(
        m.model.startswith(("fleet_models[0]", "team-a/")) or "/tiny" in m.model for m in found
    )


def test_all_mistakes_of_all_models_at_once():
    models = [
        model(**{"name": "m%d" % index, **changes})
        for index, (changes, _key, _words) in enumerate(MISTAKES)
    ]
    found = {(m.model.split("/")[-1], m.key) for m in mistakes(models)}
    for index, (changes, key, _words) in enumerate(MISTAKES):
        if "name" in changes or "namespace" in changes:
            continue
        assert ("m%d" % index, key) in found


def test_one_message_holds_every_line():
    with pytest.raises(inventory.InventoryErrors) as caught:
        resolve([model(port=0, replicas=0), "x"], fleet=inventory.Fleet(None))
    text = str(caught.value)
    assert text.startswith("The inventory has 4 mistakes; nothing was changed.")
    assert "\n  - fleet_name: is not defined" in text
    assert "\n  - team-a/tiny: port: " in text
    assert "\n  - fleet_models[1]: entry: " in text


@pytest.mark.parametrize(
    ("models", "words"),
    [(None, "is not defined"), ({}, "a mapping"), ("x", "expected a list"), (1, "the number 1")],
)
def test_models_that_are_no_list(models, words):
    assert words in mistakes(models)[0].message


def test_duplicates_in_a_namespace():
    found = mistakes([model(), model(port=81), model(name="other")])
    assert [(m.model, m.key) for m in found] == [("team-a/tiny", "name")]
    assert "(fleet_models[0], fleet_models[1])" in found[0].message


def test_mistakes_of_two_models_with_one_name_can_be_told_apart():
    found = mistakes([model(port=0), model(port=70000), model(name="other", port=0)])
    assert [m.model for m in found if m.key == "port"] == [
        "team-a/tiny (fleet_models[0])",
        "team-a/tiny (fleet_models[1])",
        "team-a/other",
    ]


def test_one_name_in_two_namespaces_is_fine():
    plan = resolve([model(), model(namespace="team-b")])
    assert list(plan["models"]) == ["team-a/tiny", "team-b/tiny"]
    engines = plan["hosts"]["gpu1"]["engines"]
    for key in ("account", "daemon", "socket"):
        assert engines[0][key] != engines[1][key]
    # Each namespace has a copy of its own.
    assert len(plan["hosts"]["gpu1"]["model_files"]) == 2
    assert len(plan["model_files"]) == 1


def test_two_sizes_of_one_digest():
    found = mistakes(
        [model(files=file(size=5)), model(name="other", files=file(size=6, name="o.gguf"))]
    )
    assert [(m.model, m.key) for m in found] == [("team-a/other", "files[0].size")]


@pytest.mark.parametrize(
    ("hosts", "key", "words"),
    [
        ({}, "fleet_address", "has no address"),
        ({"ansible_host": "127.0.0.1"}, "ansible_host", "this machine alone"),
        ({"ansible_host": "::1"}, "ansible_host", "this machine alone"),
        ({"ansible_host": "0.0.0.0"}, "ansible_host", "this machine alone"),
        ({"ansible_host": "169.254.1.1"}, "ansible_host", "link-local"),
        ({"ansible_host": "localhost"}, "ansible_host", "this machine alone"),
        ({"ansible_host": "1.2.3"}, "ansible_host", "looks like an IP address"),
        ({"ansible_host": "gpu_1"}, "ansible_host", "neither an IP address nor a DNS name"),
        ({"ansible_host": "2001:DB8::1"}, "ansible_host", "usual form"),
        ({"ansible_host": 5}, "ansible_host", "in quotes"),
        ({"fleet_address": "a b", "ansible_host": "192.0.2.1"}, "fleet_address", "neither"),
        ({"ansible_host": "GPU2.example.org"}, "ansible_host", "address already"),
    ],
)
def test_addresses(hosts, key, words):
    found = mistakes([model()], hosts=dict(HOSTS, gpu3=hosts))
    assert any(m.key == key and words in m.message and m.model == "host gpu3" for m in found)


def test_paths_on_a_mac():
    hosts = dict(HOSTS, gpu1={**HOSTS["gpu1"], "fleet_system": "macos"})
    hosts["gpu3"] = {**HOSTS["gpu3"], "fleet_system": "linux"}
    plan = resolve([model(hosts=["gpu1", "gpu3"])], hosts=hosts)["hosts"]
    assert [plan[host]["run_root"] for host in ("gpu1", "gpu3")] == [
        "/var/lib/tether/run",
        "/run/tether",
    ]
    for host in ("gpu1", "gpu3"):
        (engine,) = plan[host]["engines"]
        (daemon,) = plan[host]["daemons"]
        assert engine["socket"] == plan[host]["run_root"] + "/engines/team-a.tiny/engine.sock"
        assert engine["socket"] in engine["argv"]
        assert daemon["name"] == engine["daemon"] == "tether-engine-team-a.tiny"
        assert daemon["health"]["unix"] == engine["socket"]


@pytest.mark.parametrize(
    ("more", "key", "words"),
    [
        ({"fleet_system": "darwin"}, "fleet_system", 'is "darwin"; expected linux or macos'),
        ({"fleet_system": ["macos"]}, "fleet_system", "expected linux or macos"),
    ],
)
def test_systems(more, key, words):
    (found,) = mistakes([model()], hosts=dict(HOSTS, gpu3={**HOSTS["gpu3"], **more}))
    assert (found.model, found.key) == ("host gpu3", key)
    assert words in found.message


def test_an_inventory_name_with_a_dot_is_an_address():
    groups = dict(GROUPS, fleet_hosts=["gpu9.example.org"])
    plan = resolve([model(hosts=["gpu9.example.org"])], hosts={}, groups=groups)
    assert plan["hosts"]["gpu9.example.org"]["names"] == ["gpu9.example.org"]


@pytest.mark.parametrize(
    ("groups", "key"),
    [
        ({"fleet_hosts": []}, "fleet_hosts"),
        ({"fleet_cluster": []}, "fleet_cluster"),
        ({"fleet_cluster": ["a", "b"]}, "fleet_cluster"),
        ({"fleet_cluster": ["gpu1"]}, "fleet_cluster"),
    ],
)
def test_groups(groups, key):
    assert key in [m.key for m in mistakes([], groups=dict(GROUPS, **groups))]


@pytest.mark.parametrize(
    ("fleet", "key"),
    [
        (inventory.Fleet(None), "fleet_name"),
        (inventory.Fleet("Demo Fleet"), "fleet_name"),
        (inventory.Fleet(5), "fleet_name"),
        (inventory.Fleet("demo", "Tether"), "fleet_cluster_namespace"),
        (inventory.Fleet("demo", ingress_port="9443"), "ingress_port"),
        (inventory.Fleet("demo", ingress_port=True), "ingress_port"),
    ],
)
def test_fleet(fleet, key):
    assert [m.key for m in mistakes([], fleet=fleet)] == [key]


IMAGE = "docker.io/envoyproxy/envoy@sha256:" + DIGEST
SETTINGS = {"relay_image": IMAGE, "fleet_ca_passphrase": True}
NETWORKS = ["198.51.100.0/24", "2001:db8::/32", "192.0.2.7"]


def with_settings(changes=None, per_host=None, everywhere=None):
    everywhere = {"fleet_cluster_networks": NETWORKS} if everywhere is None else everywhere
    hosts = {host: dict(own, **everywhere) for host, own in HOSTS.items()}
    for host, own in (per_host or {}).items():
        hosts[host].update(own)
    fleet = inventory.Fleet("demo", settings=dict(SETTINGS, **(changes or {})))
    return {"models": [model()], "hosts": hosts, "fleet": fleet}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"fleet_create_namespaces": True, "fleet_ca_dir": "~/ca", "fleet_lock_file": "/l.yml"},
        {"fleet_ca_passphrase": False, "fleet_ca_passphrase_file": "~me/p"},
        {"fleet_max_body_bytes": 1 << 20, "relay_host_wait": 600},
        # What the roles take for their defaults.
        {"fleet_depot_dir": "", "fleet_lock_file": "", "fleet_ca_passphrase_file": ""},
    ],
)
def test_sound_settings(changes):
    resolve(**with_settings(changes))


def test_clients_of_the_fleet_are_those_of_models_without_their_own():
    fleet_wide, own = [{"namespace": "team-b"}], [{"pods": {"app": "chat"}}]
    asked = with_settings({"fleet_clients": fleet_wide, "relay_monitor": "pod"})
    asked["models"] = [model(), model(name="own", clients=own, metrics_clients=fleet_wide)]
    found = resolve(**asked)["models"]
    assert found["team-a/tiny"]["clients"] == fleet_wide
    assert found["team-a/tiny"]["metrics_clients"] is None
    assert found["team-a/own"]["clients"] == own
    assert found["team-a/own"]["metrics_clients"] == fleet_wide


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"fleet_clients": []}, "fleet_clients", "at least one client"),
        ({"fleet_clients": [{"cidr": "x"}]}, "fleet_clients[0].cidr", "is no network"),
        (
            {"fleet_clients": [{"namespace": "a"}], "fleet_metrics_clients": [{"pod": 1}]},
            "fleet_metrics_clients[0].pod",
            "no such key",
        ),
        ({"relay_monitor": "pods"}, "relay_monitor", "expected none, pod, service"),
        ({"relay_monitor": True}, "relay_monitor", "the boolean true"),
    ],
)
def test_wrong_clients_and_monitor_of_the_fleet(changes, key, words):
    (mistake,) = mistakes(**with_settings(changes))
    assert (mistake.model, mistake.key) == (None, key)
    assert words in mistake.message


def test_readers_of_metrics_need_clients():
    listed = [{"namespace": "team-b"}]
    asked = with_settings({"fleet_metrics_clients": listed})
    asked["models"] = [model(), model(name="own", clients=listed)]
    (mistake,) = mistakes(**asked)
    assert (mistake.model, mistake.key) == ("team-a/tiny", "clients")
    assert "fleet_metrics_clients says who" in mistake.message
    asked = with_settings({"fleet_metrics_clients": listed, "fleet_clients": listed})
    assert resolve(**asked)["models"]["team-a/tiny"]["metrics_clients"] == listed
    # A list that is wrong itself is one mistake.
    asked = with_settings({"fleet_metrics_clients": listed, "fleet_clients": []})
    assert [item.key for item in mistakes(**asked)] == ["fleet_clients"]


def test_no_host_has_the_name_of_the_relays_metrics():
    hosts = {"relay": {"ansible_host": "192.0.2.1"}}
    groups = {"fleet_hosts": ["relay"], "fleet_cluster": ["cluster"]}
    found = mistakes([model(hosts=["relay"])], hosts=hosts, groups=groups)
    assert [(item.model, item.key) for item in found] == [("host relay", "inventory_hostname")]
    assert "/metrics/relay" in found[0].message


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("fleet_cluster_network", "fleet_cluster_networks"),
        ("fleet_kube_config", "fleet_kubeconfig"),
        ("fleet_passphrase_file", "fleet_ca_passphrase_file"),
        ("fleet_modles", "fleet_models"),
        ("firewall_open_port", "firewall_open_ports"),
        ("relay_images", "relay_image"),
        # Names of their owners' own choice, and facts of a run.
        ("relay_result", None),
        ("firewall_result", None),
        ("ingress_zone", None),
        ("fleet_city", None),
        ("fleet_plan", None),
        ("fleet_renewed", None),
        ("fleet_settled", None),
        ("fleet_gpu_count", None),
        ("ansible_host", None),
    ],
)
def test_a_variable_that_is_misspelt(name, meant):
    found = fleet_settings.misspelt([name, name, "fleet_name"])
    said = [(one.key, one.message) for one in found]
    assert said == ([(name, "is not known; did you mean %s?" % meant)] if meant else [])


def test_the_roles_other_variables_are_known():
    options = set()
    for role in ("firewall", "ingress", "relay"):
        specs = yaml.safe_load((ROLES / role / "meta" / "argument_specs.yml").read_text())
        options |= set(specs["argument_specs"]["main"]["options"])
    assert options == set(fleet_settings.OTHERS)


def test_every_fleet_variable_is_known_and_described():
    described = re.findall(r"^\| `(fleet_[a-z_]+)` \|", INVENTORY_PAGE.read_text(), re.M)
    groups = {"fleet_hosts", "fleet_cluster"}
    assert set(described) - groups == set(fleet_settings.FLEET)


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"relay_image": None}, "relay_image", "is not defined; expected the Envoy image"),
        ({"relay_image": "envoy:1.40"}, "relay_image", "64 hexadecimal digits"),
        ({"relay_image": "@sha256:" + DIGEST}, "relay_image", "64 hexadecimal digits"),
        ({"relay_image": 5}, "relay_image", "the number 5"),
        ({"fleet_create_namespaces": "true"}, "fleet_create_namespaces", "without quotes"),
        ({"fleet_create_namespaces": 1}, "fleet_create_namespaces", "the number 1"),
        ({"fleet_drain_restarts": "no"}, "fleet_drain_restarts", "without quotes"),
        ({"fleet_max_body_bytes": 1000}, "fleet_max_body_bytes", "from 1048576 to 1073741824"),
        ({"fleet_max_body_bytes": "32M"}, "fleet_max_body_bytes", "a whole number"),
        ({"relay_host_wait": 0}, "relay_host_wait", "from 1 to 600"),
        ({"relay_host_wait": True}, "relay_host_wait", "a whole number"),
        ({"fleet_ca_dir": "ca"}, "fleet_ca_dir", "from different folders"),
        ({"fleet_ca_dir": ""}, "fleet_ca_dir", "an empty text"),
        ({"fleet_depot_dir": "./depot"}, "fleet_depot_dir", "begins with / or ~"),
        ({"fleet_lock_file": "fleet.lock.yml"}, "fleet_lock_file", "begins with / or ~"),
        ({"fleet_lock_file": ["/x"]}, "fleet_lock_file", "a list"),
        (
            {"fleet_ca_passphrase": False, "fleet_ca_passphrase_file": "p"},
            "fleet_ca_passphrase_file",
            "begins with / or ~",
        ),
        ({"fleet_ca_passphrase": False}, "fleet_ca_passphrase", "nor is fleet_ca_passphrase_file"),
        ({"fleet_ca_passphrase_file": "/p"}, "fleet_ca_passphrase", "are both given"),
    ],
)
def test_settings(changes, key, words):
    found = mistakes(**with_settings(changes))
    assert [(m.model, m.key) for m in found] == [(None, key)]
    assert words in found[0].message


@pytest.mark.parametrize(
    ("networks", "key", "words"),
    [
        (None, "fleet_cluster_networks", "or firewall_manage: false"),
        ([], "fleet_cluster_networks", "an empty list"),
        ("10.0.0.0/8", "fleet_cluster_networks", "expected a list"),
        ([NETWORKS[0], "10.0.0.1/8"], "fleet_cluster_networks[1]", "write 10.0.0.0/8"),
        (["nodes"], "fleet_cluster_networks[0]", "an address or a network"),
        ([167772160], "fleet_cluster_networks[0]", "in quotes"),
    ],
)
def test_networks(networks, key, words):
    found = mistakes(**with_settings(everywhere={"fleet_cluster_networks": networks}))
    assert [(m.model, m.key) for m in found] == [(None, key)]
    assert words in found[0].message
    # One host's alone is that host's mistake, and none where somebody else keeps the firewall.
    found = mistakes(**with_settings(per_host={"gpu2": {"fleet_cluster_networks": networks}}))
    assert [(m.model, m.key) for m in found] == [("host gpu2", key)]
    resolve(
        **with_settings(
            per_host={"gpu2": {"fleet_cluster_networks": networks, "firewall_manage": False}}
        )
    )


def test_a_hosts_own_sources_are_judged_instead():
    own = {"firewall_ingress_sources": ["10.0.0.0/8"]}
    resolve(**with_settings(everywhere=own))
    own = {"firewall_ingress_sources": ["x"], "fleet_cluster_networks": NETWORKS}
    found = mistakes(**with_settings(everywhere=own))
    assert [(m.model, m.key) for m in found] == [(None, "firewall_ingress_sources[0]")]


def test_firewall_manage_is_a_boolean():
    found = mistakes(**with_settings(everywhere={"firewall_manage": "no"}))
    assert [(m.model, m.key) for m in found] == [(None, "firewall_manage")]


def test_mistakes_of_the_caller_come_with_the_others():
    known = [
        inventory.Mistake(None, "relay_image", "cannot be evaluated"),
        inventory.Mistake("host gpu1", "fleet_cluster_networks", "cannot be evaluated"),
    ]
    given = with_settings(
        {"relay_image": None, "fleet_ca_dir": "x"}, {"gpu1": {"fleet_cluster_networks": None}}
    )
    found = mistakes(**given, known=known)
    assert found[:2] == known
    assert [m.key for m in found[2:]] == ["fleet_ca_dir"]


@pytest.mark.parametrize("name", ["gpu_1", "GPU1", "gpu-", "-gpu", "gpu..1", "g" * 241])
def test_names_under_which_no_host_can_register(name):
    groups = dict(GROUPS, fleet_hosts=["gpu1", name])
    hosts = dict(HOSTS, **{name: {"ansible_host": "192.0.2.77"}})
    found = mistakes([model()], hosts=hosts, groups=groups)
    assert [(m.model, m.key) for m in found] == [("host " + name, "inventory_hostname")]
    assert "rename it in the inventory and give its address as ansible_host" in found[0].message


def test_versions():
    pinned = {"llama_server": CATALOGUE["llama_server"].table.version, "caddy": "2", "a": "1"}
    plan = resolve([model()], pinned=pinned)
    assert plan["versions"] == pinned
    assert list(plan["versions"]) == sorted(pinned)
    assert resolve([model()])["versions"] == {}


@pytest.mark.parametrize(
    ("pinned", "words"),
    [
        ({"caddy": "2"}, "no artifact llama_server"),
        ({"caddy": "2", "llama_server": "0"}, "pins llama_server 0"),
        ({"llama_server": CATALOGUE["llama_server"].table.version}, "no artifact caddy"),
    ],
)
def test_what_the_lock_must_pin(pinned, words):
    found = mistakes([model()], pinned=pinned)
    assert [m.key for m in found] == ["fleet_lock_file"]
    assert words in found[0].message


@pytest.mark.parametrize(
    "name", sorted(path.name for path in pathlib.Path(schema.HERE).glob("*_schema.yml"))
)
def test_each_schema_is_a_sound_one(name):
    """Nobody checks that in a run, where it would cost a tenth of a second each time."""
    validator = schema.validator(name)
    validator.check_schema(validator.schema)


def test_the_contract_and_the_modules_have_one_limit_of_replicas():
    assert schema.validator(SCHEMA).schema["properties"]["replicas"]["maximum"] == 64
    assert forms.MAX_REPLICAS == 64


def test_a_fleet_without_models_still_has_its_hosts():
    plan = resolve([])
    assert list(plan["hosts"]) == ["gpu1", "gpu2", "gpu3"]
    assert plan["hosts"]["gpu1"]["engines"] == []
    assert plan["hosts"]["gpu1"]["artifacts"] == []


def test_plan():
    plan = resolve(
        [model(hosts=["large", "gpu3", "gpu1"], args=["--ctx-size", "2048"])], base="/inventory"
    )
    entry = plan["models"]["team-a/tiny"]
    assert entry["hosts"] == ["gpu1", "gpu2", "gpu3"]
    assert (entry["port"], entry["replicas"], entry["environment"]) == (80, 2, {})
    assert (entry["adopt"], entry["adopt_from"]) == (False, [])
    host = plan["hosts"]["gpu1"]
    engine = host["engines"][0]
    socket = "/run/tether/engines/team-a.tiny/engine.sock"
    path = "/var/lib/tether/models/team-a/%s/tiny.gguf" % DIGEST
    assert engine["argv"][:3] == [
        "/opt/tether/llama_server/current/llama-server",
        "--ctx-size",
        "2048",
    ]
    for flag, value in (("--host", socket), ("--model", path), ("--alias", "tiny")):
        assert engine["argv"][engine["argv"].index(flag) + 1] == value
    assert host["addresses"] == ["192.0.2.1"]
    assert host["names"] == []
    assert plan["hosts"]["gpu2"]["names"] == ["gpu2.example.org"]
    assert plan["hosts"]["gpu3"]["addresses"] == ["2001:db8::3"]
    assert host["daemons"][0]["address_families"] == ["AF_UNIX"]
    assert plan["artifacts"] == {"llama_server": {"hosts": ["gpu1", "gpu2", "gpu3"]}}
    json.dumps(plan)


def test_relative_sources_start_at_the_base():
    plan = resolve(
        [
            model(files=file(source="models/x.gguf")),
            model(name="home", files=file(source="~/x.gguf")),
            model(name="up", files=file(source="../x.gguf")),
        ],
        base="/inventory",
        expand=lambda path: path.replace("~", "/home/me"),
    )
    assert [entry["files"][0]["source"] for entry in plan["models"].values()] == [
        "/home/me/x.gguf",
        "/inventory/models/x.gguf",
        "/x.gguf",
    ]


def test_other_parts_take_the_plan_as_it_is():
    long = "n" * 63
    plan = resolve([model(), model(namespace="ingress"), model(namespace=long, name="m" * 50)])
    host = plan["hosts"]["gpu1"]
    accounts.check_entries(
        [{"comment": "x", "groups": [], "state": "present", **item} for item in host["accounts"]]
    )
    model_store.check_entries([{"state": "present", **item} for item in host["model_files"]])
    paths = {model_store.path_of(model_store.STORE, item): item for item in host["model_files"]}
    assert set(paths) == {item["path"] for e in host["engines"] for item in e["files"]}
    base.check_entries([with_defaults(base.ENTRY_SPEC, item) for item in host["daemons"]])
    assert "team-a" in ingress_config.render({"engines": host["engines"]})


def with_defaults(spec, given):
    """An entry as AnsibleModule would hand it on."""
    assert set(given) <= set(spec), set(given) - set(spec)
    result = {}
    for key, option in spec.items():
        value = given.get(key, option.get("default"))
        if option.get("options") and option["type"] == "dict":
            if value is not None or option.get("apply_defaults"):
                value = with_defaults(option["options"], value or {})
        elif option.get("options") and value:
            value = [with_defaults(option["options"], item) for item in value]
        result[key] = value
    return result


def test_the_order_of_models_does_not_matter():
    models = [model(name="m%d" % i, namespace="n%d" % (i % 3), hosts=["large"]) for i in range(20)]
    shuffled = list(models)
    random.Random(1).shuffle(shuffled)  # noqa: S311
    assert json.dumps(resolve(models)) == json.dumps(resolve(shuffled))


def test_the_input_stays_as_it_was():
    models = [model(hosts=["large"], args=["--mlock"], environment={})]
    before = copy.deepcopy(models)
    resolve(models)
    assert models == before


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(model(args=[], environment={}, port=1, replicas=1))), JSON)
def test_any_value_of_any_key_is_taken_or_named(key, value):
    entry = model()
    entry[key] = value
    try:
        plan = resolve([entry])
    except inventory.InventoryErrors:
        return
    json.dumps(plan, allow_nan=False)


def test_twice_the_models_are_twice_the_work():
    """Two hundred models over forty hosts; counted in calls, which no busy machine changes."""
    hosts = {"h%d" % i: {"ansible_host": "10.1.0.%d" % i} for i in range(1, 41)}
    groups = {"fleet_hosts": list(hosts), "fleet_cluster": ["cluster"]}
    models = [
        model(name="m%d" % i, hosts=["h%d" % (1 + i % 40), "h%d" % (1 + (i + 1) % 40)])
        for i in range(200)
    ]
    resolve(models[:1], hosts, groups)  # what is made once

    def calls(some):
        counted = itertools.count()
        sys.setprofile(lambda _frame, event, _arg: event.endswith("call") and next(counted))
        try:
            resolve(some, hosts, groups)
        finally:
            sys.setprofile(None)
        return next(counted)

    assert calls(models) < 2.5 * calls(models[:100])


def test_local_ports_reach_firewall_ingress_and_the_accounts_files():
    both = [
        model(local_port=8090, local_accounts=["bob", "alice"]),
        model(name="other", local_port=8091, local_accounts=["alice"]),
    ]
    host = resolve(both)["hosts"]["gpu1"]
    assert host["loopback_ports"] == [
        {"port": 8091, "accounts": ["alice"], "server": "tether-ingress"},
        {"port": 8090, "accounts": ["alice", "bob"], "server": "tether-ingress"},
    ]
    folder, *files = host["local_files"]
    assert (folder["path"], folder["state"]) == ("/etc/tether/local", "directory")
    told = {
        item["owner"]: [entry["url"] for entry in json.loads(item["content"])["models"]]
        for item in files
    }
    assert told == {
        "alice": ["http://127.0.0.1:8091", "http://127.0.0.1:8090"],
        "bob": ["http://127.0.0.1:8090"],
    }
    assert {item["mode"] for item in files} == {"0400"}
    assert "http://:8090 {" in ingress_config.render({"engines": host["engines"]})


def test_a_local_port_is_one_models_and_guarded():
    local = {"local_port": 8090, "local_accounts": ["alice"]}
    with pytest.raises(inventory.InventoryErrors) as caught:
        resolve([model(**local), model(name="other", **local)])
    assert "8090 on gpu1 is taken by" in str(caught.value)
    hosts = dict(HOSTS, gpu1=dict(HOSTS["gpu1"], firewall_manage=False))
    with pytest.raises(inventory.InventoryErrors) as caught:
        inventory.resolve([model(**local)], hosts, GROUPS, CATALOGUE, FLEET)
    assert "firewall_manage is false for gpu1" in str(caught.value)
