# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The validate role and action through a real ansible-playbook, on inventories written here."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.manager import VariableManager

from ansible_collections.tether.fleet.plugins.plugin_utils import (
    catalogue,
    doubts,
    inventory,
    lock,
    settings,
)
from ansible_collections.tether.fleet.plugins.plugin_utils.plain import plain

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4))
EXAMPLE = os.path.join(ROOT, "inventories", "example")
PLAYBOOK = """
- hosts: fleet_hosts:fleet_cluster
  gather_facts: false
  roles: [tether.fleet.validate]
- hosts: fleet_hosts:fleet_cluster
  gather_facts: false
  tasks:
    - ansible.builtin.copy:
        content: "{{ fleet_plan | to_json }}"
        dest: "{{ out }}/{{ inventory_hostname }}.json"
        mode: "0600"
      delegate_to: localhost
      check_mode: false
      connection: local
      vars: {ansible_python_interpreter: "{{ ansible_playbook_python }}"}
"""
HOSTS = {
    "all": {
        "vars": {
            "fleet_name": "demo",
            "domain": "example.org",
            "fleet_ca_passphrase": "{{ 'a long ' ~ 'secret text' }}",
        },
        "children": {
            "fleet_hosts": {
                "hosts": {
                    # Nothing listens there: the check opens no connection.
                    "gpu1": {"ansible_host": "gpu1.{{ domain }}"},
                    "gpu2": {"fleet_address": "192.0.2.2"},
                },
                # Each where its users are: the check runs on any host.
                "vars": {"fleet_cluster_networks": ["198.51.100.0/24"]},
            },
            "fleet_cluster": {
                "hosts": {"cluster": {"ansible_connection": "local"}},
                "vars": {"relay_image": "envoy@sha256:" + "0" * 64},
            },
        },
    }
}
MODEL = {
    "name": "tiny",
    "namespace": "team-a",
    "engine": "llama_server",
    "hosts": ["gpu1", "gpu2"],
    "files": [{"name": "tiny.gguf", "source": "models/tiny.gguf", "sha256": "0" * 64}],
}


def play(folder, models, *options, **changes):
    hosts = json.loads(json.dumps(HOSTS))
    hosts["all"]["vars"].update(changes)
    if models is not None:
        hosts["all"]["vars"]["fleet_models"] = models
    (folder / "hosts.yml").write_text(yaml.safe_dump(hosts))
    (folder / "play.yml").write_text(PLAYBOOK)
    (folder / "out").mkdir()
    argv = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook")]
    argv += ["-i", str(folder / "hosts.yml"), str(folder / "play.yml"), *options]
    argv += ["-e", "out=%s" % (folder / "out")]
    environ = dict(os.environ)
    environ.update(
        ANSIBLE_COLLECTIONS_PATH=os.path.join(ROOT, ".ansible", "collections"),
        ANSIBLE_CALLBACK_RESULT_FORMAT="json",
        ANSIBLE_NOCOLOR="1",
        ANSIBLE_INJECT_FACT_VARS="False",
        ANSIBLE_LOCAL_TEMP=str(folder / "tmp"),
    )
    done = subprocess.run(
        argv, env=environ, cwd=str(folder), capture_output=True, text=True, timeout=120
    )
    plans = {path.stem: json.loads(path.read_text()) for path in sorted((folder / "out").iterdir())}
    return done.returncode, done.stdout + done.stderr, plans


def test_every_host_of_a_later_play_has_the_plan(tmp_path):
    code, text, plans = play(tmp_path, [MODEL])
    assert code == 0, text
    assert set(plans) == {"gpu1", "gpu2", "cluster"}
    plan = plans["cluster"]
    assert plans["gpu1"] == plan
    assert plan["hosts"]["gpu1"]["address"] == "gpu1.example.org"
    assert plan["hosts"]["gpu2"]["address"] == "192.0.2.2"
    pinned = lock.load(lock.DEFAULT)["artifacts"]
    assert plan["versions"] == {name: pinned[name]["version"] for name in pinned}
    source = plan["models"]["team-a/tiny"]["files"][0]["source"]
    assert source == str(tmp_path / "models" / "tiny.gguf")
    # Its form is right, and it was hardly meant so.
    # Without blanks: ansible-core 2.17 breaks warnings into lines, in the middle of a path too.
    told = "".join(text.split())
    for words in (
        "Placeholders of an example are left in the inventory: relay_image, host gpu1",
        "Files that are not on this controller: %s for model team-a/tiny." % source,
    ):
        assert "".join(words.split()) in told


