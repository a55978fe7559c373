# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run the host modules over ssh on a real host.

``TETHER_TEST_SSH_CONFIG`` is an ssh configuration and ``TETHER_TEST_HOST`` a host in it whose units
and accounts ``tether-it...`` belong to these tests. Its account may use sudo.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import pathlib
import subprocess
import tarfile
from typing import Any, Dict, List

ROOT = pathlib.Path(__file__).resolve().parents[2]
SSH_CONFIG = os.environ.get("TETHER_TEST_SSH_CONFIG", "")
HOST = os.environ.get("TETHER_TEST_HOST", "")
LIBRARY = "/opt/tether-it-library"
COLLECTION = "ansible_collections/tether/fleet"
OPTIONS = (
    *("-F", SSH_CONFIG, "-o", "ControlMaster=auto", "-o", "ControlPersist=60"),
    *("-o", "ControlPath=/tmp/tether-it-%C"),
)


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
        ["ssh", *OPTIONS, HOST, "sudo", "-n", "sh", "-s"],
        input=command,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def install() -> None:
    """Bring the modules and what they import to the host, once for all calls."""
    found = importlib.util.find_spec("ansible")
    assert found is not None
    assert found.origin is not None
    ansible = pathlib.Path(found.origin).parent
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        # An empty package, as Ansible itself sends it: the controller's own __init__ wants more.
        tar.addfile(tarfile.TarInfo("ansible/__init__.py"))
        for name in ("release.py", "module_utils"):
            tar.add(ansible / name, "ansible/" + name)
        for name in ("modules", "module_utils"):
            tar.add(ROOT / "plugins" / name, COLLECTION + "/plugins/" + name)
    command = "sudo -n sh -c 'rm -rf %s && mkdir -p %s && tar xzC %s'" % (LIBRARY, LIBRARY, LIBRARY)
    subprocess.run(["ssh", *OPTIONS, HOST, command], input=packed.getvalue(), check=True)


def run(module: str, check: bool = False, **arguments: Any) -> Result:
    """One call of a module, over ssh and sudo as Ansible does, without its start-up time."""
    full = {"_ansible_check_mode": check, "_ansible_diff": True, **arguments}
    name = COLLECTION.replace("/", ".") + ".plugins.modules." + module
    command = "cd %s && exec sudo -n /usr/bin/python3 -m %s" % (LIBRARY, name)
    done = subprocess.run(
        ["ssh", *OPTIONS, HOST, command],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": full}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return Result(json.loads(done.stdout))


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
