# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a firewall is asked for, the same for every system's: its options, and what they mean.

A system's firewall is a component beside this file, with ``observe``, ``plan`` and ``apply``.
"""

from __future__ import annotations

import ipaddress
import pwd
from typing import Any, Dict, List, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

ARGUMENT_SPEC: Dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "policy": {"type": "str", "choices": ["closed", "guard"], "default": "closed"},
    "ingress_port": {"type": "int", "default": 9443},
    "ingress_sources": {"type": "list", "elements": "str", "default": []},
    "open_ports": {
        "type": "list",
        "elements": "dict",
        "options": {
            "port": {"type": "int", "required": True},
            "proto": {"type": "str", "choices": ["tcp", "udp"], "default": "tcp"},
            "sources": {"type": "list", "elements": "str", "default": []},
        },
        "default": [{"port": 22, "proto": "tcp", "sources": []}],
    },
    "loopback_ports": {
        "type": "list",
        "elements": "dict",
        "options": {
            "port": {"type": "int", "required": True},
            "accounts": {"type": "list", "elements": "str", "required": True},
            "server": {"type": "str"},
        },
        "default": [],
    },
    "service_ports": {
        "type": "list",
        "elements": "dict",
        "options": {
            "port": {"type": "int", "required": True},
            "sources": {"type": "list", "elements": "str", "default": []},
        },
        "default": [],
    },
    "ssh_connection": {"type": "str"},
    "foreign": {"type": "str", "choices": ["refuse", "ignore"], "default": "refuse"},
    "listeners": {"type": "str", "choices": ["refuse", "cut"], "default": "refuse"},
}


def check(desired: Dict[str, Any]) -> None:
    """Refuse what no rule could mean; all of it at once.

    :raises Refusal: naming each option
    """
    if desired["state"] == "absent":
        return
    wrong: List[str] = []
    if not desired["ingress_sources"]:
        wrong.append(
            "ingress_sources is empty, so no relay could connect; list the networks that"
            " the cluster's nodes or pods come from"
        )
    sources: List[Tuple[str, str]] = [("ingress_sources", s) for s in desired["ingress_sources"]]
    ports = [("ingress_port", desired["ingress_port"])]
    for item in desired["open_ports"]:
        ports.append(("open_ports", item["port"]))
        sources += [("open_ports", source) for source in item["sources"]]
    ports += [("loopback_ports", item["port"]) for item in desired["loopback_ports"]]
    opened = {item["port"] for item in desired["open_ports"] if item["proto"] == "tcp"}
    for item in desired["service_ports"]:
        ports.append(("service_ports", item["port"]))
        sources += [("service_ports", source) for source in item["sources"]]
        if item["port"] in opened:
            wrong.append(
                "service_ports: %d is in open_ports (firewall_open_ports) too; list it once"
                % item["port"]
            )
    wrong += ["%s: %d is no port" % pair for pair in ports if not 0 < pair[1] < 65536]
    for key, source in sources:
        try:
            ipaddress.ip_network(source)
        except ValueError as error:
            wrong.append("%s: %s" % (key, error))
    seen = set()
    for item in desired["loopback_ports"]:
        if item["port"] in seen:
            wrong.append("loopback_ports: %d is listed twice" % item["port"])
        seen.add(item["port"])
    if wrong:
        raise Refusal(
            "firewall options",
            "; ".join(wrong),
            "ports from 1 to 65535 and networks such as 10.0.0.0/8",
            "Mend what is named; nothing was changed",
        )


def refuse_to_shut_out(desired: Dict[str, Any], session: Optional[Dict[str, Any]]) -> None:
    """Refuse what would close the way back in.

    :param session: ``{"peer", "port"}`` of the SSH session that the run uses, or None
    """
    _refuse_ssh_port(desired, session)
    if desired["policy"] == "closed":
        _refuse_to_cut(desired, session)


def _refuse_ssh_port(desired: Dict[str, Any], session: Optional[Dict[str, Any]]) -> None:
    """Refuse when the SSH session's port is declared as a service's."""
    ports = [item["port"] for item in desired["service_ports"]]
    if session is not None and session["port"] in ports:
        raise Refusal(
            "firewall",
            "a service with host_port %d, which is this SSH session's port" % session["port"],
            "the way back in to stay as it is",
            "Correct host_port in fleet_services. Nothing was changed",
        )


def _refuse_to_cut(desired: Dict[str, Any], session: Optional[Dict[str, Any]]) -> None:
    """Refuse when the SSH session's port is listed for other networks alone."""
    if session is None:
        return
    listed = _listed(desired, session["port"])
    sources = [source for item in listed for source in item["sources"]]
    if not listed or not all(item["sources"] for item in listed):
        return
    peer = ipaddress.ip_address(session["peer"])
    if not any(peer in ipaddress.ip_network(source) for source in sources):
        raise Refusal(
            "firewall",
            "this SSH session's port %d open for %s alone, while the session comes from %s"
            % (session["port"], ", ".join(sources), peer),
            "the way back in to stay open",
            "Add a network that holds %s to the sources of port %d in firewall_open_ports (option"
            " open_ports of the module). Nothing was changed" % (peer, session["port"]),
        )