@pytest.mark.parametrize("limit", ["gpu2", "cluster"])
def test_the_plan_is_whole_under_limit(tmp_path, limit):
    code, text, plans = play(tmp_path, [MODEL], "--limit", limit, "--check", "--diff")
    assert code == 0, text
    assert set(plans) == {limit}
    assert set(plans[limit]["hosts"]) == {"gpu1", "gpu2"}
    assert plans[limit]["hosts"]["gpu1"]["address"] == "gpu1.example.org"


def test_every_mistake_is_in_one_message(tmp_path):
    wrong = dict(MODEL, hosts=["gpu9"], args=["--host", "0.0.0.0"], port="80")
    code, text, plans = play(tmp_path, [wrong, dict(MODEL, name=True)])
    assert code != 0
    assert plans == {}
    for words in (
        "The inventory has 4 mistakes; nothing was changed.",
        "team-a/tiny: hosts[0]: the inventory has no host or group gpu9",
        "team-a/tiny: args[0]: --host is set by the collection",
        "team-a/tiny: port: is",
        "fleet_models[1]: name: is the boolean true",
    ):
        assert words in text


def test_values_that_cannot_be_evaluated_are_named_by_model_and_key(tmp_path):
    files = [dict(MODEL["files"][0], source="{{ nowhere }}/tiny.gguf")]
    code, text, plans = play(
        tmp_path,
        [
            dict(MODEL, files=files, port="80"),
            dict(MODEL, name="other", engine="{{ nothing }}"),
            dict(MODEL, name="{{ nothing }}"),
            "{{ nothing }}",
        ],
        fleet_name="{{ nothing }}",
        fleet_services=[{"name": "images", "namespace": "team-a", "hosts": ["{{ nothing }}"]}],
    )
    assert code != 0
    assert plans == {}
    for words in (
        "fleet_name: cannot be evaluated: 'nothing' is undefined",
        "team-a/tiny: files[0].source: cannot be evaluated: 'nowhere' is undefined",
        "team-a/tiny: port: is",
        "team-a/other: engine: cannot be evaluated: 'nothing' is undefined",
        "fleet_models[2]: name: cannot be evaluated: 'nothing' is undefined",
        "fleet_models[3]: entry: cannot be evaluated: 'nothing' is undefined",
        "team-a/images: hosts[0]: cannot be evaluated: 'nothing' is undefined",
    ):
        assert words in text, text
    # Nothing else is said of what is not known.
    for words in ("engine: is", "name: is", "entry: is", "hosts[0]: is", "files[0].source: is"):
        assert words not in text, text
    assert "fleet_name: is" not in text


def test_a_list_of_models_that_cannot_be_evaluated(tmp_path):
    code, text, _plans = play(tmp_path, "{{ models_of_team_a + models_of_team_b }}")
    assert code != 0
    assert "The inventory has 1 mistake; nothing was changed." in text
    assert "fleet_models: cannot be evaluated: 'models_of_team_a' is undefined" in text


