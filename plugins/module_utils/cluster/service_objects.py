# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The Kubernetes objects that a service has beside those of every model. Pure.

One that is exposed directly has a Service without a selector, an EndpointSlice of its hosts and a
ConfigMap with their addresses, in place of all that relays need.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Dict, Iterable, List, Set, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import host_list, labels, objects

Key = Tuple[str, str, str]

# Beyond those of relays. They are asked for only where some object says that there is one.
SLICE = "EndpointSlice"
KINDS = (SLICE, "Ingress")


def direct_objects(model: objects.Model, fleet: str) -> List[Dict[str, Any]]:
    """In the order in which they are to be written; hosts that drain are left out."""
    port = model.service.host_port if model.service else 0
    addresses = [host.address for host in model.hosts if not host.draining]
    named = _object(model, fleet, "v1", "ConfigMap", data=_published(addresses, port))
    by_version = _slices(model, fleet, addresses, port)
    service = _object(
        model,
        fleet,
        "v1",
        "Service",
        spec={
            "type": "ClusterIP",
            "ports": [objects.http_port(model, port)],
        },
    )
    service["metadata"]["name"] = model.name
    return [named, *by_version, service]


def direct_keys(model: objects.Model) -> List[Key]:
    """What a directly exposed service has."""
    return [
        ("ConfigMap", model.namespace, labels.direct_name(model.name)),
        ("EndpointSlice", model.namespace, labels.direct_name(model.name)),
        ("Service", model.namespace, model.name),
    ]


def ingress_keys(model: objects.Model) -> List[Key]:
    return [("Ingress", model.namespace, model.name)]


def ingress(model: objects.Model, fleet: str) -> Dict[str, Any]:
    """The Ingress that leads to a service's Service."""
    wish = dict((model.service.ingress if model.service else None) or {})
    rule: Dict[str, Any] = {
        "host": wish["host"],
        "http": {
            "paths": [
                {
                    "path": wish.get("path") or "/",
                    "pathType": "Prefix",
                    "backend": {"service": {"name": model.name, "port": {"name": "http"}}},
                }
            ]
        },
    }
    spec: Dict[str, Any] = {"rules": [rule]}
    if wish.get("class"):
        spec["ingressClassName"] = wish["class"]
    if wish.get("tls_secret"):
        spec["tls"] = [{"hosts": [wish["host"]], "secretName": wish["tls_secret"]}]
    item = _object(model, fleet, "networking.k8s.io/v1", "Ingress", spec=spec)
    item["metadata"]["name"] = model.name
    if wish.get("annotations"):
        item["metadata"]["annotations"] = dict(wish["annotations"])
    return item


def marked(items: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The objects, with a label by which a later run knows that an Ingress belongs to them.

    On those that every run lists: so nobody has to ask for Ingresses where there are none.
    """
    for item in items:
        if item["kind"] in ("ConfigMap", "Service"):
            item["metadata"]["labels"][labels.INGRESS] = "true"
    return items


def kinds_there(wanted: Iterable[objects.Model], ours: Iterable[Dict[str, Any]]) -> List[str]:
    """Which of ``KINDS`` a run has to look at."""
    found: Set[str] = set()
    for model in wanted:
        if model.service is not None:
            found |= {"EndpointSlice"} if model.service.direct else set()
            found |= {"Ingress"} if model.service.ingress else set()
    for item in ours:
        marks = item["metadata"].get("labels") or {}
        found |= {"EndpointSlice"} if marks.get(labels.COMPONENT) == labels.DIRECT else set()
        found |= {"Ingress"} if marks.get(labels.INGRESS) else set()
    return [kind for kind in KINDS if kind in found]


def is_direct(service: Dict[str, Any]) -> bool:
    """How one of the fleet's Services is exposed: by the label that it was made with.

    Whether it has a selector says so only where somebody took that label away: the selector of a
    relayed one, taken away alone, is mended, for a Service made anew has another address.
    """
    mark = (service["metadata"].get("labels") or {}).get(labels.COMPONENT)
    return (
        mark == labels.DIRECT
        if mark in (labels.RELAY, labels.DIRECT)
        else not service["spec"].get("selector")
    )


def keep_family(item: Dict[str, Any], live: Dict[str, Any]) -> None:
    """A slice of nobody stays of the kind that it is, IPv4 or IPv6: no address says another."""
    if item["kind"] == "EndpointSlice" and not item["endpoints"]:
        item["addressType"] = live.get("addressType")


def selector(kind: str, fleet: str) -> str:
    """What lists the fleet's objects of one of ``KINDS``.

    The slices that Kubernetes makes for a Service carry the Service's labels, and are not ours.
    """
    text = labels.fleet_selector(fleet)
    return "%s,%s=%s" % (text, labels.SLICE_MANAGER, labels.MANAGER) if kind == SLICE else text


def _published(addresses: List[str], port: int) -> Dict[str, str]:
    """For those who take an address from the environment: the first, and all of them."""
    places = ["[%s]:%d" % (one, port) if ":" in one else "%s:%d" % (one, port) for one in addresses]
    return {"address": places[0] if places else "", "addresses": ",".join(places)}


def _slices(
    model: objects.Model, fleet: str, addresses: List[str], port: int
) -> List[Dict[str, Any]]:
    versions = {ipaddress.ip_address(address).version for address in addresses}
    item = _object(
        model,
        fleet,
        "discovery.k8s.io/v1",
        "EndpointSlice",
        addressType="IPv6" if versions == {6} else "IPv4",
        endpoints=[
            {"addresses": [address], "conditions": {"ready": True}} for address in addresses
        ],
        ports=[{"name": "http", "port": port, "protocol": "TCP", "appProtocol": "http"}],
    )
    item["metadata"]["annotations"] = host_list.noted(model.hosts)
    item["metadata"]["labels"].update(
        {labels.SLICE_SERVICE: model.name, labels.SLICE_MANAGER: labels.MANAGER}
    )
    return [item]


def _object(model: objects.Model, fleet: str, api: str, kind: str, **rest: Any) -> Dict[str, Any]:
    marks = labels.service_labels(fleet, model.name, _component(model))
    return objects.of_model(model, api, kind, labels.direct_name(model.name), marks, **rest)


def _component(model: objects.Model) -> str:
    return labels.DIRECT if model.service and model.service.direct else labels.RELAY