def _listed(desired: Dict[str, Any], port: int) -> List[Dict[str, Any]]:
    """The open ports' entries for a TCP port."""
    return [
        item for item in desired["open_ports"] if item["proto"] == "tcp" and item["port"] == port
    ]


def looks_at_listeners(desired: Dict[str, Any]) -> bool:
    """Whether it counts who listens on a host that is closed for the first time."""
    wanted = (desired["state"], desired["policy"])
    return wanted == ("present", "closed") and desired["listeners"] != "cut"


def admitted(
    desired: Dict[str, Any], session: Optional[Dict[str, Any]]
) -> List[Tuple[str, int, List[str]]]:
    """Which new connections are let in: protocol, port and networks, of which none means all."""
    found: List[Tuple[str, int, List[str]]] = []
    if desired["policy"] == "closed":
        if session is not None and not _listed(desired, session["port"]):
            # The way back in, for every administrator: where this run comes from must not matter,
            # or a run from elsewhere would be a change.
            found.append(("tcp", session["port"], []))
        found += [(item["proto"], item["port"], item["sources"]) for item in desired["open_ports"]]
    found.append(("tcp", desired["ingress_port"], desired["ingress_sources"]))
    # Several services may share a port: nobody is dropped before all who may have been let in.
    return found + [("tcp", *one) for one in _by_port(desired["service_ports"])]


def guarded(desired: Dict[str, Any]) -> List[int]:
    """TCP ports that nobody but who is admitted reaches, whatever the policy."""
    return [desired["ingress_port"], *sorted({one["port"] for one in desired["service_ports"]})]


def networks(sources: List[str], version: int) -> List[str]:
    """The networks of one version of IP, merged: nft refuses overlapping ones in one set."""
    found = [ipaddress.ip_network(source) for source in sources]
    merged = ipaddress.collapse_addresses(one for one in found if one.version == version)  # type: ignore[type-var]
    return [str(network) for network in merged]


def uids(desired: Dict[str, Any]) -> Dict[str, Optional[int]]:
    """Ids of the accounts named in ``loopback_ports``; None where there is none yet."""
    names = {
        name
        for item in desired["loopback_ports"]
        for name in [*item["accounts"], item.get("server")]
        if name
    }
    return {name: _uid(name) for name in sorted(names)}


def refuse_unknown(uids: Dict[str, Optional[int]]) -> None:
    """Refuse rules for accounts that are not there, which would let nobody in.

    :param uids: as the function of that name gives them
    """
    unknown = [name for name, uid in sorted(uids.items()) if uid is None]
    if unknown:
        raise Refusal(
            "firewall",
            "no account %s on this host" % ", ".join(unknown),
            "every account that may connect to a loopback port",
            "Run the role baseline first; those of local_accounts are yours to make or leave out",
        )


def _by_port(services: List[Dict[str, Any]]) -> List[Tuple[int, List[str]]]:
    """Each port with the networks of its services; one that is open to everybody has none."""
    found: Dict[int, List[List[str]]] = {}
    for item in services:
        found.setdefault(item["port"], []).append(item["sources"])
    return [
        (port, [one for sources in given for one in sources] if all(given) else [])
        for port, given in sorted(found.items())
    ]


def _uid(name: str) -> Optional[int]:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None
