# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where live relays and direct services send requests, brought to the marks in records. Pure.

Nothing else of them changes: all that is needed is read from the objects themselves. They are in
tenants' namespaces, so one that cannot be read never stops another.
"""

from __future__ import annotations

import base64
import datetime
from dataclasses import dataclass, replace
from typing import Any, Dict, FrozenSet, List, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    envoy,
    envoy_data,
    host_list,
    labels,
    objects,
    registration,
    service_objects,
    services,
)
from ansible_collections.tether.fleet.plugins.module_utils.cluster.writer import step, wake
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal, Step

Key = Tuple[str, str, str]
Live = Dict[Key, Dict[str, Any]]


@dataclass(frozen=True)
class Mark:
    """What the record of a host says.

    :ivar since: since when it drains, or nothing
    :ivar models: namespace and name of what it serves
    :ivar ports: namespace, name and port of the direct services that answered when it registered
    """

    since: str = ""
    models: FrozenSet[Tuple[str, str]] = frozenset()
    ports: FrozenSet[Tuple[str, str, int]] = frozenset()


def plan(
    fleet: str, live: Live, marks: Dict[str, Mark], now: datetime.datetime
) -> Tuple[List[Step], Dict[str, str]]:
    """What differs, and by model why its relays cannot be told.

    :param live: what the fleet has of ConfigMaps, Secrets and EndpointSlices
    :param marks: of each host that has a record
    """
    steps: List[Step] = []
    untold: Dict[str, str] = {}
    served = {model for mark in marks.values() for model in mark.models}
    # What no host serves may be anybody's with copied labels; it takes nobody else's time.
    for place, name, direct in sorted(_models(live), key=lambda one: one[:2] not in served):
        model = objects.Model(name, place)
        try:
            found = (_direct if direct else _relays)(model, fleet, live, marks)
        except Refusal as refusal:
            untold[model.key] = str(refusal)
            continue
        for item, before in found:
            # Of a direct service no pod has a file.
            data = {} if direct else {"touch": wake(fleet, place, name, now)}
            steps.append(step("update", item, before, model.key, **data))
    return steps, untold


def _models(live: Live) -> List[Tuple[str, str, bool]]:
    """Namespace and name of each model, and whether it is exposed directly."""
    found = set()
    for (_kind, place, name), item in live.items():
        marks = item["metadata"].get("labels") or {}
        model, component = marks.get(labels.MODEL), marks.get(labels.COMPONENT)
        # The labels alone are easily copied; such an object is none of these.
        if model and component == labels.RELAY and name == labels.relay_name(model):
            found.add((place, model, False))
        elif model and component == labels.DIRECT and name == labels.direct_name(model):
            found.add((place, model, True))
    return sorted(found)


def _relays(
    model: objects.Model, fleet: str, live: Live, marks: Dict[str, Mark]
) -> List[Tuple[Dict[str, Any], Dict[str, Any]]]:
    """What is to be written of a model with relays, each beside what is there.

    The list of hosts is in the ConfigMap, or in the Secret where one has a DNS name; where metrics
    are asked for is always in the Secret.
    """
    name = labels.relay_name(model.name)
    config = live.get(("ConfigMap", model.namespace, name))
    secret = live.get(("Secret", model.namespace, name))
    hosts = _hosts(model, "Secret", secret, marks, direct=False)
    if secret is None or config is None:
        raise _unreadable(model, "no ConfigMap %s" % name, "one with the fleet's labels")
    plain = dict(config.get("data") or {})
    hidden = dict(secret.get("data") or {})
    if not envoy.by_name(hosts):
        plain["eds.json"] = envoy.endpoints(hosts)
    try:
        clusters = base64.b64decode(hidden.get("cds.json") or "").decode("utf-8")
        marked = envoy.with_marks(clusters, hosts)
    except (ValueError, RecursionError):
        raise _unreadable(
            model,
            "a file cds.json in Secret %s that is none of Envoy's" % name,
            "that of its relays",
        ) from None
    if marked != clusters:
        hidden["cds.json"] = base64.b64encode(marked.encode()).decode()
    wanted = (
        (objects.config_map(model, fleet, plain), config),
        (objects.secret(model, fleet, hidden, hosts), secret),
    )
    return [(_marked(item, before), before) for item, before in wanted if _changes(item, before)]


def _direct(
    model: objects.Model, fleet: str, live: Live, marks: Dict[str, Mark]
) -> List[Tuple[Dict[str, Any], Dict[str, Any]]]:
    """The same of a service that is exposed directly."""
    kind, name = service_objects.SLICE, labels.direct_name(model.name)
    found = live.get((kind, model.namespace, name))
    hosts = _hosts(model, kind, found, marks, direct=True)
    port = _port(found)
    if port is None:
        raise _unreadable(
            model, "%s %s without its port" % (kind, name), "the service's port in it"
        )
    if any(envoy_data.is_name(host.address) for host in hosts):
        raise _unreadable(model, "a DNS name in %s %s" % (kind, name), "addresses alone")
    direct = replace(model, hosts=hosts, service=services.Service(direct=True, host_port=port))
    result = []
    for item in service_objects.direct_objects(direct, fleet):
        before = live.get((item["kind"], model.namespace, item["metadata"]["name"]))
        if item["kind"] == "Service" or before is None:
            continue
        service_objects.keep_family(item, before)
        if item.get("addressType") != before.get("addressType"):
            raise _unreadable(model, "addresses of both kinds", "IPv4 or IPv6 alone")
        if _changes(item, before):
            result.append((_marked(item, before), before))
    return result


def _hosts(
    model: objects.Model,
    kind: str,
    item: Optional[Dict[str, Any]],
    marks: Dict[str, Mark],
    direct: bool,
) -> List[envoy_data.Host]:
    """A model's hosts as they now are marked; one without a record stays as it is."""
    name = (labels.direct_name if direct else labels.relay_name)(model.name)
    try:
        hosts = None if item is None else host_list.read(item)
        wrong = "no list of its hosts in annotation"
    except ValueError as error:
        hosts, wrong = None, "%s in annotation" % error
    if hosts is None:
        what = "%s %s of %s %s" % (wrong, labels.HOSTS, kind, name)
        raise _unreadable(model, what, "the list that the role relay writes")
    port = _port(item) if direct else 0
    return [_as_marked(model, host, marks.get(host.name), port) for host in hosts]


