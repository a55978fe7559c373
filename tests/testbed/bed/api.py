# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reading from the API server, without the cost of a kubectl for every look."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

from . import pki
from .layout import Bed


def get(bed: Bed, path: str) -> Any | None:
    """What the API server says at a path; None if it does not answer well."""
    context = ssl.create_default_context(cafile=str(pki.certificate(bed, "ca")))
    context.load_cert_chain(pki.certificate(bed, "admin"), pki.private_key(bed, "admin"))
    connection = http.client.HTTPSConnection(bed.node_address, 6443, timeout=5, context=context)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    if answer.status != 200:
        return None
    kind = answer.getheader("Content-Type", "")
    return json.loads(body) if "json" in kind else body.decode()


def has_condition(resource: Any | None, kind: str) -> bool:
    """Whether a resource's status has a condition that is true."""
    conditions = (resource or {}).get("status", {}).get("conditions", [])
    return any(item["type"] == kind and item["status"] == "True" for item in conditions)


def rolled_out(deployment: Any | None) -> bool:
    """Whether a Deployment's pods are all there, and all of its present kind."""
    if deployment is None:
        return False
    status, wanted = deployment.get("status", {}), deployment["spec"]["replicas"]
    return status.get("observedGeneration") == deployment["metadata"]["generation"] and all(
        status.get(key) == wanted for key in ("replicas", "updatedReplicas", "availableReplicas")
    )
