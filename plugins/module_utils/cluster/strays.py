# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""EndpointSlices that somebody else keeps for a Service's name: they send its requests elsewhere.

kube-proxy takes every slice with the Service's name in its label, whatever the selector says.
"""

from __future__ import annotations

from typing import Any, Dict, List, Set, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import labels
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client

KIND = "EndpointSlice"

# Kubernetes' own controllers, as of 1.34: one follows selectors, one copies Endpoints objects.
_OF_SELECTORS = "endpointslice-controller.k8s.io"
_MIRROR = "endpointslicemirroring-controller.k8s.io"

Place = Tuple[str, str]


def look_up(client: Client, places: Set[Place]) -> Dict[Place, List[Dict[str, Any]]]:
    """Such slices of Services by (namespace, name), with one request; their metadata alone."""
    if not places:
        return {}
    selector = "%s,%s!=%s" % (labels.SLICE_SERVICE, labels.SLICE_MANAGER, _OF_SELECTORS)
    found: Dict[Place, List[Dict[str, Any]]] = {}
    for item in client.list(KIND, selector, metadata_only=True):
        meta = item["metadata"]
        place = meta["namespace"], meta["labels"][labels.SLICE_SERVICE]
        if place in places:
            found.setdefault(place, []).append(item)
    return found


def reason(item: Dict[str, Any], owner: str) -> str:
    """Why one keeps a Service from being served. Pure.

    :param owner: who keeps it, in words
    """
    meta = item["metadata"]
    place, marks = meta["namespace"], meta.get("labels") or {}
    service = marks.get(labels.SLICE_SERVICE)
    if marks.get(labels.SLICE_MANAGER) == _MIRROR:
        reason = (
            "EndpointSlice %s/%s exists and mirrors an Endpoints object. It sends requests for"
            " Service %s elsewhere, whatever that Service's selector says: remove that object"
            " (kubectl delete endpoints %s -n %s)" % (place, meta["name"], service, service, place)
        )
    else:
        reason = (
            "EndpointSlice %s/%s exists and is not Kubernetes' own (%s). It sends requests for"
            " Service %s elsewhere, whatever that Service's selector says: remove it (kubectl"
            " delete endpointslice %s -n %s), or take its label %s off"
            % (place, meta["name"], owner, service, meta["name"], place, labels.SLICE_SERVICE)
        )
    return reason
