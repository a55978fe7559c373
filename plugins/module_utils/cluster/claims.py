# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What of a model's objects is somebody else's, and what becomes of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    events,
    fixed,
    former,
    handover,
    objects,
    ownership,
    strays,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal, Step

Object = Dict[str, Any]
Key = Tuple[str, str, str]


# A tenant may make thousands: the first ones are told, and when they are gone the next.
_MAX_STRAYS = 3


@dataclass
class Conflict:
    """An object of somebody else that keeps a model from being set up.

    :ivar finding: what is remembered of it: it is told anew when that changes
    :ivar reason: what was found and what to do
    """

    item: Object
    finding: Dict[str, str]
    reason: str

    @property
    def name(self) -> str:
        return _name(self.item)


@dataclass
class Claims:
    """What stands in a model's way, or was there before it.

    :ivar stuck: objects of the fleet's own that no change can mend
    :ivar service: whether its Service is somebody else's, handed over or to be
    :ivar adopt: the step that hands it over, where that is not done yet
    :ivar release: the step that gives it back, where it is no longer to be adopted
    """

    conflicts: List[Conflict] = field(default_factory=list)
    stuck: List[Refusal] = field(default_factory=list)
    service: bool = False
    adopt: Optional[Step] = None
    release: Optional[Step] = None


def of_model(model: objects.Model, keys: List[Key], fleet: str, observed: Object) -> Claims:
    """Look at everything that has one of a model's names.

    :param keys: kind, namespace and name of its objects
    :param observed: ``ours``, ``foreign``, and ``services`` and ``strays`` where there are any
    """
    claims = Claims()
    foreign = observed["foreign"]
    for key in keys:
        live = observed["ours"].get(key)
        if live is not None and former.is_adopted(live):
            _adopted(claims, live, model, fleet)
        elif live is not None:
            claims.stuck += fixed.beyond_change(live, fleet, model.name)
        elif key in foreign and model.adopt and key in observed.get("services", {}):
            _existing(claims, observed["services"][key], model, fleet)
        elif key in foreign:
            claims.conflicts.append(_foreign(foreign[key]))
    others = [
        item
        for item in observed.get("strays", {}).get((model.namespace, model.name), [])
        # Those of a service that is reached directly are ours.
        if ("EndpointSlice", model.namespace, item["metadata"]["name"]) not in observed["ours"]
    ]
    for item in sorted(others, key=lambda one: str(one["metadata"]["name"]))[:_MAX_STRAYS]:
        owner = ownership.describe_owner(item)
        claims.conflicts.append(_conflict(item, owner, strays.reason(item, owner)))
    return claims


def event(conflict: Conflict, model: objects.Model, fleet: str) -> Step:
    """The step that tells an object's owner why it stays as it is."""
    kind = conflict.item["kind"]
    message = (
        "Model %s of fleet %s is not set up: this %s is not the fleet's (%s) and stays as it is."
        % (model.key, fleet, kind, conflict.finding["owner"])
    )
    return Step(
        "create",
        "Event",
        "OwnershipRefused on %s" % conflict.name,
        after=message,
        data={
            "object": events.event(conflict.item, "OwnershipRefused", message, fleet),
            "live": None,
            "model": "",
            "finding": conflict.name,
        },
    )


def _existing(claims: Claims, service: Object, model: objects.Model, fleet: str) -> None:
    claims.service = True
    refusals = handover.judge(service, model, fleet)
    if refusals:
        claims.conflicts.append(_refused(service, refusals))
    else:
        claims.adopt = handover.adopt(service, model, fleet)


def _adopted(claims: Claims, service: Object, model: objects.Model, fleet: str) -> None:
    if model.adopt:
        _existing(claims, service, model, fleet)
        return
    claims.service = True
    try:
        claims.release = handover.release(service, model.key, fleet)
    except Refusal as refusal:
        claims.conflicts.append(_refused(service, [refusal]))
        return
    claims.conflicts.append(_foreign(service))


def _foreign(item: Object) -> Conflict:
    owner = ownership.describe_owner(item)
    reason = "%s exists and is not this fleet's (%s). Remove or rename it, or rename the model" % (
        _name(item),
        owner,
    )
    if item["kind"] == "Service":
        reason += ", or have it handed over with adopt: true"
    return _conflict(item, owner, reason)


def _conflict(item: Object, owner: str, reason: str) -> Conflict:
    return Conflict(item, {"uid": item["metadata"].get("uid", ""), "owner": owner}, reason)


def _name(item: Object) -> str:
    return "%s %s/%s" % (item["kind"], item["metadata"]["namespace"], item["metadata"]["name"])


def _refused(service: Object, refusals: List[Refusal]) -> Conflict:
    """A Service that may be handed over by the inventory, and cannot."""
    owner = "; ".join("%s: found %s" % (one.what, one.found) for one in refusals)
    return _conflict(service, owner[:400], " ".join(str(one) for one in refusals))
