# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hand Services over to relays that have answered a real request, and to no others.

A run that ends before leaves a Service with its former back end; the next one goes on from here.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    envoy_data,
    labels,
    objects,
    probe,
    wait,
)
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client
from ansible_collections.tether.fleet.plugins.module_utils.cluster.writer import Outcome, converge

_PARALLEL = 8


def transfer(
    client: Client, component: Any, desired: Dict[str, Any], outcome: Outcome, timeout: float
) -> None:
    """Ask the relays that are to take a Service over, then switch it.

    :param component: ``relay``
    :param outcome: of the run that brought the relays; what is done here is added to it
    :param timeout: seconds that a model's answers may take
    """
    verdicts = outcome.plan.facts["verdicts"]
    models = [
        model
        for model in desired["models"]
        if verdicts[model.key].transfer and verdicts[model.key].state == "served"
    ]
    if not models:
        return
    with ThreadPoolExecutor(_PARALLEL) as pool:
        lacks = list(pool.map(lambda model: _ask(client, desired["fleet"], model, timeout), models))
    proven = set()
    for model, lack in zip(models, lacks):
        if lack is None:
            proven.add(model.key)
            continue
        verdicts[model.key].state = "waiting"
        verdicts[model.key].reason = "its Service keeps its former back end: %s" % lack
    if not proven:
        return
    second = converge(client, component, dict(desired, hand_over=proven), False)
    outcome.steps += second.steps
    outcome.warnings += second.warnings
    for key, refusal in second.errors.items():
        outcome.errors.setdefault(key, refusal)
    for key in proven:
        # Somebody may have changed the Service since.
        verdict = second.plan.facts["verdicts"][key]
        if verdict.state == "refused":
            verdicts[key].state, verdicts[key].reason = verdict.state, verdict.reason


def _ask(client: Client, fleet: str, model: objects.Model, timeout: float) -> Optional[str]:
    """Why a relay of a model does not serve it yet, or None: asked past the Service."""
    selector = labels.query(labels.pod_selector(fleet, model.name))
    pods: List[Dict[str, Any]] = [
        pod
        for pod in client.list("Pod", selector, model.namespace)
        if not pod["metadata"].get("deletionTimestamp") and wait.shortcoming(pod) is None
    ]
    if not pods:
        return "none of its relay pods is ready"
    name = pods[0]["metadata"]["name"]
    target = "pods/http:%s:%d" % (name, envoy_data.SERVICE_PORT)
    answer = probe.probe(client, model.namespace, model.name, model.port, timeout, target=target)
    return None if answer["ok"] else "relay pod %s: %s" % (name, answer["reason"])
