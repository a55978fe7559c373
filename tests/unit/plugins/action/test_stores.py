# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""depot, artifact and model_store as a playbook uses them, over a local connection."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ansible_collections.tether.fleet.plugins.plugin_utils import answer

ROOT = Path(__file__).resolve().parents[4]
ANSIBLE = Path(sys.executable).with_name("ansible-playbook")
MODEL = b"GGUF" + os.urandom(5000)
MODEL_FILE = {"name": "m.gguf", "sha256": hashlib.sha256(MODEL).hexdigest()}

pytestmark = pytest.mark.skipif(not ANSIBLE.exists(), reason="needs ansible-playbook")


class Site:
    """A controller and a host in one folder."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.opt, self.var = base / "opt", base / "var"
        archive = base / "prog.zip"
        with zipfile.ZipFile(archive, "w") as packed:
            packed.writestr("program", b"#!/bin/sh\necho hello\n")
            packed.writestr("data", os.urandom(3000))
        self.archive = archive.read_bytes()
        self.digest = hashlib.sha256(self.archive).hexdigest()
        (base / "model.gguf").write_bytes(MODEL)
        (base / "fleet.lock.yml").write_text(json.dumps(self.lock(sha256=self.digest)))
        (base / "ansible.cfg").write_text("[defaults]\npipelining = true\n")

    def lock(self, **keys: Any) -> Dict[str, Any]:
        pin = {
            "source": {"file": str(self.base / "prog.zip")},
            "file": "prog.zip",
            "size": len(self.archive),
            "format": "zip",
            "binary": "program",
            "extract": [
                {"from": "program", "to": "program", "mode": "0755"},
                {"from": "data", "to": "data"},
            ],
        }
        pin.update(keys)
        return {
            "schema": 1,
            "artifacts": {"prog": {"version": "1.0", "platforms": {"linux-x86_64": pin}}},
        }

    def depot(self, **keys: Any) -> Dict[str, Any]:
        options: Dict[str, Any] = {
            "lock": "fleet.lock.yml",
            "depot_dir": "depot",
            "artifacts": ["prog"],
            "models": [dict(MODEL_FILE, source="model.gguf")],
        }
        return {"tether.fleet.depot": dict(options, **keys)}

    def artifact(self, **keys: Any) -> Dict[str, Any]:
        options: Dict[str, Any] = {
            "lock": "fleet.lock.yml",
            "depot_dir": "depot",
            "names": ["prog"],
            "platform": "linux-x86_64",
            "root": str(self.opt),
            "incoming": str(self.var / "incoming"),
            "chunk_size": 2000,
        }
        return {"tether.fleet.artifact": dict(options, **keys)}

    def model_store(self, *namespaces: str) -> Dict[str, Any]:
        options: Dict[str, Any] = {
            "depot_dir": "depot",
            "models": [dict(MODEL_FILE, namespace=name) for name in namespaces],
            "store": str(self.var / "models"),
            "incoming": str(self.var / "incoming"),
            "chunk_size": 2000,
        }
        return {"tether.fleet.model_store": options}

    def play(self, tasks: List[Dict[str, Any]], *arguments: str) -> List[Any]:
        """Results of the tasks, in order; all are run, also after a failed one."""
        for number, task in enumerate(tasks):
            task.update(register="result%d" % number, ignore_errors=True)
        listing = ", ".join("result%d" % number for number in range(len(tasks)))
        copy = {"content": "{{ [%s] | to_json }}" % listing, "dest": str(self.base / "results")}
        tasks.append({"ansible.builtin.copy": copy, "check_mode": False, "diff": False})
        play = {"hosts": "all", "gather_facts": False, "tasks": tasks}
        (self.base / "play.yml").write_text(json.dumps([play]))
        subprocess.run(
            [ANSIBLE, "-i", "h,", "-c", "local", "play.yml", *arguments],
            cwd=self.base,
            env=dict(
                os.environ,
                ANSIBLE_COLLECTIONS_PATH=str(ROOT / ".ansible" / "collections"),
                ANSIBLE_LOCAL_TEMP=str(self.base / "local"),
                ANSIBLE_REMOTE_TMP=str(self.base / "remote"),
                ANSIBLE_PYTHON_INTERPRETER=sys.executable,
                ANSIBLE_CONFIG=str(self.base / "ansible.cfg"),
            ),
            capture_output=True,
            check=True,
        )
        return list(json.loads((self.base / "results").read_text()))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def changes(results: List[Any]) -> List[Any]:
    return [result["changes"] for result in results]


def test_predicted_then_done_then_nothing_then_mended(site: Site) -> None:
    def tasks() -> List[Dict[str, Any]]:
        return [site.depot(), site.artifact(), site.model_store("a", "b")]

    predicted = site.play(tasks(), "--check", "--diff")
    assert not site.opt.exists()
    assert not site.var.exists()
    assert not (site.base / "depot").exists()
    done = site.play(tasks(), "--diff")
    assert not any(result.get("failed") for result in done), done
    assert changes(done) == changes(predicted)
    assert all(changes(done))
    assert all(result["changed"] for result in predicted + done)
    assert "needs" not in done[1]

    program = Path(done[1]["artifacts"]["prog"]["binary"])
    assert subprocess.check_output([program], text=True) == "hello\n"
    assert predicted[1]["artifacts"] == done[1]["artifacts"]
    for model in done[2]["models"]:
        assert Path(model["path"]).read_bytes() == MODEL
    assert os.listdir(site.var / "incoming") == []
    assert [path for path in (site.base / "remote").rglob("*") if path.is_file()] == []

    again = site.play(tasks())
    assert changes(again) == [[], [], []]
    assert not any(result["changed"] for result in again)

    good = program.read_bytes()
    program.write_bytes(b"#!/bin/sh\necho owned\n")
    predicted = site.play([site.artifact()], "--check")
    assert program.read_bytes() != good
    done = site.play([site.artifact()])
    assert changes(done) == changes(predicted) != [[]]
    assert program.read_bytes() == good


@pytest.mark.parametrize("right", [True, False])
def test_a_transfer_that_was_cut_off(site: Site, right: bool) -> None:
    """It goes on; when what had arrived is wrong, it is refused, and starts anew next time."""
    incoming = site.var / "incoming" / MODEL_FILE["sha256"]
    incoming.mkdir(parents=True)
    (incoming / "data").write_bytes(MODEL[:2500] if right else b"x" * 2500)
    done = site.play([site.depot(), site.model_store("a"), site.model_store("a")])
    if right:
        assert [result["changed"] for result in done] == [True, True, False]
    else:
        assert done[1]["failed"]
        assert "expected sha256 %s" % MODEL_FILE["sha256"] in done[1]["msg"]
        assert done[2]["changed"]
    path = site.var / "models" / "a" / MODEL_FILE["sha256"] / "m.gguf"
    assert path.read_bytes() == MODEL


def test_refusals(site: Site) -> None:
    unpinned, wrong = site.lock(), site.lock(sha256="0" * 64)
    done = site.play(
        [
            site.artifact(),
            site.artifact(platform=None),
            site.artifact(names=["other"]),
            site.artifact(lock=unpinned),
            site.depot(lock=unpinned),
            site.depot(lock=wrong, models=[]),
            site.depot(artifacts=[], models=[dict(MODEL_FILE, source="nowhere")]),
        ]
    )
    expected = [
        "Run the depot task first",
        "Gather facts before this task",
        "no pin of that name",
        "artifacts.prog.platforms.linux-x86_64: sha256 missing",
        "artifacts.prog.platforms.linux-x86_64: sha256 missing",
        "found sha256 %s (%d bytes)" % (site.digest, len(site.archive)),
        "no readable file",
    ]
    for result, words in zip(done, expected, strict=True):
        assert result["failed"]
        assert not result["changed"]
        assert words in result["msg"]
    assert not site.opt.exists()
    assert not site.var.exists()


def test_a_depot_says_what_it_fetched_beside_what_it_could_not(site: Site) -> None:
    """Also in check mode, as far as it can be seen before a download."""
    nowhere = dict(MODEL_FILE, source="nowhere")

    def tasks() -> List[Dict[str, Any]]:
        return [site.depot(models=[nowhere]), site.depot(artifacts=[], models=[nowhere])]

    predicted = site.play(tasks(), "--check")
    assert not (site.base / "depot").exists()
    done = site.play(tasks())
    for results in (predicted, done):
        assert [result["changed"] for result in results] == [True, False]
        assert all(result["failed"] for result in results)
        assert all("no readable file" in result["msg"] for result in results)
        assert [change["name"] for change in results[0]["changes"]] == ["prog 1.0 linux-x86_64"]
    assert not any(result["changed"] for result in site.play(tasks()))


OTHER = b"GGUF of another namespace"
OTHER_FILE = {"name": "other.gguf", "sha256": hashlib.sha256(OTHER).hexdigest()}


def taken(site: Site, said: Dict[str, Any], task: Dict[str, Any]) -> Dict[str, Any]:
    """A task on a host that was taken over: whatever it is to run, it gives the same answer."""
    liar = site.base / ("liar-%d" % len(list(site.base.glob("liar-*"))))
    liar.write_text("#!/bin/sh\ncat > /dev/null\ncat <<'END'\n%s\nEND\n" % json.dumps(said))
    liar.chmod(0o755)
    return dict(task, vars={"ansible_python_interpreter": str(liar)})


@pytest.fixture
def filled(site: Site) -> Site:
    (site.base / "other.gguf").write_bytes(OTHER)
    models = [dict(MODEL_FILE, source="model.gguf"), dict(OTHER_FILE, source="other.gguf")]
    assert site.play([site.depot(models=models)])[0]["changed"]
    return site


def need(**keys: Any) -> Dict[str, Any]:
    own = {"sha256": MODEL_FILE["sha256"], "size": len(MODEL), "have": 0, "what": "x"}
    return dict(own, **keys)


UNTRUE = [
    ([need(sha256=OTHER_FILE["sha256"])], OTHER_FILE["sha256"]),
    ([need(), need(sha256=OTHER_FILE["sha256"])], OTHER_FILE["sha256"]),
    ([need(sha256="../../../etc/shadow")], "etc/shadow"),
    ([need(sha256=["x"])], "'x'"),
    ([need(), need()], MODEL_FILE["sha256"]),
    (["\x1b[31mred"], "'\\x1b[31mred'"),
    ("everything", "'everything'"),
    ([need(have=-1)], "-1 bytes"),
    ([need(have=len(MODEL) + 1)], "%d bytes" % (len(MODEL) + 1)),
    ([need(have=True)], "True bytes"),
    ([need(have="0")], "'0' bytes"),
    ([need(have=None)], "None bytes"),
]


def test_a_host_gets_no_more_than_the_task_has_for_it(filled: Site) -> None:
    said = [{"changed": False, "changes": [], "models": [], "needs": one} for one, _ in UNTRUE]
    results = filled.play([taken(filled, one, filled.model_store("a")) for one in said])
    for result, (_needs, found) in zip(results, UNTRUE, strict=True):
        assert result["failed"]
        assert found in result["msg"]
        assert "it may have been taken over" in result["msg"]
        assert "\x1b" not in result["msg"]
    assert "chunk-" not in " ".join(map(str, (filled.base / "remote").rglob("*")))


def test_of_an_artifact_too(filled: Site) -> None:
    """And how far a chunk brought it is the host's word as well."""
    said = {"changed": False, "needs": [need()], "have": {filled.digest: 10**9}}
    foreign = taken(filled, said, filled.artifact())
    assert "it may have been taken over" in filled.play([foreign])[0]["msg"]
    said["needs"] = [need(sha256=filled.digest, what="\x1b[31mfake")]
    done = filled.play([taken(filled, said, filled.artifact())])[0]
    assert "prog 1.0: found 1000000000 bytes there by the host's answer" in done["msg"]
    assert "fake" not in done["msg"]


