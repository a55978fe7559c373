# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run the cluster modules as Ansible does, against a real API server.

``TETHER_TEST_KUBECONFIG`` names a cluster whose namespaces ``it-*`` belong to these tests.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional

ROOT = pathlib.Path(__file__).resolve().parents[2]
KUBECONFIG = os.environ.get("TETHER_TEST_KUBECONFIG")
FLEET = "it"
FLEET_NAMESPACE = "it-fleet"
DIGEST = "@sha256:" + "0" * 64
WRITES = ("POST", "PUT", "PATCH", "DELETE")


class Result(Dict[str, Any]):
    """A module's result."""

    @property
    def failed(self) -> bool:
        return bool(self.get("failed"))

    @property
    def changes(self) -> List[str]:
        return ["%(action)s %(kind)s %(name)s" % item for item in self["changes"]]

    @property
    def writes(self) -> int:
        return sum(self["requests"].get(method, 0) for method in WRITES)


def run(module: str, check: bool = False, **arguments: Any) -> Result:
    """One call of a module, in a process of its own."""
    full = {
        "fleet": FLEET,
        "fleet_namespace": FLEET_NAMESPACE,
        "kubeconfig": KUBECONFIG,
        "_ansible_check_mode": check,
        "_ansible_diff": True,
    }
    if module == "relay_probe":
        del full["fleet"], full["fleet_namespace"]
    full.update(arguments)
    roots = [str(ROOT / ".ansible/collections"), *[path for path in sys.path if path]]
    process = subprocess.run(
        [sys.executable, "-m", "ansible_collections.tether.fleet.plugins.modules." + module],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": full}),
        capture_output=True,
        text=True,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(roots)),
        timeout=300,
        check=False,
    )
    lines = [line for line in process.stdout.splitlines() if line.startswith("{")]
    assert lines, process.stdout + process.stderr
    result = Result(json.loads(lines[-1]))
    assert "exception" not in result, result["exception"]
    return result


def kubectl(*arguments: str, stdin: Optional[str] = None, check: bool = True) -> str:
    process = subprocess.run(
        ["kubectl", "--kubeconfig", str(KUBECONFIG), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert not check or process.returncode == 0, process.stderr
    return process.stdout


def get(kind: str, name: str, namespace: Optional[str] = None) -> Optional[Dict[str, Any]]:
    place = ["-n", namespace] if namespace else []
    text = kubectl(
        "get", kind, name, "-o", "json", "--ignore-not-found", "--show-managed-fields", *place
    )
    return json.loads(text) if text else None


def apply(*objects: Dict[str, Any], manager: str = "somebody") -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    kubectl("create", "--field-manager", manager, "-f", "-", stdin=text)


def clean() -> None:
    """Remove what these tests make: namespaces it-*, and wait until they are gone.

    A bare API server has no controller that empties a namespace, so its objects are removed first.
    """
    names = [
        item["metadata"]["name"]
        for item in json.loads(kubectl("get", "namespaces", "-o", "json"))["items"]
        if item["metadata"]["name"].startswith("it-")
    ]
    kinds = "service,deployment,configmap,secret,networkpolicy,poddisruptionbudget,lease,event,pod"
    for name in names:
        kubectl("delete", kinds, "--all", "-n", name, "--wait=false")
        kubectl("delete", "namespace", name, "--wait=false")
        finalized = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name},
            "spec": {"finalizers": []},
        }
        if os.environ.get("TETHER_TEST_BARE_API"):
            kubectl(
                "replace", "--raw", "/api/v1/namespaces/%s/finalize" % name, "-f", "-",
                stdin=json.dumps(finalized),
            )
    end = time.monotonic() + 120
    for name in names:
        while get("namespace", name) is not None:
            assert time.monotonic() < end, "namespace %s does not go" % name
            time.sleep(0.5)
