# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Marks in records: which hosts drain; and, in the same step, who sends them requests.

It works from what is there, and not from the inventory: a model that the inventory has changed, or
that is refused for whatever reason, is told of a drain like any other, and is told nothing else.
"""

from __future__ import annotations

from typing import Any, Dict, List

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    endpoints,
    labels,
    registration,
    service_objects,
)
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client
from ansible_collections.tether.fleet.plugins.module_utils.cluster.writer import (
    Outcome,
    needed_by,
    step,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal

DRAINING, SERVING = "draining", "serving"
BY_HAND = (DRAINING, SERVING)
# So many models that could not be told are told of one by one.
_TOLD = 10


def observe(client: Client, desired: Dict[str, Any]) -> Dict[str, Any]:
    """One list request a kind, whatever the number of hosts and models."""
    fleet, place = desired["fleet"], desired["fleet_namespace"]
    selectors = {
        "ConfigMap": labels.fleet_selector(fleet),
        # Tokens are none of its business.
        "Secret": labels.query(
            dict(labels.fleet_labels(fleet), **{labels.COMPONENT: labels.RELAY})
        ),
        service_objects.SLICE: service_objects.selector(service_objects.SLICE, fleet),
    }
    records: Dict[str, Any] = {}
    live: Dict[endpoints.Key, Dict[str, Any]] = {}
    for kind, selector in selectors.items():
        for item in client.list(kind, selector):
            meta = item["metadata"]
            if kind == "ConfigMap" and meta["namespace"] == place:
                if meta["labels"].get(labels.RECORD) == "host" and labels.record_host(meta["name"]):
                    records[meta["name"]] = item
                    continue
            live[(kind, meta["namespace"], meta["name"])] = item
    return {"records": records, "live": live, "now": client.now()}


def plan(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """Hosts begin or end to drain; nothing else in their records changes, nor in the cluster.

    ``facts["untold"]`` says by model why its relays cannot be told; ``facts["marked"]`` what
    was said of which host by hand; ``facts["alone"]`` which models no host is left to serve.

    :raises Refusal: for all hosts together that are to drain and that no relay knows
    """
    fleet, place, state = desired["fleet"], desired["fleet_namespace"], desired["state"]
    named = {labels.record_name(host): host for host in desired["hosts"]}
    unknown = sorted(host for name, host in named.items() if name not in observed["records"])
    if unknown and state != SERVING:
        raise Refusal(
            "hosts to drain",
            "no registration record of %s in namespace %s" % (", ".join(unknown), place),
            "one of each: it is what is marked",
            "Leave those out, or run site.yml for them first",
        )
    now = observed["now"].strftime("%Y-%m-%dT%H:%M:%SZ")
    result = Plan(facts={"records": {}, "refused": {}, "marked": {}})
    marks: Dict[str, endpoints.Mark] = {}
    # The records first: where a run is killed, the next one sees what relays have not been told.
    for name, live in sorted(observed["records"].items()):
        before = registration.draining_since(live)
        since = _mark(state, name in named, before, now)
        marks[labels.record_host(name)] = _read(live, since)
        if since != before:
            data = live.get("data") or {}
            item = registration.config_map(name, data, fleet, place, since)
            result.steps.append(step("update", item, live))
            if state in BY_HAND:
                result.facts["marked"][labels.record_host(name)] = state
    result.facts["alone"] = _alone(marks) if state == DRAINING else []
    steps, untold = endpoints.plan(fleet, observed["live"], marks, observed["now"])
    result.steps += steps
    result.facts["untold"] = untold
    return result


def _alone(marks: Dict[str, endpoints.Mark]) -> List[str]:
    """The models that only hosts serve that drain."""
    offered = {model for mark in marks.values() for model in mark.models}
    offered -= {model for mark in marks.values() if not mark.since for model in mark.models}
    return sorted("%s/%s" % model for model in offered)


def _mark(state: str, named: bool, since: str, now: str) -> str:
    """The mark of one host.

    :param named: whether the state is asked for this host
    :param since: the mark that it has
    """
    if state == "restarting":
        # Exactly the hosts named, of all that are not drained by hand.
        if since and not registration.is_restarting(since):
            return since
        return (since or registration.restarting(now)) if named else ""
    if not named:
        return since
    if state == SERVING:
        return ""
    return since if since and not registration.is_restarting(since) else now


def _read(live: Dict[str, Any], since: str) -> endpoints.Mark:
    """What a record says; one that cannot be read offers nothing."""
    try:
        record = registration.parse(live)
    except Refusal:
        return endpoints.Mark(since)
    offered = [one for one in record.get("services") or [] if one["expose"] == "direct"]
    ports = frozenset((one["namespace"], one["name"], one.get("port", 0)) for one in offered)
    served = [(one["namespace"], one["model"]) for one in record["engines"]]
    served += [(one["namespace"], one["name"]) for one in record.get("services") or []]
    return endpoints.Mark(since, frozenset(served), ports)


def told(outcome: Outcome) -> Dict[str, Any]:
    """Of which models the endpoints were changed, and why those of others could not be, or not
    wholly; and the warnings for people."""
    changed: Dict[str, Any] = {}
    for item in outcome.steps:
        for model in needed_by(item):
            changed.setdefault(model, {"changes": []})["changes"].append(item.summary())
    lost = {key: str(error) for key, error in outcome.errors.items()}
    untold = dict(sorted({**outcome.plan.facts["untold"], **lost}.items()))
    warnings = list(untold.values())[:_TOLD]
    if len(untold) > _TOLD:
        warnings.append("%d more models or services could not be told." % (len(untold) - _TOLD))
    if alone := outcome.plan.facts["alone"]:
        warnings.append(
            "%s: no host is left to serve. Requests wait a while (relay_host_wait), then they are"
            " refused, until undrain.yml is run; those of a service that is exposed directly are"
            " refused at once." % ", ".join(alone)
        )
    marked = outcome.plan.facts["marked"]
    return {"endpoints": changed, "untold": untold, "marked": marked, "warnings": warnings}
