# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run the host modules over ssh on a real host.

``TETHER_TEST_SSH_CONFIG`` is an ssh configuration and ``TETHER_TEST_HOST`` a host in it whose units
and accounts ``tether-it...`` belong to these tests. Its account may use sudo.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any, Dict, List

ROOT = pathlib.Path(__file__).resolve().parents[2]
SSH_CONFIG = os.environ.get("TETHER_TEST_SSH_CONFIG", "")
HOST = os.environ.get("TETHER_TEST_HOST", "")


class Result(Dict[str, Any]):
    """A module's result."""

    @property
    def failed(self) -> bool:
        return bool(self.get("failed"))

    @property
    def steps(self) -> List[str]:
        return ["%(action)s %(kind)s %(name)s" % item for item in self.get("changes", [])]


def ssh(command: str, check: bool = True) -> str:
    """A shell command on the host, as root; returns its output."""
    done = subprocess.run(
        ["ssh", "-F", SSH_CONFIG, HOST, "sudo", "-n", "sh", "-s"],
        input=command,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def run(module: str, check: bool = False, **arguments: Any) -> Result:
    """One call of a module through Ansible."""
    with tempfile.TemporaryDirectory(prefix="tether-it-") as tree:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "ansible", "adhoc", HOST, "-i", HOST + ",", "--become"),
                *("-m", "tether.fleet." + module, "-a", json.dumps(arguments)),
                *("--tree", tree, "--diff"),
                *(["--check"] if check else []),
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            env={
                **os.environ,
                "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible/collections"),
                "ANSIBLE_SSH_ARGS": "-F %s -o ControlMaster=auto -o ControlPersist=60s"
                % SSH_CONFIG,
                "ANSIBLE_PIPELINING": "1",
                "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
            },
        )
        path = pathlib.Path(tree) / HOST
        assert path.exists(), done.stdout + done.stderr
        return Result(json.loads(path.read_text()))


def converge(module: str, **arguments: Any) -> Result:
    """Check, run, run again: the check foretells the run, and the second run changes nothing."""
    foretold = run(module, check=True, **arguments)
    assert not foretold.failed, foretold
    done = run(module, **arguments)
    assert not done.failed, done
    assert foretold.steps == done.steps
    assert foretold["changed"] == done["changed"]
    again = run(module, **arguments)
    assert (again.steps, again.failed) == ([], False), again
    return done
