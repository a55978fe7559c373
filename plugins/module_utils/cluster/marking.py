# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Marks in records: which hosts drain; and, in the same step, who sends them requests.

It works from what is there, and not from the inventory: a model that the inventory has changed, or
that is refused for whatever reason, is told of a drain like any other, and is told nothing else.
"""

from __future__ import annotations

from typing import Any, Dict

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    endpoints,
    labels,
    registration,
    service_objects,
)
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client
from ansible_collections.tether.fleet.plugins.module_utils.cluster.writer import step
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal

SLICE = service_objects.KINDS[0]


def observe(client: Client, desired: Dict[str, Any]) -> Dict[str, Any]:
    """One list request a kind, whatever the number of hosts and models."""
    fleet, place = desired["fleet"], desired["fleet_namespace"]
    selectors = {
        "ConfigMap": labels.fleet_selector(fleet),
        # Tokens are none of its business.
        "Secret": labels.query(
            dict(labels.fleet_labels(fleet), **{labels.COMPONENT: labels.RELAY})
        ),
        SLICE: service_objects.selector(SLICE, fleet),
    }
    records: Dict[str, Any] = {}
    live: Dict[endpoints.Key, Dict[str, Any]] = {}
    for kind, selector in selectors.items():
        for item in client.list(kind, selector):
            meta = item["metadata"]
            if kind == "ConfigMap" and meta["namespace"] == place:
                if meta["labels"].get(labels.RECORD) == "host":
                    records[meta["name"]] = item
                    continue
            live[(kind, meta["namespace"], meta["name"])] = item
    return {"records": records, "live": live, "now": client.now()}


def plan(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """Hosts begin or end to drain; nothing else in their records changes, nor in the cluster.

    ``facts["untold"]`` says by model why its relays cannot be told.

    :raises Refusal: for all hosts together that are to drain and that no relay knows
    """
    fleet, place, state = desired["fleet"], desired["fleet_namespace"], desired["state"]
    named = {labels.record_name(host): host for host in desired["hosts"]}
    unknown = sorted(host for name, host in named.items() if name not in observed["records"])
    if unknown and state != "serving":
        raise Refusal(
            "hosts to drain",
            "no registration record of %s in namespace %s" % (", ".join(unknown), place),
            "one of each, for no relay knows a host without",
            "Leave those out, or run site.yml for them first",
        )
    now = observed["now"].strftime("%Y-%m-%dT%H:%M:%SZ")
    result = Plan(facts={"records": {}, "refused": {}})
    marks: Dict[str, str] = {}
    # The records first: where a run is killed, the next one sees what relays have not been told.
    for name, live in sorted(observed["records"].items()):
        before = registration.draining_since(live)
        since = _mark(state, name in named, before, now)
        marks[name[len(labels.record_name("")) :]] = since
        if since != before:
            data = live.get("data") or {}
            item = registration.config_map(name, data, fleet, place, since)
            result.steps.append(step("update", item, live))
    steps, untold = endpoints.plan(fleet, observed["live"], marks, observed["now"])
    result.steps += steps
    result.facts["untold"] = untold
    return result


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
    if state == "serving":
        return ""
    return since if since and not registration.is_restarting(since) else now
