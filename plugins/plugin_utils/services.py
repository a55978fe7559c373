# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""``fleet_services``: programs on hosts that speak HTTP and that the collection does not run.

In the plan a service is what a model is without its engine: an upstream of the host's ingress, an
entry of the host's record, relays and a Service. One that is exposed directly has neither upstream
nor relays, but a port that the host's firewall opens to some networks.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils import marks
from ansible_collections.tether.fleet.plugins.module_utils.cluster import envoy_data
from ansible_collections.tether.fleet.plugins.plugin_utils import mistakes, names, settings
from ansible_collections.tether.fleet.plugins.plugin_utils.address import is_ip
from ansible_collections.tether.fleet.plugins.plugin_utils.mistakes import Mistake

SOURCE = "fleet_services"
# A model's port, or that of a service with relays, that is none.
METRICS_PORT = "%d is the port of the Service's metrics; choose another" % envoy_data.METRICS_PORT
SCHEMA = "services_schema.yml"
ANYWHERE = "anywhere"
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

_DEFAULTS: Dict[str, Any] = {
    "expose": "relay",
    "port": 80,
    "replicas": 2,
    "websocket": False,
    "health_status": 200,
}
# The order in which a plan shows them.
_KEYS = ["name", "namespace", "expose", "hosts", "port", "replicas", "host_port", "socket"]
_KEYS += ["paths", "websocket", "host_header", "health_path", "health_status", "networks"]
_KEYS += ["ingress", *settings.CLIENTS]
_OF_RELAY = ("replicas", "socket", "paths", "websocket", "host_header")
# A program of the fleet itself is reached through a model or not at all; the others are hidden from
# the ingress, whose account sees no home and has a /tmp of its own.
_HIDDEN = ("/run/tether/", "/var/run/", "/var/tmp/", "/run/user/")  # noqa: S108 - refused, not used
_RESERVED = marks.RESERVED_PREFIX.strip("/")
_LARGEST = {4: 8, 6: 16}


def check(
    services: Any,
    judge: Callable[[Dict[str, Any], str], List[Mistake]],
    choose: Callable[[List[str]], List[str]],
    known: Iterable[Mistake] = (),
) -> Tuple[List[Dict[str, Any]], List[Mistake]]:
    """The sound entries, normalised, and everything that is wrong with the others.

    :param services: ``fleet_services`` as given
    :param judge: what is wrong with an entry's namespace and hosts, as for a model
    :param choose: the hosts that a sound entry's ``hosts`` mean
    :param known: what could not be read of the entries
    """
    if services is None:
        return [], []
    if not isinstance(services, list):
        text = "is %s; expected a list of services" % mistakes.describe(services)
        return [], [Mistake(None, SOURCE, text)]
    entries: List[Dict[str, Any]] = []
    found: List[Mistake] = []
    for service, label in zip(services, mistakes.labels(services, SOURCE), strict=True):
        own = mistakes.check_shape(service, label, SCHEMA)
        if isinstance(service, dict):
            own += judge(service, label)
            wrong = {mistake.root for mistake in own}
            own += [item for item in _check_one(service, label) if item.root not in wrong]
        unread = mistakes.unread(known, label)
        found += [item for item in own if item.root not in unread]
        if not own and not unread:
            entries.append(_normalise(service, choose))
    return entries, found


def check_together(
    entries: List[Dict[str, Any]],
    models: List[Dict[str, Any]],
    addresses: Mapping[str, str],
    ingress_port: Any,
) -> List[Mistake]:
    """Conflicts of sound services with models, hosts and the ingress."""
    found = _check_places(entries, models, ingress_port) + _check_rules(entries)
    for entry in entries:
        if entry["expose"] == "direct":
            found += _check_addresses(entry, _key(entry), addresses)
    return found


