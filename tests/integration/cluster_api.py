# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run the cluster modules as Ansible does, against a real API server.

``TETHER_TEST_KUBECONFIG`` names a cluster. Each test has a fleet and namespaces of its own, so that
no test waits for a namespace of another one to go: what tests call ``it-a`` is ``it<number>-a`` in
the cluster, translated here in both directions.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
from typing import Any, Dict, List, Optional

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.testing import patch_module_args

from ansible_collections.tether.fleet.plugins.plugin_utils import cluster_question

KUBECONFIG = os.environ.get("TETHER_TEST_KUBECONFIG")
NEEDS_CLUSTER = pytest.mark.skipif(
    KUBECONFIG is None, reason="no cluster: set TETHER_TEST_KUBECONFIG"
)
FLEET_NAMESPACE = "it-fleet"
DIGEST = "@sha256:" + "0" * 64
WRITES = ("POST", "PUT", "PATCH", "DELETE")
MODULES = "ansible_collections.tether.fleet.plugins.modules."

_serial = [os.getpid() % 100000 * 100]


def next_world() -> None:
    """Begin a test: a new fleet, new namespaces."""
    _serial[0] += 1


def _real(text: str) -> str:
    return re.sub(r"\bit-(?=[a-z])", "it%d-" % _serial[0], text)


def _canonical(text: str) -> str:
    return text.replace("it%d-" % _serial[0], "it-")


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


def survey(**arguments: Any) -> Result:
    """The question with which a run of site.yml begins."""
    full = {
        "kubeconfig": KUBECONFIG,
        "fleet": "it%d" % _serial[0],
        "fleet_namespace": FLEET_NAMESPACE,
        **arguments,
    }
    checked = ArgumentSpecValidator(cluster_question.ARGUMENT_SPEC).validate(
        json.loads(_real(json.dumps(full)))
    )
    assert not checked.error_messages, checked.error_messages
    answer = cluster_question.ask(dict(checked.validated_parameters))
    return Result(json.loads(_canonical(json.dumps(answer))))


def run(module: str, check: bool = False, fleet: str = "it", **arguments: Any) -> Result:
    """One call of a module, in a process of its own that is forked from this one."""
    full: Dict[str, Any] = {
        "kubeconfig": KUBECONFIG,
        "_ansible_check_mode": check,
        "_ansible_diff": True,
        "_ansible_remote_tmp": "/tmp",
        "_ansible_keep_remote_files": False,
    }
    if module != "relay_probe":
        full.update(fleet="%s%d" % (fleet, _serial[0]), fleet_namespace=FLEET_NAMESPACE)
    full.update(arguments)
    full = json.loads(_real(json.dumps(full)))
    code = importlib.import_module(MODULES + module)
    with tempfile.TemporaryDirectory() as place:
        output = _forked(code, full, place)
    lines = [line for line in output.splitlines() if line.startswith("{")]
    assert lines, output
    result = Result(json.loads(_canonical(lines[-1])))
    assert "exception" not in result, result["exception"]
    return result


def _forked(code: Any, arguments: Dict[str, Any], place: str) -> str:
    """What a module's main writes, in a process that is forked from this one.

    :param place: for temporary files: the kubernetes library leaves a kubeconfig's key in some,
        which a process that ends as this one does not take away
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            tempfile.tempdir = place
            os.close(reader)
            os.dup2(writer, 1)
            sys.stdout = os.fdopen(1, "w")
            with patch_module_args(arguments):
                code.main()
        except SystemExit:
            sys.stdout.flush()
        except BaseException:  # noqa: BLE001 - the child must end here, whatever happens
            print(traceback.format_exc(), flush=True)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        output = stream.read()
    os.waitpid(child, 0)
    return output


def kubectl(*arguments: str, stdin: Optional[str] = None, check: bool = True) -> str:
    process = subprocess.run(
        ["kubectl", "--kubeconfig", str(KUBECONFIG), *map(_real, arguments)],
        input=None if stdin is None else _real(stdin),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert not check or process.returncode == 0, process.stderr
    return _canonical(process.stdout)


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
    """Remove this test's namespaces; they go in their own time."""
    for name in json.loads(kubectl("get", "namespaces", "-o", "json"))["items"]:
        if name["metadata"]["name"].startswith("it-"):
            kubectl("delete", "namespace", name["metadata"]["name"], "--wait=false")
