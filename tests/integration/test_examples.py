# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every example of a module or filter runs as it stands, against a real host and a real cluster.

In check mode: the examples together would make half a fleet. `examples.py` says what is mapped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import examples
from cluster_api import KUBECONFIG, kubectl
from cluster_ingress import Authority

from ansible_collections.tether.fleet.plugins.module_utils.cluster import registration

SSH_CONFIG = os.environ.get("TETHER_TEST_SSH_CONFIG", "")
HOST = os.environ.get("TETHER_TEST_HOST", "")
NAMES = sorted(examples.documents())
# The address that the examples of registration and relay give their host.
ADDRESS = "192.0.2.11"
FAILS = {
    # Nothing is served in this cluster, so this one must find just that.
    "relay_probe": "1 of 1 models do not answer.\nteam-a/tiny: ",
    # This host is no Mac, as these two must say; the scenario mac runs both on an emulated one.
    "application_firewall": "application firewall: found nothing that can be read from",
    "mac_settings": "power settings: found nothing that can be read from /usr/bin/pmset",
}

pytestmark = pytest.mark.skipif(
    not (SSH_CONFIG and HOST and KUBECONFIG),
    reason="no host or no cluster: set TETHER_TEST_SSH_CONFIG, TETHER_TEST_HOST and "
    "TETHER_TEST_KUBECONFIG",
)


def fill(home: Path) -> None:
    """What the examples find in the home folder and beside their playbook."""
    (home / ".kube").mkdir()
    shutil.copy(str(KUBECONFIG), home / ".kube" / "config")
    for passphrase in (".config/tether/ca.passphrase", ".config/tether/example/ca-passphrase"):
        (home / passphrase).parent.mkdir(parents=True, exist_ok=True)
        (home / passphrase).write_text("an example's own passphrase\n")
    (home / "models").mkdir()
    subprocess.run(
        [sys.executable, examples.ROOT / "tests/models/make_tiny.py", home / "models/tiny.gguf",
         "--seed", "1"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    authority = Authority()
    (home / "fleet-ca.crt").write_text(authority.pem)
    (home / "gpu1.crt").write_text(authority.leaf(ADDRESS).pem)


def connection() -> dict[str, str]:
    """How the inventory's gpu1 leads to the real host, as its account there."""
    said = subprocess.run(
        ["ssh", "-F", SSH_CONFIG, "-G", HOST], capture_output=True, text=True, check=True
    ).stdout
    user = next(line.split()[1] for line in said.splitlines() if line.startswith("user "))
    return {
        "ansible_host": HOST,
        "ansible_user": user,
        "ansible_ssh_common_args": f"-F {SSH_CONFIG}",
        "fleet_address": ADDRESS,
    }


# What a task before the example would have registered or set.
GIVEN: dict[str, Any] = {
    "caddyfile": "# made by the filter caddyfile\n",
    "token": "Zm9yIHRoZSBkb2N1bWVudGF0aW9uLCBub3QgcmVhbCE",
    "identity_address": ADDRESS,
    "envoy_digest": "0" * 64,
    "engines": [],
    "fleet_tokens": {
        "tokens": {
            "team-a": {
                "current": "Zm9yIHRoZSBkb2N1bWVudGF0aW9uLCBub3QgcmVhbCE",
                "generation": "1",
            }
        }
    },
    "identity_result": {"certificates": ["{{ lookup('ansible.builtin.file', 'gpu1.crt') }}"]},
}


@pytest.fixture(scope="module")
def registered() -> Iterator[None]:
    """A host must have a record to be drained, and check mode makes none: so one is there.

    A fleet that earlier tests left on the bed may have one of that name. It waits meanwhile.
    """
    place = "tether-fleet"
    record = {"schema": 1, "host": "gpu1", "address": ADDRESS, "port": 9443, "certificates": []}
    ours = registration.record_object(record, "demo", place)
    name = ("configmap", ours["metadata"]["name"], "--namespace", place, "--ignore-not-found")
    namespace = kubectl("get", "namespace", place, "--ignore-not-found")
    if not namespace:
        kubectl("create", "namespace", place)
    former = kubectl("get", *name, "-o", "json")
    if former:
        kubectl("delete", *name)
    kubectl("create", "-f", "-", stdin=json.dumps(ours))
    yield
    kubectl("delete", *name)
    if former:
        kubectl("create", "-f", "-", stdin=json.dumps(_without_identity(json.loads(former))))
    if not namespace:
        kubectl("delete", "namespace", place)


def _without_identity(item: dict[str, Any]) -> dict[str, Any]:
    """An object as it may be made again."""
    drop = ("uid", "resourceVersion", "creationTimestamp", "managedFields")
    kept = {key: value for key, value in item["metadata"].items() if key not in drop}
    return {**item, "metadata": kept}


@pytest.fixture(scope="module")
def answers(
    registered: None, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    """Name of a module or filter -> what each task of its examples gave."""
    home = tmp_path_factory.mktemp("home")
    fill(home)
    book = examples.playbook(NAMES, home / "models", GIVEN)
    found = examples.run(home, book, connection())
    assert [each.get("msg") for each in found["prepare"] if each.get("failed")] == []
    assert len(found["prepare"]) == len(examples.prepare()), found["prepare"]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_example(answers: dict[str, list[dict[str, Any]]], name: str) -> None:
    given = answers.get(name)
    assert given, "no task of this example ran"
    for answer in given:
        if name in FAILS:
            assert answer["failed"]
            assert answer["msg"].startswith(FAILS[name])
        else:
            assert not answer.get("failed"), answer.get("msg")
            assert not answer.get("unreachable"), answer.get("msg")