def add(plan: Dict[str, Any], entries: List[Dict[str, Any]]) -> Dict[str, Any]:
    """The plan with its services.

    :param plan: as ``fleet_plan.build`` made it
    """
    entries = sorted(entries, key=lambda entry: (entry["namespace"], entry["name"]))
    by_host: Dict[str, Dict[str, List[Dict[str, Any]]]] = {
        host: {"services": [], "direct": [], "service_ports": []} for host in plan["hosts"]
    }
    for entry in entries:
        for host in entry["hosts"]:
            if entry["expose"] == "direct":
                by_host[host]["direct"].append(_published(entry, plan["hosts"][host]["address"]))
                by_host[host]["service_ports"].append(_opened(entry))
            else:
                by_host[host]["services"].append(_upstream(entry))
    relayed = {entry["namespace"] for entry in entries if entry["expose"] == "relay"}
    hosts = {
        host: dict(
            item,
            **by_host[host],
            namespaces=sorted(
                {*item["namespaces"], *(one["namespace"] for one in by_host[host]["services"])}
            ),
        )
        for host, item in plan["hosts"].items()
    }
    return dict(
        plan,
        services={names.model_key(entry["namespace"], entry["name"]): entry for entry in entries},
        hosts=hosts,
        namespaces=sorted({*plan["namespaces"], *relayed}),
    )


def warnings(plan: Mapping[str, Any], managed: Mapping[str, Any]) -> List[str]:
    """What the owner of the fleet has to know of services without TLS.

    :param managed: host -> ``firewall_manage``
    """
    told = []
    for key, entry in plan["services"].items():
        if entry["expose"] != "direct":
            continue
        who = ", ".join(entry["networks"])
        text = (
            "%s is exposed directly: requests to it have neither TLS nor a token. Whoever is in"
            " %s may send them to port %d of %s, and whoever is on the way may read and change"
            " them. While the program is down, any account of the host may take the port and"
            " get them." % (key, who, entry["host_port"], ", ".join(entry["hosts"]))
        )
        if entry["networks"] == [ANYWHERE]:
            text = text.replace("Whoever is in %s may" % who, "Everybody may")
        alone = [host for host in entry["hosts"] if managed.get(host) is False]
        if alone:
            text += (
                " On %s the firewall is not the collection's (firewall_manage: false): nothing here"
                " keeps others out." % ", ".join(alone)
            )
        told.append(text)
    return told


def _check_one(service: Dict[str, Any], label: str) -> Iterable[Mistake]:
    """What one entry's keys say together."""
    direct = service.get("expose") == "direct"
    places = [key for key in ("host_port", "socket") if service.get(key) is not None]
    if direct:
        for key in _OF_RELAY:
            if key in service:
                text = "is for expose: relay; remove it, or expose the service by relay"
                yield Mistake(label, key, text)
        for key in settings.CLIENTS:
            if key in service:
                text = "is for expose: relay; remove it: who may connect is in networks"
                yield Mistake(label, key, text)
        if service.get("host_port") is None:
            text = "is missing; expected the port that the program listens on"
            yield Mistake(label, "host_port", text)
        if service.get("networks") is None:
            text = "is missing; expected the networks that may connect, or [anywhere]"
            yield Mistake(label, "networks", text)
    else:
        if service.get("port") == envoy_data.METRICS_PORT:
            yield Mistake(label, "port", METRICS_PORT)
        yield from settings.check_clients(service, label)
        if "networks" in service:
            text = (
                "is for expose: direct; remove it: who may reach the ingress is in"
                " fleet_cluster_networks"
            )
            yield Mistake(label, "networks", text)
        if len(places) != 1:
            which = "neither it nor socket is given" if not places else "and socket are both given"
            text = "%s; expected one of them, where the program listens" % which
            yield Mistake(label, "host_port", text)
        yield from _check_reserved(service, label)
    yield from _check_socket(service.get("socket"), label)
    if isinstance(service.get("networks"), list):
        yield from _check_networks(service["networks"], label)
    notes = service.get("ingress", {}).get("annotations") if _has_ingress(service) else None
    for name in notes if isinstance(notes, dict) else ():
        reason = _annotation(str(name))
        if reason:
            yield Mistake(label, "ingress.annotations", reason)