def _as_marked(
    model: objects.Model, host: envoy_data.Host, mark: Optional[Mark], port: Optional[int]
) -> envoy_data.Host:
    """:param port: of a direct service; 0 of one with relays"""
    if mark is None:
        return host
    rests = registration.rests(mark.since, port != 0)
    if port != 0:
        # Nothing asks whether it answers, once it is in.
        rests = rests or (model.namespace, model.name, port) not in mark.ports
    return replace(host, draining=rests)


def _port(item: Optional[Dict[str, Any]]) -> Optional[int]:
    """The one port of an EndpointSlice."""
    ports = [one.get("port") for one in (item or {}).get("ports") or []]
    return ports[0] if len(ports) == 1 and isinstance(ports[0], int) else None


def _unreadable(model: objects.Model, found: str, expected: str) -> Refusal:
    return Refusal(
        "endpoints of %s" % model.key,
        found,
        expected,
        "Run tether.fleet.site --tags relay, which writes it for every model of the inventory that"
        " is not refused (-e relay_prune=true removes others); until then its requests may go to"
        " hosts that drain",
    )


def _changes(item: Dict[str, Any], live: Dict[str, Any]) -> bool:
    """Whether what is sent to, or our own notes, differ; all else is not a mark's to mend."""
    notes = live["metadata"].get("annotations") or {}
    wanted = item["metadata"].get("annotations") or {}
    if "endpoints" in item:
        differ = _addresses(item) != _addresses(live)
    else:
        differ = item["data"] != (live.get("data") or {})
    return differ or any(notes.get(key) != value for key, value in wanted.items())


def _addresses(item: Dict[str, Any]) -> List[Tuple[Any, Any]]:
    return [
        (one.get("addresses"), (one.get("conditions") or {}).get("ready"))
        for one in item.get("endpoints") or []
    ]


def _marked(item: Dict[str, Any], live: Dict[str, Any]) -> Dict[str, Any]:
    """The object with the label of one that has an Ingress, where that is so.

    An apply without the label would take it away.
    """
    noted = (live["metadata"].get("labels") or {}).get(labels.INGRESS)
    return service_objects.marked([item])[0] if noted else item
