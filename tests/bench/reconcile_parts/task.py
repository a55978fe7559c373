# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One task of ansible-playbook on the controller: what it took, found, asked and needed."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_parts.places import BED_STATE, PLAYBOOK, ROOT, BenchError
from bench_parts.progress import say

from .audit import Ledger
from .places import CALLBACKS, FLEET, FLEET_NAMESPACE, ON_CONTROLLER


@dataclass(frozen=True)
class Outcome:
    """What one task did.

    :ivar seconds: from the task's start to its result
    :ivar process: seconds that ansible-playbook ran, for this task alone
    :ivar processor: seconds of a processor that it and its modules took; other load moves it less
    :ivar requests: by verb, as the API server's audit log has them
    :ivar peak: the most memory in MiB that a module had; 0 where it was not asked for
    """

    seconds: float
    process: float
    processor: float
    requests: dict[str, int]
    result: dict[str, Any]
    items: int
    peak: float

    @property
    def changes(self) -> list[str]:
        """What a module of the collection changed."""
        return ["%(action)s %(kind)s %(name)s" % item for item in self.result.get("changes", [])]


def fleet_task(module: str, **arguments: Any) -> dict[str, Any]:
    """A task of the collection's own cluster modules."""
    return {
        "tether.fleet." + module: {
            "kubeconfig": str(BED_STATE / "kubeconfig"),
            "fleet": FLEET,
            "fleet_namespace": FLEET_NAMESPACE,
            **arguments,
        }
    }


def run(
    task: Mapping[str, Any],
    variables: Mapping[str, Any],
    *,
    peak: bool = False,
    may_fail: bool = False,
) -> Outcome:
    """Run one task with the repository's own ansible.cfg.

    :param variables: they come from a file, as a user's would
    :param peak: whether to measure the memory; it costs the task a process more
    :param may_fail: whether the module may say that something needs attention
    """
    with tempfile.TemporaryDirectory(prefix="tether-bench-") as place:
        folder = Path(place)
        record, peaks = folder / "record.json", folder / "peaks"
        (folder / "variables.json").write_text(json.dumps(dict(variables)))
        settings = {"hosts": "localhost", "gather_facts": False, "vars_files": ["variables.json"]}
        if peak:
            settings["vars"] = {
                "ansible_python_interpreter": str(ON_CONTROLLER / "measured_python.py")
            }
        (folder / "play.yml").write_text(json.dumps([{**settings, "tasks": [dict(task)]}]))
        ledger = Ledger()
        began, used = time.monotonic(), _processor()
        done = subprocess.run(
            [PLAYBOOK, str(folder / "play.yml")],
            cwd=ROOT,
            env={
                **os.environ,
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "ANSIBLE_NOCOLOR": "1",
                "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
                "ANSIBLE_CALLBACKS_ENABLED": "record_task",
                "TETHER_BENCH_RECORD": str(record),
                "TETHER_BENCH_PEAK": str(peaks),
                "TETHER_BENCH_PYTHON": sys.executable,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=3600,
        )
        process, processor = time.monotonic() - began, _processor() - used
        if not record.exists():
            raise BenchError(f"no result of {task}:\n{(done.stdout + done.stderr)[-6000:]}"[:8000])
        found = json.loads(record.read_text())
        most = max(map(int, peaks.read_text().split())) / 1024 if peak else 0.0
    result = found["result"]
    if result.get("failed") and not (may_fail and "models" in result):
        raise BenchError(f"{_module(task)} fails: {str(result.get('msg'))[:4000]}")
    say(f"{found['seconds']:6.1f} s  {_module(task)}")
    return Outcome(
        found["seconds"],
        process,
        processor,
        ledger.counts(),
        result,
        found["items"],
        round(most, 1),
    )


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _module(task: Mapping[str, Any]) -> str:
    return next(key for key in task if "." in key)
