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

ROOT = Path(__file__).resolve().parents[4]
ANSIBLE = Path(sys.executable).with_name("ansible-playbook")
MODEL = b"GGUF" + os.urandom(5000)

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
        pin = {
            "source": {"file": str(archive)},
            "file": "prog.zip",
            "size": len(self.archive),
            "sha256": self.digest,
            "format": "zip",
            "binary": "program",
            "extract": [
                {"from": "program", "to": "program", "mode": "0755"},
                {"from": "data", "to": "data"},
            ],
        }
        self.lock: Dict[str, Any] = {
            "schema": 1,
            "artifacts": {"prog": {"version": "1.0", "platforms": {"linux-x86_64": pin}}},
        }
        (base / "model.gguf").write_bytes(MODEL)
        self.model = {"name": "m.gguf", "sha256": hashlib.sha256(MODEL).hexdigest()}

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.archive).hexdigest()

    def tasks(self, *names: str) -> List[Dict[str, Any]]:
        common = {"depot_dir": "depot", "incoming": str(self.var / "incoming"), "chunk_size": 2000}
        every: Dict[str, Dict[str, Any]] = {
            "depot": {
                "lock": "fleet.lock.yml",
                "depot_dir": "depot",
                "artifacts": [{"name": "prog"}],
                "models": [dict(self.model, source="model.gguf")],
            },
            "artifact": dict(
                common,
                lock="fleet.lock.yml",
                names=["prog"],
                platform="linux-x86_64",
                root=str(self.opt),
            ),
            "model_store": dict(
                common,
                models=[dict(self.model, namespace=name) for name in ("a", "b")],
                store=str(self.var / "models"),
            ),
        }
        return [{"tether.fleet." + name: every[name]} for name in names]

    def play(self, *arguments: str, names: tuple = ("depot", "artifact", "model_store")) -> list:
        """Results of the tasks, in order; those after a failed one are skipped."""
        (self.base / "fleet.lock.yml").write_text(json.dumps(self.lock))
        tasks = self.tasks(*names)
        for number, task in enumerate(tasks):
            task.update(register="result%d" % number, ignore_errors=True)
        listing = ", ".join("result%d" % number for number in range(len(tasks)))
        copy = {"content": "{{ [%s] | to_json }}" % listing, "dest": str(self.base / "results")}
        tasks.append({"ansible.builtin.copy": copy, "check_mode": False, "diff": False})
        play = {"hosts": "all", "gather_facts": False, "tasks": tasks}
        (self.base / "ansible.cfg").write_text("[defaults]\n")
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


def changes(results: list) -> list:
    return [result["changes"] for result in results]


def test_predicted_then_done_then_nothing(site: Site) -> None:
    predicted = site.play("--check", "--diff")
    assert not site.opt.exists()
    assert not site.var.exists()
    assert not (site.base / "depot").exists()
    done = site.play("--diff")
    assert not any(result.get("failed") for result in done), done
    assert changes(done) == changes(predicted)
    assert all(changes(done))
    assert all(result["changed"] for result in predicted + done)
    assert "needs" not in done[1]

    binary = done[1]["artifacts"]["prog"]["binary"]
    assert subprocess.check_output([binary], text=True) == "hello\n"
    assert predicted[1]["artifacts"] == done[1]["artifacts"]
    for model in done[2]["models"]:
        assert Path(model["path"]).read_bytes() == MODEL

    assert os.listdir(site.var / "incoming") == []
    assert [path for path in (site.base / "remote").rglob("*") if path.is_file()] == []
    again = site.play()
    assert changes(again) == [[], [], []]
    assert not any(result["changed"] for result in again)


def test_a_transfer_that_was_cut_off_goes_on(site: Site) -> None:
    site.play(names=("depot",))
    incoming = site.var / "incoming" / site.model["sha256"]
    incoming.mkdir(parents=True)
    for folder in (site.var, incoming.parent, incoming):
        folder.chmod(0o700)
    (incoming / "data").write_bytes(MODEL[:2500])
    done = site.play(names=("model_store",))
    assert done[0]["changed"]
    assert Path(done[0]["models"][0]["path"]).read_bytes() == MODEL


def test_a_beginning_that_is_wrong_is_refused_then_mended(site: Site) -> None:
    site.play(names=("depot",))
    incoming = site.var / "incoming" / site.model["sha256"]
    incoming.mkdir(parents=True)
    (incoming / "data").write_bytes(b"x" * 2500)
    done = site.play(names=("model_store",))
    assert done[0]["failed"]
    assert site.model["sha256"] in done[0]["msg"]
    assert not (site.var / "models" / "a" / site.model["sha256"] / "m.gguf").exists()
    assert site.play(names=("model_store",))[0]["changed"]


def test_a_swapped_program_is_put_back(site: Site) -> None:
    program = Path(site.play()[1]["artifacts"]["prog"]["binary"])
    good = program.read_bytes()
    program.write_bytes(b"#!/bin/sh\necho owned\n")
    predicted = site.play("--check", names=("artifact",))
    assert program.read_bytes() != good
    done = site.play(names=("artifact",))
    assert changes(done) == changes(predicted)
    assert program.read_bytes() == good


def test_the_depot_was_not_filled(site: Site) -> None:
    done = site.play(names=("artifact",))
    assert done[0]["failed"]
    assert "Run the depot task first" in done[0]["msg"]
    assert not site.opt.exists()


def test_a_lock_without_a_digest(site: Site) -> None:
    del site.lock["artifacts"]["prog"]["platforms"]["linux-x86_64"]["sha256"]
    for names in (("depot",), ("artifact",)):
        done = site.play(names=names)
        assert done[0]["failed"]
        assert "artifacts.prog.platforms.linux-x86_64: sha256 missing" in done[0]["msg"]


def test_an_archive_that_is_not_the_pinned_one(site: Site) -> None:
    site.lock["artifacts"]["prog"]["platforms"]["linux-x86_64"]["sha256"] = "0" * 64
    done = site.play(names=("depot",))
    assert done[0]["failed"]
    assert site.digest in done[0]["msg"]
    assert "0" * 64 in done[0]["msg"]


def test_no_facts_and_no_platform(site: Site) -> None:
    tasks = site.tasks("artifact")
    del tasks[0]["tether.fleet.artifact"]["platform"]
    site.tasks = lambda *names: tasks  # type: ignore[method-assign]
    done = site.play()
    assert done[0]["failed"]
    assert "Gather facts before this task" in done[0]["msg"]
