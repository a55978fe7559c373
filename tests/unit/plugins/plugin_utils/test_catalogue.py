# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os

import pytest
import yaml

from ansible_collections.tether.fleet.plugins.plugin_utils import catalogue, inventory

ROOT = os.path.join(os.path.dirname(__file__), *[os.pardir] * 4)

TOY = """
engine: toy
title: toy-server
artifact: toy
binary: bin/toy
listener: tcp
argv: [serve, "{file}", "--listen", "127.0.0.1:{port}", "--name={namespace}.{model}"]
environment:
  set: {TOY_MODEL: "{model}"}
  accepted:
    - {name: TOY_DEVICE, type: choice, choices: [cpu, gpu]}
health: {path: /ready, status: 204, timeout: 10}
stop_timeout: 5
paths:
  - {path: /v1/models, methods: [GET]}
arguments:
  version: "1.2"
  flags:
    - {names: [--listen], type: string, collection: the loopback port is the inventory's}
    - {names: [--threads, -t], type: int, min: 1, max: 8}
"""

MODEL = {
    "name": "tiny",
    "namespace": "team-a",
    "engine": "toy",
    "hosts": ["gpu1"],
    "engine_port": 8081,
    "files": [{"name": "tiny.bin", "source": "/srv/tiny.bin", "sha256": "0" * 64}],
    "args": ["-t", "4"],
    "environment": {"TOY_DEVICE": "cpu"},
}
HOSTS = {"gpu1": {"ansible_host": "192.0.2.1"}}
GROUPS = {"fleet_hosts": ["gpu1"], "fleet_cluster": ["cluster"]}


def toy(tmp_path, **changes):
    data = yaml.safe_load(TOY)
    data.update(changes)
    (tmp_path / "toy.yml").write_text(yaml.safe_dump(data))
    return catalogue.load(str(tmp_path))


def test_a_users_own_engines(tmp_path):
    (tmp_path / "toy.yml").write_text(TOY)
    (tmp_path / "notes.txt").write_text("no engine")
    engines, problems = catalogue.load_own(str(tmp_path), ["llama_server"])
    assert (list(engines), problems) == (["toy"], [])
    # One file's mistake is no other's.
    (tmp_path / "broken.yml").write_text("a: [")
    (tmp_path / "other.yml").write_text("engine: other")
    engines, problems = catalogue.load_own(str(tmp_path), ["toy"])
    assert list(engines) == ["toy"]
    for name, words in (
        ("broken.yml", "line 2"),
        ("other.yml", "'title' is a required property"),
        ("toy.yml", "the collection has an engine toy already; name yours otherwise"),
    ):
        assert any(str(tmp_path / name) in text and words in text for text in problems), problems


def test_a_folder_without_engines(tmp_path):
    for folder, words in ((tmp_path, "no file <engine>.yml"), (tmp_path / "no", "No such file")):
        engines, problems = catalogue.load_own(str(folder), [])
        assert engines == {}
        assert len(problems) == 1
        assert words in problems[0]


def test_the_shipped_catalogue_is_sound():
    engines = catalogue.load()
    assert "llama_server" in engines
    assert not engines["llama_server"].needs_port


def test_the_shipped_catalogue_agrees_with_the_lock():
    with open(os.path.join(ROOT, "fleet.lock.yml"), encoding="utf-8") as stream:
        pins = yaml.safe_load(stream)["artifacts"]
    for name, engine in catalogue.load().items():
        pin = pins[engine.data["artifact"]]
        # The table of arguments is that of one version: a new pin needs a look at the table.
        assert engine.table.version == str(pin["version"]), name
        for platform in pin["platforms"].values():
            assert engine.data["binary"] == platform["binary"], name


def test_a_new_engine_is_one_file(tmp_path):
    plan = inventory.resolve([MODEL], HOSTS, GROUPS, toy(tmp_path), inventory.Fleet("demo"))
    host = plan["hosts"]["gpu1"]
    engine = host["engines"][0]
    path = "/var/lib/tether/models/team-a/%s/tiny.bin" % ("0" * 64)
    assert engine["argv"] == [
        "/opt/tether/toy/current/bin/toy",
        "-t",
        "4",
        "serve",
        path,
        "--listen",
        "127.0.0.1:8081",
        "--name=team-a.tiny",
    ]
    assert engine["environment"] == {"TOY_DEVICE": "cpu", "TOY_MODEL": "tiny"}
    assert engine["socket"] is None
    assert engine["upstream"] == "127.0.0.1:8081"
    assert host["daemons"][0]["health"]["port"] == 8081
    assert host["daemons"][0]["address_families"] == ["AF_UNIX", "AF_INET", "AF_INET6"]
    assert host["loopback_ports"] == [
        {"port": 8081, "accounts": ["tether-ingress"], "server": "tether-team-a"}
    ]
    assert plan["artifacts"] == {"toy": {"hosts": ["gpu1"]}}


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"engine_port": 8081}, "engine_port", "8081 on gpu1 is taken by team-a/other"),
        ({"engine_port": None}, "engine_port", "is missing; toy listens on a loopback port"),
        ({"engine_port": 9443}, "engine_port", "the ingress's own port"),
    ],
)
def test_ports(tmp_path, changes, key, words):
    models = [dict(MODEL, name="other"), {**MODEL, **changes}]
    models = [{k: v for k, v in model.items() if v is not None} for model in models]
    with pytest.raises(inventory.InventoryErrors) as caught:
        inventory.resolve(models, HOSTS, GROUPS, toy(tmp_path), inventory.Fleet("demo"))
    found = [(m.model, m.key) for m in caught.value.mistakes]
    assert found == [("team-a/tiny", key)]
    assert words in str(caught.value)


