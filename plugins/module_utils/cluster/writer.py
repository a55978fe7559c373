# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Carry a plan out: under the Lease, read again, each write checked and retried quietly.

A component of the cluster side is a module with ``observe(client, desired)``, which only reads, and
a pure ``plan(desired, observed)`` whose steps hold the objects to write. A run whose plan is empty
writes nothing at all, not even the Lease.
"""

from __future__ import annotations

import datetime
import secrets
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    diff,
    events,
    labels,
    state,
)
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client, Failed
from ansible_collections.tether.fleet.plugins.module_utils.cluster.lease import Lease, LeaseLost
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal, Step

_ATTEMPTS = 5


class Moved(Exception):  # noqa: N818 - what happened, not that it is an error
    """Something came into being, or went, between the reading and the writing."""


@dataclass
class Outcome:
    """What a run did.

    :ivar plan: the last plan, with its facts
    :ivar steps: what was carried out, or would be
    :ivar errors: what stopped a model, by model
    :ivar warnings: what went wrong without stopping anything
    """

    plan: Plan
    steps: List[Step] = field(default_factory=list)
    errors: Dict[str, Refusal] = field(default_factory=dict)
    warnings: List[str] = field(default_factory=list)

    def result(self) -> Dict[str, Any]:
        """As a module result; the steps are those carried out."""
        return Plan(self.steps, self.plan.facts).result()


def step(
    action: str,
    desired: Optional[Dict[str, Any]],
    live: Optional[Dict[str, Any]] = None,
    model: str = "",
    **data: Any,
) -> Step:
    """A step that writes or removes one object, with its masked diff.

    :param model: the model's key; what fails for one model does not stop another
    :param data: ``models``: keys of all who need a step that is not one model's alone; else
        what the component needs; ``event``: reason, message and fleet of what is then told;
        ``touch``: the pods that are then woken, as ``wake`` gives it;
        ``patch``: what is merged into a live object that is not ours
    """
    item = desired or live or {}
    meta = item["metadata"]
    place = meta.get("namespace")
    return Step(
        action,
        item["kind"],
        "%s/%s" % (place, meta["name"]) if place else meta["name"],
        before=diff.text(live, desired, desired),
        after=diff.text(desired, None, live),
        data=dict(data, object=desired, live=live, model=model),
    )


def wake(fleet: str, namespace: str, model: str, now: datetime.datetime) -> Tuple[Any, str]:
    """A step's ``touch``: the pods whose files its object holds, and what they are touched with."""
    selector = labels.query(labels.pod_selector(fleet, model))
    # Two runs within a second are two changes: the same text would wake nobody.
    value = now.strftime("%Y-%m-%dT%H:%M:%SZ-") + secrets.token_hex(2)
    return (namespace, selector), value


def converge(client: Client, component: Any, desired: Dict[str, Any], check_mode: bool) -> Outcome:
    """Plan and, unless in check mode, write.

    :param desired: at least ``fleet``, ``fleet_namespace``, ``lease_timeout``
    """
    plan = component.plan(desired, component.observe(client, desired))
    if check_mode or not plan.steps:
        return Outcome(plan, list(plan.steps))
    fleet, namespace = desired["fleet"], desired["fleet_namespace"]
    outcome = Outcome(plan)
    # The Lease needs its namespace.
    for item in plan.steps:
        if item.kind == "Namespace" and item.name == namespace:
            try:
                client.create(item.data["object"])
                outcome.steps.append(item)
            except Failed as error:
                if error.status != 409:
                    raise
    with Lease(client, namespace, fleet, desired["lease_timeout"]) as lease:
        for attempt in range(_ATTEMPTS):
            outcome.plan = component.plan(desired, component.observe(client, desired))
            last = attempt == _ATTEMPTS - 1
            try:
                _write_all(client, lease, outcome, last)
                break
            except Moved:
                time.sleep(0.2 * (attempt + 1))
    return outcome


def _write_all(client: Client, lease: Lease, outcome: Outcome, last: bool) -> None:
    """
    :param last: whether what moves has moved for the last time: it then costs its model alone,
        else whoever makes an object anew all the time would stop everybody
    :raises Moved: to look again at everything
    """
    touched: Dict[Tuple[str, str], str] = {}
    untold: List[str] = []
    for item in outcome.plan.steps:
        models = needed_by(item)
        if models and all(model in outcome.errors for model in models):
            continue
        lease.check()
        if untold and _is_state(item):
            item.data["object"] = state.without(item.data["object"], untold)
        try:
            made = _write_last(client, item) if last else _write(client, item)
        except LeaseLost:
            raise
        except Refusal as refusal:
            if item.kind == "Event":
                outcome.warnings.append("No event could be sent: %s" % refusal)
                untold.append(item.data["finding"])
            elif _is_state(item):
                # What follows is an Event said twice; it is no reason to leave models unserved.
                outcome.warnings.append("What was refused is not remembered: %s" % refusal)
            elif models:
                for model in models:
                    outcome.errors.setdefault(model, refusal)
            else:
                raise
            continue
        outcome.steps.append(item)
        if item.data.get("event") and made:
            _announce(client, item, made, outcome)
        if item.data.get("touch"):
            touched[item.data["touch"][0]] = item.data["touch"][1]
    for (namespace, selector), value in touched.items():
        _touch(client, namespace, selector, value)