@pytest.mark.parametrize("playbook", ["site", "drain", "undrain"])
def test_another_inventory_than_the_fleets_is_refused(tmp_path, playbook):
    """Where no host matches a play, Ansible ends well: as if there had been nothing to do."""
    (tmp_path / "others.yml").write_text(yaml.safe_dump({"web": {"hosts": {"web1": None}}}))
    argv = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), "-i", "others.yml"]
    environ = dict(os.environ, ANSIBLE_LOCAL_TEMP=str(tmp_path / "tmp"), ANSIBLE_NOCOLOR="1")
    environ["ANSIBLE_COLLECTIONS_PATH"] = os.path.join(ROOT, ".ansible", "collections")
    environ["ANSIBLE_INJECT_FACT_VARS"] = "False"
    done = subprocess.run(
        [*argv, "tether.fleet." + playbook],
        env=environ,
        cwd=str(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    text = done.stdout + done.stderr
    assert done.returncode == 2, text
    assert "fleet_hosts: the group is missing or empty" in text
    assert (
        "The inventory was read from %s; is it the right one?" % (tmp_path / "others.yml") in text
    )


def test_mistakes_in_the_fleets_variables_are_in_the_same_message(tmp_path):
    code, text, plans = play(
        tmp_path,
        [dict(MODEL, port="80")],
        fleet_ca_passphrase="{{ 'hidden' ~ nothing }}",
        fleet_ca_dir="ca",
        fleet_lock_file="/nowhere/fleet.lock.yml",
        fleet_create_namespaces="{{ nothing }}",
        fleet_kube_config="~/.kube/config",
        firewall_ingress_sources=["10.0.0.1/8"],
    )
    assert code != 0
    assert plans == {}
    for words in (
        "The inventory has 7 mistakes; nothing was changed.",
        "team-a/tiny: port: is",
        "fleet_ca_dir: is",
        "fleet_kube_config: is not known; did you mean fleet_kubeconfig?",
        "fleet_lock_file: lock /nowhere/fleet.lock.yml",
        "fleet_create_namespaces: cannot be evaluated: 'nothing' is undefined",
        "fleet_ca_passphrase: cannot be evaluated: is all that it names defined",
        "firewall_ingress_sources[0]: is",
    ):
        assert words in text, text
    assert "hidden" not in text


def test_facts_of_hosts_must_not_be_variables(tmp_path, monkeypatch):
    """Else a host that was taken over names the controller's kubeconfig, with a command in it."""
    real = subprocess.run

    def run(argv, env, **more):
        return real(argv, env=dict(env, ANSIBLE_INJECT_FACT_VARS="True"), **more)

    monkeypatch.setattr(subprocess, "run", run)
    code, text, plans = play(tmp_path, [MODEL])
    assert code != 0
    assert plans == {}
    assert "inject_facts_as_vars: is true in Ansible's settings; expected false" in text


def test_the_passphrase_is_never_shown(tmp_path):
    code, text, _plans = play(
        tmp_path,
        [MODEL],
        "-vvvv",
        fleet_ca_passphrase="do not show this",
        fleet_ca_passphrase_file="~/passphrase",
    )
    assert code != 0
    assert "fleet_ca_passphrase: and fleet_ca_passphrase_file are both given" in text
    assert "do not show this" not in text


def test_models_that_nobody_defined(tmp_path):
    code, text, _unused = play(tmp_path, None)
    assert code != 0
    assert "fleet_models: is not defined" in text


def test_the_plan_is_data_to_later_templates(tmp_path):
    args = ["--reasoning-budget-message", "{% raw %}{{ lookup('pipe', 'id') }}{% endraw %}"]
    code, text, plans = play(tmp_path, [dict(MODEL, args=args)])
    assert code == 0, text
    assert plans["gpu1"]["models"]["team-a/tiny"]["args"][1] == "{{ lookup('pipe', 'id') }}"


def test_the_example_inventory():
    loader = DataLoader()
    sources = InventoryManager(loader=loader, sources=[EXAMPLE])
    variables = VariableManager(loader=loader, inventory=sources)
    own = {
        host.name: plain(variables.get_vars(host=host, include_hostvars=False))
        for host in sources.get_hosts()
    }
    shared = own["cluster"]
    models = shared["fleet_models"]
    plan = inventory.resolve(
        models,
        own,
        plain(sources.get_groups_dict()),
        catalogue.load(),
        inventory.Fleet(
            shared["fleet_name"],
            shared["fleet_cluster_namespace"],
            settings={key: shared.get(key) for key in settings.OF_CLUSTER + settings.OF_HOSTS},
        ),
        base=EXAMPLE,
    )
    assert len(plan["models"]) == 5
    assert plan["namespaces"] == ["team-a", "team-b"]
    assert [host for host in plan["hosts"] if plan["hosts"][host]["engines"]] == [
        "gpu1",
        "gpu2",
        "gpu3",
    ]
    assert plan["hosts"]["gpu3"]["address"] == "gpu3.example.org"
    digests = [item["sha256"] for item in plan["model_files"]]
    assert len(set(digests)) == 5
    # All that its comments mark as a placeholder is asked about.
    networks = {host: own[host]["fleet_cluster_networks"] for host in plan["hosts"]}
    placeholders, files = doubts.doubts(
        plan, shared["relay_image"], networks, lambda *_file: False, {}
    )
    assert "relay_image, host gpu1: its address, fleet_cluster_networks" in placeholders
    assert "sha256 and source of chat-8b-q4_k_m.gguf" in placeholders
    assert "/srv/models/reasoner-14b-q4_k_m.gguf for model team-a/reasoner" in files