@pytest.mark.parametrize("failed", [False, True])
def test_an_answer_is_no_order_to_the_controller(filled: Site, failed: bool) -> None:
    said = {
        "changed": True,
        "changes": [],
        "ansible_facts": {"fleet_kubeconfig": "/tmp/mine"},
        "add_host": {"host_name": "mine", "groups": ["fleet_hosts"], "host_vars": {}},
        "add_group": "mine",
        "ansible_stats": {"data": {"x": 1}, "per_host": False, "aggregate": False},
        "invocation": {"module_args": {}},
        "_ansible_notify": ["mine"],
    }
    if failed:
        said.update(failed="yes", msg="no", needs=[need()])
    facts = {"ansible.builtin.debug": {"msg": "{{ fleet_kubeconfig | default('unset') }}"}}
    done = filled.play([taken(filled, said, filled.model_store("a")), facts])
    assert not set(said) & {*done[0]} - {"changed", "changes", "failed", "msg"}
    assert done[0]["failed"] is failed
    assert done[1]["msg"] == "unset"


def test_a_call_that_failed_on_the_way_stays_failed() -> None:
    said = {"failed": False, "msg": "no", "ansible_facts": {"x": 1}}
    assert answer.cleaned(said, failed=True) == {"failed": True, "msg": "no"}
    assert answer.cleaned({"failed": False, "msg": "well"}) == {"failed": False, "msg": "well"}
