# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Have the cluster try again, once, what failed before this run.

Kubernetes pauses after each failure: up to 5 minutes between two starts of a container, up to 16
between a ReplicaSet's tries to make its pods. Whoever has mended the cause and runs again shall not
be told of the old failure.
"""

from __future__ import annotations

import datetime
import time
from typing import Any, Callable, Dict, Optional

from ansible_collections.tether.fleet.plugins.module_utils.cluster import labels
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client, Failed
from ansible_collections.tether.fleet.plugins.module_utils.cluster.lease import parse_time

# Seconds after which pods that are still refused were refused anew. The condition cannot tell: it
# keeps its first time and text for as long as the tries fail (Kubernetes 1.34,
# pkg/controller/replicaset/replica_set_utils.go).
_PATIENCE = 15.0


def refusal(deployment: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """The condition with which the cluster refuses a Deployment's pods, or None. Pure."""
    for condition in ((deployment or {}).get("status") or {}).get("conditions") or []:
        if (condition.get("type"), condition.get("status")) == ("ReplicaFailure", "True"):
            found: Dict[str, Any] = condition
            return found
    return None


def refused_before(deployment: Optional[Dict[str, Any]], began: datetime.datetime) -> bool:
    """Whether a Deployment's pods are refused since before a time. Pure."""
    condition = refusal(deployment) or {}
    return _is_before(condition.get("lastUpdateTime") or condition.get("lastTransitionTime"), began)


def made_before(
    pod: Dict[str, Any], deployment: Optional[Dict[str, Any]], began: datetime.datetime
) -> bool:
    """Whether a pod is older than a time, and a Deployment's, which makes another for it. Pure."""
    if deployment is None:
        return False
    prefix = deployment["metadata"]["name"] + "-"
    return _is_before(pod["metadata"].get("creationTimestamp"), began) and any(
        owner.get("controller")
        and owner.get("kind") == "ReplicaSet"
        and str(owner.get("name")).startswith(prefix)
        for owner in pod["metadata"].get("ownerReferences") or []
    )


def _is_before(stamp: Optional[str], began: datetime.datetime) -> bool:
    return bool(stamp) and parse_time(str(stamp)) < began


class Retry:
    """What one run has had tried again. Where it may not, it says for good that it waits."""

    def __init__(self, client: Client, patience: float = _PATIENCE) -> None:
        self._client, self._patience = client, patience
        self._began = client.began()
        # By uid when it was asked for, None where the cluster said no.
        self._asked: Dict[str, Optional[float]] = {}

    def awaits_pods(self, deployment: Optional[Dict[str, Any]]) -> bool:
        """Whether a Deployment's refused pods may yet come."""
        if deployment is None or not refused_before(deployment, self._began):
            return False
        meta = deployment["metadata"]

        def annotate() -> None:
            # The Deployment's controller copies it to the ReplicaSet, whose controller then looks
            # at once; the template stays as it is, so nothing is rolled out.
            stamp = self._client.now().strftime("%Y-%m-%dT%H:%M:%SZ")
            note = {"metadata": {"annotations": {labels.RETRY_ANNOTATION: stamp}}}
            place, name = meta["namespace"], meta["name"]
            self._client.merge("Deployment", place, name, note, labels.RETRY_MANAGER)

        asked = self._ask(meta["uid"], annotate)
        return asked is None or time.monotonic() - asked < self._patience

    def awaits_another(self, pod: Dict[str, Any], deployment: Optional[Dict[str, Any]]) -> bool:
        """Whether a pod that does not start gives way to a new one, whose failure will count."""
        if not made_before(pod, deployment, self._began):
            return False
        meta = pod["metadata"]

        def delete() -> None:
            self._client.delete("Pod", meta["namespace"], meta["name"], meta["uid"])

        self._ask(meta["uid"], delete)
        return True

    def _ask(self, uid: str, request: Callable[[], None]) -> Optional[float]:
        if uid not in self._asked:
            try:
                request()
                self._asked[uid] = time.monotonic()
            except Failed:
                # Without that right the cluster's own next try has to be waited for.
                self._asked[uid] = None
        return self._asked[uid]
