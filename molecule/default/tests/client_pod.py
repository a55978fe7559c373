# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The pod from which a scenario's tests ask as a user's program would."""

from __future__ import annotations

import json
from typing import Iterator

import bed
import pytest

CLIENT = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "client", "namespace": bed.CLIENTS},
    "spec": {
        # Nothing mounted and no rights: the way in is the Service alone.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "client",
                "image": "tether.bed/client:1",
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "infinity"],
                "securityContext": {
                    "runAsUser": 65534,
                    "runAsNonRoot": True,
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    },
}


@pytest.fixture(scope="session", autouse=True)
def client_pod() -> Iterator[None]:
    """A pod in a namespace that the fleet knows nothing of."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": bed.CLIENTS}}
    bed.kubectl("apply", "-f", "-", text_in=json.dumps(namespace))
    bed.kubectl("apply", "-f", "-", text_in=json.dumps(CLIENT))
    bed.kubectl("wait", "-n", bed.CLIENTS, "pod/client", "--for=condition=Ready", "--timeout=60s")
    yield
    bed.kubectl("delete", "namespace", bed.CLIENTS, "--wait=false")