def _key(entry: Mapping[str, Any]) -> str:
    return names.model_key(entry["namespace"], entry["name"])


def _check_places(
    entries: List[Dict[str, Any]], models: List[Dict[str, Any]], ingress_port: Any
) -> List[Mistake]:
    """Where programs listen: whoever may name services must not reach what is another's."""
    taken = {
        (host, model[option]): "the %s of %s" % (option, _key(model))
        for model in models
        for host in model["hosts"]
        for option in ("engine_port", "local_port")
        if model.get(option) is not None
    }
    found: List[Mistake] = []
    first: Dict[Tuple[str, Any], Dict[str, Any]] = {}
    for entry in entries:
        option = "host_port" if entry["host_port"] is not None else "socket"
        place = entry[option]
        if place == ingress_port:
            text = "%d is the ingress's own port" % place
            found.append(Mistake(_key(entry), option, text))
        for host in entry["hosts"]:
            if (host, place) in taken:
                text = (
                    "%s on %s is %s; expected the port of a program that the collection does not"
                    " run" % (place, host, taken[host, place])
                )
                found.append(Mistake(_key(entry), option, text))
            other = first.setdefault((host, place), entry)
            why = _not_together(entry, other)
            if why:
                text = "%s on %s is that of %s too, which %s; expected a program of its own" % (
                    place,
                    host,
                    _key(other),
                    why,
                )
                found.append(Mistake(_key(entry), option, text))
    return found


