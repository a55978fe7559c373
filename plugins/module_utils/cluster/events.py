# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Events that say in the cluster itself what the collection did or refused."""

from __future__ import annotations

from typing import Any, Dict

from ansible_collections.tether.fleet.plugins.module_utils.cluster import labels


def event(
    target: Dict[str, Any], reason: str, message: str, fleet: str, warning: bool = True
) -> Dict[str, Any]:
    """An Event about ``target``; its times are set when it is sent.

    :param target: an object or its ``PartialObjectMetadata``, with ``kind``
    """
    meta = target["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "generateName": "%s." % meta["name"],
            "name": "",
            "namespace": meta["namespace"],
            "labels": labels.fleet_labels(fleet),
        },
        "involvedObject": {
            "apiVersion": target.get("apiVersion", "v1"),
            "kind": target["kind"],
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta.get("uid", ""),
        },
        "reason": reason,
        "message": message[:1024],
        "type": "Warning" if warning else "Normal",
        "source": {"component": labels.MANAGER},
        "reportingComponent": labels.MANAGER,
        "reportingInstance": fleet,
        "count": 1,
    }