def needed_by(item: Step) -> List[str]:
    """Keys of the models that a step is for; none when the whole run needs it. Pure."""
    model = item.data.get("model")
    return [model] if model else list(item.data.get("models") or [])


def _is_state(item: Step) -> bool:
    return item.kind == "ConfigMap" and item.name.endswith("/" + labels.STATE_NAME)


def _announce(client: Client, item: Step, made: Dict[str, Any], outcome: Outcome) -> None:
    """Send the Event of a step that was just carried out: such a step comes once."""
    reason, message, fleet = item.data["event"]
    try:
        _send(client, events.event(dict(made, kind=item.kind), reason, message, fleet, False))
    except Refusal as refusal:
        outcome.warnings.append("No event could be sent: %s" % refusal)


def _send(client: Client, event: Dict[str, Any]) -> None:
    now = client.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    client.create(dict(event, firstTimestamp=now, lastTimestamp=now))


def _write(client: Client, item: Step) -> Optional[Dict[str, Any]]:
    """Carry one step out; what was created or patched."""
    wanted, live = item.data["object"], item.data["live"]
    if item.kind == "Event":
        _send(client, wanted)
        return None
    if item.action == "remove":
        meta = live["metadata"]
        client.delete(item.kind, meta.get("namespace"), meta["name"], meta["uid"])
        return None
    if item.data.get("patch"):
        meta = live["metadata"]
        try:
            return client.merge(item.kind, meta["namespace"], meta["name"], item.data["patch"])
        except Failed as error:
            if error.status in (404, 409):
                raise Moved("%s %s" % (item.kind, item.name)) from error
            raise
    if item.action == "create":
        try:
            return client.create(wanted)
        except Failed as error:
            if error.status == 409:
                raise Moved("%s %s" % (item.kind, item.name)) from error
            raise
    _update(client, item, wanted, live)
    return None


def _write_last(client: Client, item: Step) -> Optional[Dict[str, Any]]:
    """As ``_write``; what has moved once more is refused."""
    try:
        return _write(client, item)
    except Moved as moved:
        raise Refusal(
            str(moved),
            "it changes each time that it is looked at",
            "it to stay as it is while it is written",
            "Find out who else writes it, then run again",
        ) from moved


def _update(client: Client, item: Step, wanted: Dict[str, Any], live: Dict[str, Any]) -> None:
    meta = live["metadata"]
    # The uid makes the server refuse if this is no longer the object whose owner was looked at.
    body = dict(wanted, metadata=dict(wanted["metadata"], uid=meta["uid"]))
    for attempt in range(_ATTEMPTS):
        try:
            index = diff.needs_upgrade(live)
            if index is not None:
                live = client.json_patch(
                    item.kind,
                    meta.get("namespace"),
                    meta["name"],
                    [
                        {
                            "op": "test",
                            "path": "/metadata/resourceVersion",
                            "value": live["metadata"]["resourceVersion"],
                        },
                        {
                            "op": "replace",
                            "path": "/metadata/managedFields/%d/operation" % index,
                            "value": "Apply",
                        },
                    ],
                )
            surplus = diff.surplus(wanted, live)
            if surplus:
                surplus.setdefault("metadata", {})["resourceVersion"] = live["metadata"][
                    "resourceVersion"
                ]
                live = client.merge(item.kind, meta.get("namespace"), meta["name"], surplus)
            client.apply(body)
            return
        except Failed as error:
            if error.status not in (404, 409, 422) or attempt == _ATTEMPTS - 1:
                raise
            time.sleep(0.1 * (attempt + 1))
            fresh = client.get(item.kind, meta["name"], meta.get("namespace"))
            if fresh is None or fresh["metadata"]["uid"] != meta["uid"]:
                raise Moved("%s %s" % (item.kind, item.name)) from error
            if (
                error.status == 422
                and fresh["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]
            ):
                raise
            live = fresh


def _touch(client: Client, namespace: str, selector: str, value: str) -> None:
    """Let the kubelet look at the files of these pods at once instead of within a minute."""
    for pod in client.list("Pod", selector, namespace):
        try:
            client.merge(
                "Pod",
                namespace,
                pod["metadata"]["name"],
                {"metadata": {"annotations": {labels.CONFIG_ANNOTATION: value}}},
            )
        except Failed as error:
            # A pod that ends needs no new files; without the right to touch it they come later.
            if error.status not in (403, 404, 409):
                raise
