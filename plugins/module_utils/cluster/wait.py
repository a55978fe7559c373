# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Wait, with a limit, until relays run; say why one does not.

The predicates are pure; one list request a round serves all models.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    answers,
    labels,
    retry,
)
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client

# Reasons with which a container does not start however long one waits.
_HOPELESS = (
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)
_LOG_LINES = 10


def unfinished(deployment: Dict[str, Any]) -> Optional[str]:
    """What a Deployment still lacks, or None when all that is wanted runs."""
    meta, spec = deployment["metadata"], deployment["spec"]
    status = deployment.get("status") or {}
    wanted = spec.get("replicas", 1)
    if int(status.get("observedGeneration") or 0) < int(meta.get("generation") or 0):
        return "its latest change has not been looked at yet"
    for name, key in (("updated", "updatedReplicas"), ("available", "availableReplicas")):
        if int(status.get(key) or 0) < wanted:
            return "%d of %d relays are %s" % (int(status.get(key) or 0), wanted, name)
    if int(status.get("replicas") or 0) > wanted:
        return "%d relays of the former version still run" % (status["replicas"] - wanted)
    return None


def cannot_make_pods(deployment: Optional[Dict[str, Any]]) -> Optional[str]:
    """Why the cluster refuses a Deployment's pods (a quota, a policy, a limit), or None. Pure."""
    condition = retry.refusal(deployment)
    return str(condition.get("message") or condition.get("reason")) if condition else None


def is_current(pod: Dict[str, Any], deployment: Optional[Dict[str, Any]]) -> bool:
    """Whether a pod was made from a Deployment as it now is, and not from a former version."""
    if deployment is None or pod["metadata"].get("deletionTimestamp"):
        return False

    def made_of(spec: Dict[str, Any]) -> List[Any]:
        keys = ("name", "image", "command", "args")
        return [[item.get(key) for key in keys] for item in spec.get("containers") or []]

    wanted = made_of(deployment["spec"]["template"]["spec"])
    return all(item in made_of(pod["spec"]) for item in wanted)


def hopeless(pod: Dict[str, Any]) -> Optional[str]:
    """Why a pod will not start by waiting, or None."""
    reason = _waiting(pod)
    return reason if reason and reason.split(":")[0] in _HOPELESS else None


def shortcoming(pod: Dict[str, Any]) -> Optional[str]:
    """What keeps a pod from being ready, or None when it is."""
    failure = hopeless(pod)
    if failure:
        return failure
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition.get("status") == "True":
            continue
        if condition.get("type") == "PodScheduled":
            return "not scheduled: %s" % (condition.get("message") or condition.get("reason"))
        if condition.get("type") == "Ready":
            return _waiting(pod) or "not ready"
    return None


def _waiting(pod: Dict[str, Any]) -> Optional[str]:
    for container in (pod.get("status") or {}).get("containerStatuses") or []:
        waiting = (container.get("state") or {}).get("waiting") or {}
        ended = (container.get("lastState") or {}).get("terminated") or {}
        if waiting.get("reason") == "CrashLoopBackOff" and ended:
            # Its own message says only for how long the kubelet pauses.
            return "CrashLoopBackOff: exit status %s (%s)" % (
                ended.get("exitCode"),
                ended.get("reason"),
            )
        if waiting.get("reason"):
            return ("%s: %s" % (waiting["reason"], waiting.get("message") or "")).rstrip(": ")
    return None


def wait(
    client: Client, fleet: str, wanted: List[Tuple[str, str]], timeout: float, pause: float = 1.0
) -> Dict[Tuple[str, str], Optional[str]]:
    """Wait for the relays of models.

    A failure counts at once when it is of this run; an older one is tried again first. Without time
    to wait nothing is tried again: that is a look only.

    :param wanted: (namespace, model) of each
    :param timeout: seconds for all of them together
    :return: for each None, or why it does not run
    """
    end = time.monotonic() + timeout
    selector = "%s,%s=relay" % (labels.fleet_selector(fleet), labels.COMPONENT)
    result: Dict[Tuple[str, str], Optional[str]] = {}
    pending = set(wanted)
    again = retry.Retry(client)
    while True:
        found = {_model(item): item for item in client.list("Deployment", selector)}
        for model in sorted(pending):
            item = found.get(model)
            lack = "its Deployment is gone" if item is None else unfinished(item)
            result[model] = lack
            if lack is None:
                pending.discard(model)
        over = time.monotonic() > end
        if pending:
            pods: Dict[Tuple[str, str], List[Dict[str, Any]]] = {}
            for pod in client.list("Pod", selector):
                pods.setdefault(_model(pod), []).append(pod)
            for model in sorted(pending):
                item = found.get(model)
                current = [pod for pod in pods.get(model, []) if is_current(pod, item)]
                reason = _verdict(client, item, current, None if over else again)
                if reason:
                    result[model] = "%s; %s" % (result[model], reason)
                    pending.discard(model)
        if over or not pending:
            return result
        time.sleep(pause)


def _verdict(
    client: Client,
    deployment: Optional[Dict[str, Any]],
    pods: List[Dict[str, Any]],
    again: Optional[retry.Retry],
) -> Optional[str]:
    """Why a model's relays do not run; with ``again``, only what no more waiting mends."""
    if again is None:
        return _refused_pods(deployment) or _explain(client, pods, True)
    final = [pod for pod in pods if hopeless(pod) and not again.awaits_another(pod, deployment)]
    refused = None if again.awaits_pods(deployment) else _refused_pods(deployment)
    return refused or _explain(client, final, False)


def _model(item: Dict[str, Any]) -> Tuple[str, str]:
    meta = item["metadata"]
    return meta["namespace"], (meta.get("labels") or {}).get(labels.MODEL, "")


def _refused_pods(deployment: Optional[Dict[str, Any]]) -> Optional[str]:
    message = cannot_make_pods(deployment)
    if message is None or deployment is None:
        return None
    advice = answers.of_admission(message, deployment["metadata"]["namespace"])
    if advice is None:
        return "its pods are refused: %s" % message
    return "its pods are refused (%s); expected %s. %s" % (message, *advice)


def _explain(client: Client, pods: List[Dict[str, Any]], over: bool) -> Optional[str]:
    """Why pods do not run: at once if that is final, else when the time is over."""
    for pod in sorted(pods, key=lambda item: item["metadata"]["creationTimestamp"], reverse=True):
        reason = shortcoming(pod) if over else hopeless(pod)
        if not reason:
            continue
        name, place = pod["metadata"]["name"], pod["metadata"]["namespace"]
        lines = client.logs(place, name, _LOG_LINES, previous="CrashLoop" in reason).strip()
        told = "pod %s: %s" % (name, reason)
        if lines:
            told += ". Its last lines: %s" % lines
        elif not hopeless(pod):
            # In one line: else a tenant's event could pass for lines of the run's own.
            told += ". %s" % " ".join(client.last_warning(place, name).split())
        return (told + remedy(reason)).rstrip(". ") + "."
    return None


def remedy(reason: str) -> str:
    """What to do about a pod that does not start, as a sentence; empty where nobody knows. Pure."""
    if "Image" in reason.split(":", maxsplit=1)[0]:
        return ". Check relay_image, and that the nodes reach its registry and may pull from it"
    if reason.startswith("not scheduled"):
        return ". Make room on the nodes, or lower the model's replicas"
    return ""
