# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The summary and progress callbacks in runs of ansible-playbook."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Dict, List

import pytest

ROOT = Path(__file__).resolve().parents[4]
ANSIBLE = Path(sys.executable).with_name("ansible-playbook")
MODEL = b"GGUF" + bytes(3000)
DIGEST = hashlib.sha256(MODEL).hexdigest()
SECRET = "xyzzy-must-not-show"

pytestmark = pytest.mark.skipif(not ANSIBLE.exists(), reason="needs ansible-playbook")


class Run:
    """One run's end: ``table`` is what stands under the summary's banner."""

    def __init__(self, done: subprocess.CompletedProcess[str], folder: Path) -> None:
        self.status, self.text = done.returncode, done.stdout
        self.errors = done.stderr
        _recap, self.banner, rest = self.text.partition("FLEET SUMMARY")
        self.table = rest.partition("\n")[2].strip().splitlines()
        self.checked = "check mode" in rest.partition("\n")[0]
        self.file = folder / "summary.json"
        self.document: Any = json.loads(self.file.read_text()) if self.file.exists() else None


def play(folder: Path, tasks: List[Dict[str, Any]], *options: str, **environment: str) -> Run:
    plays = [{"hosts": "all", "gather_facts": False, "tasks": tasks}]
    (folder / "play.yml").write_text(json.dumps(plays))
    (folder / "ansible.cfg").write_text(
        "[defaults]\ncallbacks_enabled = tether.fleet.summary, tether.fleet.progress\n"
        "[callback_tether_fleet_summary]\njson_file = %s/summary.json\n" % folder
    )
    (folder / "hosts.yml").write_text(
        json.dumps(
            {
                "all": {
                    "hosts": {
                        "gpu1": {"ansible_connection": "local"},
                        # Port 9 of this machine: nobody answers there.
                        "gpu2": {"ansible_host": "127.0.0.1", "ansible_port": 9},
                    }
                }
            }
        )
    )
    done = subprocess.run(
        [ANSIBLE, "-i", "hosts.yml", "play.yml", *options],
        cwd=folder,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible" / "collections"),
            "ANSIBLE_LOCAL_TEMP": str(folder / "local"),
            "ANSIBLE_REMOTE_TMP": str(folder / "remote"),
            "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
            "ANSIBLE_NOCOLOR": "1",
            "COLUMNS": "80",
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return Run(done, folder)


def depot(source: str, digest: str = DIGEST, **keys: Any) -> Dict[str, Any]:
    models = [{"name": "m.gguf", "sha256": digest, "source": source}]
    return {
        "name": "Fetch the model",
        "tether.fleet.depot": {"depot_dir": "depot", "artifacts": [], "models": models},
        **keys,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.gguf").write_bytes(MODEL)
    return tmp_path


def test_predicted_done_and_nothing_more(folder: Path) -> None:
    tasks = [depot("model.gguf")]
    predicted = play(folder, tasks, "--limit", "gpu1", "--check")
    assert predicted.checked
    assert predicted.document["check_mode"] is True
    assert predicted.table[0].split() == ["host", "or", "model", "would", "change", "answers", "at"]
    done = play(folder, tasks, "--limit", "gpu1")
    assert not done.checked
    assert done.document["hosts"] == predicted.document["hosts"]
    assert done.document["ok"]
    assert done.table[1].split()[:3] == ["gpu1", "model", "m.gguf"]
    assert done.table[-1] == "1 host, 0 models: 1 thing changed, nothing failed."
    assert stat.S_IMODE(done.file.stat().st_mode) == 0o600
    again = play(folder, tasks, "--limit", "gpu1")
    assert again.table[-1] == "1 host, 0 models: nothing changed, nothing failed."
    assert not [path for path in folder.iterdir() if path.name.startswith(".summary")]


def test_what_is_done_once_has_a_row_of_its_own(folder: Path) -> None:
    good, bad = depot("model.gguf", run_once=True), depot("nowhere.gguf", "1" * 64, run_once=True)
    done = play(folder, [good], "--limit", "gpu1")
    assert done.table[1].split()[:3] == ["(controller)", "model", "m.gguf"]
    assert done.table[-1] == "1 thing changed, nothing failed."
    failed = play(folder, [bad], "--limit", "gpu1")
    assert list(failed.document["hosts"]) == ["(controller)"]
    assert "nowhere" in failed.document["hosts"]["(controller)"]["failures"][0]["message"]


def test_failures_kept_raised_hidden_ignored_and_hosts_out_of_reach(folder: Path) -> None:
    secret = "echo %s; exit 1" % SECRET
    tasks = [
        depot("model.gguf", "0" * 64, register="one", failed_when=False),
        depot("nowhere.gguf", "1" * 64, ignore_errors=True),
        {"ansible.builtin.command": "true"},
        {"ansible.builtin.fail": {"msg": "{{ one.msg }}"}, "ignore_unreachable": True},
    ]
    run = play(folder, tasks)
    assert run.status != 0
    gpu1, gpu2 = run.document["hosts"]["gpu1"], run.document["hosts"]["gpu2"]
    # The kept failure is told once, under the task that it comes from; the ignored one not at all.
    (failure,) = gpu1["failures"]
    assert failure["task"] == "Fetch the model"
    assert "0" * 64 in failure["message"]
    assert "nowhere" not in json.dumps(run.document)
    assert gpu2["status"] == "unreachable"
    assert gpu2["failures"][-1]["message"].startswith("unreachable: ")
    assert all(len(line) <= 80 for line in run.table)
    assert run.table[-1].endswith("2 rows above need attention.")
    assert not run.document["ok"]

    hidden = [
        depot("model.gguf"),
        {"name": "Whisper", "ansible.builtin.shell": secret, "no_log": True},
    ]
    run = play(folder, hidden, "--limit", "gpu1")
    (failure,) = run.document["hosts"]["gpu1"]["failures"]
    assert failure["task"] == "Whisper" and "no_log" in failure["message"]
    assert SECRET not in run.text + run.file.read_text()


def test_quiet_without_a_task_of_the_collection(folder: Path) -> None:
    (folder / "summary.json").write_text('{"of": "an earlier run"}')
    run = play(folder, [{"ansible.builtin.fail": {"msg": "theirs"}}], "--limit", "gpu1")
    assert run.status != 0
    assert not run.banner
    assert run.document == {"of": "an earlier run"}


def test_output_for_programs_stays_theirs(folder: Path) -> None:
    pytest.importorskip("ansible_collections.ansible.posix", reason="has the json callback")
    run = play(
        folder,
        [depot("model.gguf")],
        "--limit",
        "gpu1",
        ANSIBLE_STDOUT_CALLBACK="ansible.posix.json",
    )
    assert json.loads(run.text)["stats"]["gpu1"]["failures"] == 0
    assert len(run.document["hosts"]["gpu1"]["changes"]) == 1


def test_a_file_that_cannot_be_written(folder: Path) -> None:
    path = str(folder / "no" / "such" / "file")
    run = play(folder, [depot("model.gguf")], "--limit", "gpu1", TETHER_SUMMARY_JSON=path)
    assert run.status == 0
    # Ansible wraps warnings, in the middle of a word too.
    warning = "".join(run.errors.split())
    assert "".join(("json_file %s: found No such file" % path).split()) in warning
    assert "TETHER_SUMMARY_JSON" in warning


class Slow(http.server.BaseHTTPRequestHandler):
    """Answers after two seconds."""

    def do_GET(self) -> None:
        time.sleep(2)
        self.send_response(200)
        self.send_header("Content-Length", str(len(MODEL)))
        self.end_headers()
        self.wfile.write(MODEL)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        pass


@pytest.fixture
def slow() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield "http://127.0.0.1:%d/m.gguf" % server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def test_progress_of_a_long_task_and_none_of_a_short_one(folder: Path, slow: str) -> None:
    tasks = [depot(slow), {"name": "Theirs", "ansible.builtin.command": "sleep 1"}]
    line = 'still at work on "Fetch the model" after'
    run = play(
        folder, tasks, "--limit", "gpu1", TETHER_PROGRESS_INTERVAL="0.5", no_proxy="127.0.0.1"
    )
    assert run.status == 0, run.text + run.errors
    said = [text.strip() for text in run.text.splitlines() if "still at work" in text]
    assert said and all(text.startswith(line) and text.endswith(" s: gpu1") for text in said), said
    assert '"Theirs"' not in "".join(said)
    short = play(folder, tasks[:1], "--limit", "gpu1", TETHER_PROGRESS_INTERVAL="0.9")
    assert "still at work" not in short.text