def test_one_port_on_two_hosts_is_fine(tmp_path):
    hosts = dict(HOSTS, gpu2={"ansible_host": "192.0.2.2"})
    groups = dict(GROUPS, fleet_hosts=["gpu1", "gpu2"])
    models = [MODEL, dict(MODEL, name="other", hosts=["gpu2"])]
    plan = inventory.resolve(models, hosts, groups, toy(tmp_path), inventory.Fleet("demo"))
    assert [len(plan["hosts"][host]["engines"]) for host in ("gpu1", "gpu2")] == [1, 1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine": "other"}, "the file is named toy.yml"),
        ({"listener": "udp"}, "listener"),
        ({"binary": "../toy"}, "binary"),
        ({"binary": "/bin/sh"}, "binary"),
        ({"argv": ["{file}", "{prot}"]}, "no slot {prot}"),
        ({"argv": ["{file}"]}, "needs {port}"),
        ({"argv": ["{port}"]}, "needs {file}"),
        ({"argv": ["{file}", "{port}", "{socket}"]}, "no slot {socket}"),
        ({"argv": ["{file}", "{port}", "--threads"]}, "mark as the collection's"),
        ({"metrics": "/metrics?x"}, "metrics"),
        ({"metrics": "/v1/models"}, "/v1/models is for relays alone"),
        ({"paths": [{"path": "/.Tether/metrics", "methods": ["GET"]}]}, "is for relays alone"),
        ({"colour": "red"}, "colour"),
        ({"paths": []}, "paths"),
        ({"paths": [{"path": "v1", "methods": ["GET"]}]}, "paths"),
        ({"health": {"path": "/", "status": 200}}, "health"),
        (
            {"arguments": {"version": "1", "flags": [{"names": ["-a"], "type": "choice"}]}},
            "a choice needs choices",
        ),
        (
            {
                "arguments": {
                    "version": "1",
                    "flags": [
                        {"names": ["-a"], "type": "switch"},
                        {"names": ["-a"], "type": "switch"},
                    ],
                }
            },
            "-a is in row 0 already",
        ),
        (
            {
                "arguments": {
                    "version": "1",
                    "flags": [{"names": ["-a"], "type": "string", "pattern": "("}],
                }
            },
            "pattern",
        ),
        (
            {
                "arguments": {
                    "version": "1",
                    "flags": [
                        {"names": ["-a"], "type": "switch", "collection": "x", "refused": "y"}
                    ],
                }
            },
            "exclude each other",
        ),
    ],
)
def test_mistakes_in_a_catalogue_file_are_named(tmp_path, changes, words):
    with pytest.raises(catalogue.CatalogueError) as caught:
        toy(tmp_path, **changes)
    assert "toy.yml" in str(caught.value)
    assert words in str(caught.value)


def test_slots_are_filled_in_one_pass(tmp_path):
    engine = toy(tmp_path)["toy"]
    slots = {"model": "{port}", "namespace": "n", "file": "{model}", "port": "1", "socket": ""}
    argv = engine.argv(slots, ["{file}"])
    # A brace in a value or in a model's own argument is text.
    assert argv[1:4] == ["{file}", "serve", "{model}"]
    assert argv[-1] == "--name=n.{port}"


@pytest.mark.parametrize(
    ("args", "given", "wanted"),
    [
        ([], None, 4),
        (["--parallel", "-1"], None, 4),
        (["-np", "8"], None, 8),
        (["--ctx-size", "4096", "--parallel", "1"], None, 1),
        (["--keep", "-1", "-np", "2"], 7, 7),
        (["-np", "2"], 0, 0),
    ],
)
def test_the_engine_says_how_many_requests_run_unless_the_model_does(args, given, wanted):
    entry = dict(MODEL, engine="llama_server", args=args, environment={})
    del entry["engine_port"]
    if given is not None:
        entry["parallel"] = given
    plan = inventory.resolve([entry], HOSTS, GROUPS, catalogue.load(), inventory.Fleet("demo"))
    assert plan["models"]["team-a/tiny"]["parallel"] == wanted


@pytest.mark.parametrize(
    ("known", "wanted"),
    [(None, 0), ({"default": 256}, 256), ({"flag": "--threads", "default": 2}, 4)],
)
def test_without_a_word_of_the_catalogue_there_is_no_limit(tmp_path, known, wanted):
    engines = toy(tmp_path, **({} if known is None else {"parallel": known}))
    plan = inventory.resolve([MODEL], HOSTS, GROUPS, engines, inventory.Fleet("demo"))
    assert plan["models"]["team-a/tiny"]["parallel"] == wanted


def test_a_queue_without_a_limit_is_a_mistake(tmp_path):
    with pytest.raises(inventory.InventoryErrors) as caught:
        inventory.resolve(
            [dict(MODEL, queue=5)], HOSTS, GROUPS, toy(tmp_path), inventory.Fleet("demo")
        )
    assert "queue: says nothing without a limit" in str(caught.value)
    entry = dict(MODEL, queue=5, parallel=2)
    plan = inventory.resolve([entry], HOSTS, GROUPS, toy(tmp_path), inventory.Fleet("demo"))
    assert plan["models"]["team-a/tiny"]["queue"] == 5