def _not_together(entry: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Why two services cannot be one program's; empty where they can.

    Two of one namespace may be: whoever may reach one may as well name the other, for instance
    with other paths or clients. Of two ways the open port would undo what the relays keep.
    """
    if entry["namespace"] != other["namespace"]:
        return "is in another namespace"
    if entry["expose"] != other["expose"]:
        return "is exposed otherwise (%s)" % other["expose"]
    return ""


def _check_rules(entries: List[Dict[str, Any]]) -> List[Mistake]:
    """Two Ingresses for one address: which of them a controller takes is chance."""
    found: List[Mistake] = []
    seen: Dict[Tuple[str, str], List[Dict[str, Any]]] = {}
    for entry in entries:
        rule = entry["ingress"]
        if rule is None:
            continue
        earlier = seen.setdefault((rule["host"], rule["path"].rstrip("/")), [])
        for other in earlier:
            classes = rule.get("class"), other["ingress"].get("class")
            # Two controllers may each have one.
            if None in classes or classes[0] == classes[1]:
                text = "%s%s is that of %s too; give one of them another host, path or class" % (
                    rule["host"],
                    rule["path"],
                    _key(other),
                )
                found.append(Mistake(_key(entry), "ingress", text))
                break
        earlier.append(entry)
    return found


def _annotation(name: str) -> Optional[str]:
    """Why an annotation cannot be given, or None."""
    if name.startswith("tether.fleet/"):
        return "%s is the collection's own; expected annotations of others" % name
    if name.startswith("kubectl.kubernetes.io/"):
        return "%s is kubectl's own; expected annotations of others" % name
    if name.endswith(("-snippet", "-snippets")):
        return (
            "%s puts text into the Ingress controller's own configuration, which serves other"
            " namespaces too; expected annotations without it" % name
        )
    return None


def _has_ingress(service: Mapping[str, Any]) -> bool:
    return isinstance(service.get("ingress"), dict)


def _check_reserved(service: Mapping[str, Any], label: str) -> Iterable[Mistake]:
    """Paths that relays refuse and at which the ingress has something of its own."""
    given = service.get("paths")
    paths = {"health_path": service.get("health_path")}
    for index, item in enumerate(given if isinstance(given, list) else []):
        if isinstance(item, dict):
            paths["paths[%d].path" % index] = item.get("path")
    for key, path in paths.items():
        if isinstance(path, str) and _RESERVED in path.lower():
            text = "%s has %s in it, which is the collection's own; expected another path"
            yield Mistake(label, key, text % (path, _RESERVED))


def _check_socket(path: Any, label: str) -> Iterable[Mistake]:
    if not isinstance(path, str):
        return
    if {"", ".", ".."} & set(path.split("/")[1:]):
        yield Mistake(label, "socket", "%s is not in its shortest form" % path)
    elif path.startswith(_HIDDEN):
        text = "%s is in a folder of the fleet's own or one that the ingress cannot see" % path
        yield Mistake(label, "socket", text + "; expected a socket of the program's own in /run")


def _check_networks(networks: List[Any], label: str) -> Iterable[Mistake]:
    if networks == [ANYWHERE]:
        return
    for index, text in enumerate(networks):
        if isinstance(text, str):
            reason = _network(text)
            if reason:
                yield Mistake(label, "networks[%d]" % index, reason)


def _network(text: str) -> Optional[str]:
    """Why a network cannot be listed, or None."""
    if text == ANYWHERE:
        return "anywhere stands beside others; expected it alone, or networks alone"
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        what = mistakes.describe(text)
        return "is %s; expected an address or a network such as 10.0.0.0/8" % what
    if network.prefixlen < _LARGEST[network.version]:
        return (
            "%s is larger than /%d; expected the networks that need it. Write [anywhere] where"
            " everybody is meant" % (network, _LARGEST[network.version])
        )
    return None


def _check_addresses(
    entry: Mapping[str, Any], key: str, addresses: Mapping[str, str]
) -> List[Mistake]:
    """An EndpointSlice holds IP addresses of one family."""
    known = {host: addresses[host] for host in entry["hosts"] if host in addresses}
    by_name = [host for host, address in known.items() if not is_ip(address)]
    if by_name:
        text = (
            "%s is known by a DNS name; expected hosts with an IP address as fleet_address, or"
            " expose: relay, which looks names up" % ", ".join(by_name)
        )
        return [Mistake(key, "hosts", text)]
    if len({ipaddress.ip_address(address).version for address in known.values()}) > 1:
        text = "some of them have IPv4 and some IPv6 addresses; expected one kind for one service"
        return [Mistake(key, "hosts", text)]
    return []


def _normalise(service: Dict[str, Any], choose: Callable[[List[str]], List[str]]) -> Dict[str, Any]:
    entry: Dict[str, Any] = {key: service.get(key, _DEFAULTS.get(key)) for key in _KEYS}
    entry["kind"] = "service"
    entry["hosts"] = choose(entry["hosts"])
    if entry["expose"] == "relay":
        entry["paths"] = [
            {"path": item["path"], "methods": list(item.get("methods") or METHODS)}
            for item in entry["paths"] or [{"path": "/"}]
        ]
        entry["health_path"] = entry["health_path"] or "/"
    if entry["ingress"] is not None:
        entry["ingress"] = {"path": "/", "annotations": {}, **entry["ingress"]}
    return entry


def _upstream(entry: Mapping[str, Any]) -> Dict[str, Any]:
    """A service as the ingress takes it."""
    return {
        "namespace": entry["namespace"],
        "model": entry["name"],
        "upstream": entry["socket"] or "127.0.0.1:%d" % entry["host_port"],
        "paths": [dict(item, below=item["path"].endswith("/")) for item in entry["paths"]],
        "health": entry["health_path"],
        "websocket": entry["websocket"],
        "host_header": entry["host_header"] or "",
        "kind": "service",
    }


def _published(entry: Mapping[str, Any], address: str) -> Dict[str, Any]:
    """A port that others reach, as the host's survey takes it."""
    return {
        "namespace": entry["namespace"],
        "name": entry["name"],
        "address": address,
        "port": entry["host_port"],
        "health_path": entry["health_path"] or "",
        "health_status": entry["health_status"],
    }


def _opened(entry: Mapping[str, Any]) -> Dict[str, Any]:
    """The same port, as the host's firewall takes it."""
    networks = entry["networks"]
    return {
        "port": entry["host_port"],
        "sources": [] if networks == [ANYWHERE] else list(networks),
    }
