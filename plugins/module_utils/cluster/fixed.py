# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Objects of ours that somebody made anew with what no change can mend. Pure.

They are not removed by themselves: that would end relays that may serve, in a run that was to mend.
"""

from __future__ import annotations

from typing import Any, Dict, List

from ansible_collections.tether.fleet.plugins.module_utils.cluster import labels
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal


def beyond_change(item: Dict[str, Any], fleet: str, model: str) -> List[Refusal]:
    """Why one of a model's objects cannot become what it is to be by being changed."""
    spec, meta = item.get("spec") or {}, item["metadata"]
    found: List[str] = []
    if item["kind"] == "Deployment":
        wanted = {"matchLabels": labels.pod_selector(fleet, model)}
        if spec.get("selector") != wanted:
            pairs = (spec.get("selector") or {}).get("matchLabels") or {}
            found.append("another selector (%s), which cannot be changed" % labels.query(pairs))
    # A type that has no address gets one when the type is changed back; a headless one does not.
    elif item["kind"] == "Service" and spec.get("clusterIP") == "None":
        if spec.get("type") != "ExternalName":
            found.append("a headless Service, which never gets an address")
    kind = item["kind"].lower()
    return [
        Refusal(
            "%s %s/%s" % (item["kind"], meta["namespace"], meta["name"]),
            one,
            "the fleet's own, as it made it",
            "Remove it (kubectl delete %s %s -n %s) and run again: it is made anew"
            % (kind, meta["name"], meta["namespace"]),
        )
        for one in found
    ]
