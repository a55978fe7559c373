# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a host already serves over TCP: closing it for the first time must not cut that in silence.

Only the first time. Once the host is closed, a program that opens a port is simply not reached.
"""

from __future__ import annotations

import ipaddress
import json
from typing import Any, Dict, List, Optional, Set

from ansible_collections.tether.fleet.plugins.module_utils import tcp_table
from ansible_collections.tether.fleet.plugins.module_utils.daemon import processes
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

# The ingress, and engines: of an earlier installation, or on a port that the inventory has changed.
_INGRESS, _ENGINES = "tether-ingress", "tether-engine-"


def observe(known: Set[int]) -> List[Dict[str, Any]]:
    """Who can be reached from outside: ``[{"port", "address", "pid", "name", "unit"}]``.

    :param known: ports that stay open, which need no look
    """
    ports = reachable(processes.listening())
    found = []
    for port in sorted(ports - known):
        for item in processes.listeners(port):
            if not ipaddress.ip_address(item["address"]).is_loopback:
                found.append(dict(item, port=port))
    return found


def reachable(sockets: List[tcp_table.Socket]) -> Set[int]:
    """Ports that listen on more than loopback."""
    return {one.port for one in sockets if not one.address.is_loopback}


def kept(desired: Dict[str, Any], session: Optional[Dict[str, Any]]) -> Set[int]:
    """TCP ports that stay open, from some networks at least."""
    ports = {item["port"] for item in desired["open_ports"] if item["proto"] == "tcp"}
    ports |= {item["port"] for item in desired["service_ports"]}
    ports.add(desired["ingress_port"])
    if session is not None:
        ports.add(session["port"])
    return ports


def refuse(
    desired: Dict[str, Any], session: Optional[Dict[str, Any]], found: List[Dict[str, Any]]
) -> None:
    """Refuse when a table that closes the host would cut somebody off.

    :param found: as ``observe`` gives it
    :raises Refusal: naming all of them, with the line that keeps them open
    """
    known = kept(desired, session)
    cut = [item for item in found if item["port"] not in known and not _is_ours(item)]
    if not cut:
        return
    ports = sorted({item["port"] for item in cut})
    raise Refusal(
        "firewall",
        "programs that listen on ports which policy: closed would cut off: %s"
        % "; ".join(_in_words(port, cut) for port in ports),
        "every TCP port in use to be listed before this host is closed for the first time",
        "To keep them open, set  firewall_open_ports: %s  (sources: [...] in an entry lets only"
        " some networks in); to close what that does not list, set  firewall_listeners: cut "
        " (options open_ports and listeners of the module). Nothing was changed"
        % yaml_line(desired["open_ports"], ports),
    )


def yaml_line(listed: List[Dict[str, Any]], ports: List[int]) -> str:
    """The list of open ports with more TCP ports in it, as one line of YAML."""
    items = []
    for item in [*listed, *({"port": port, "proto": "tcp"} for port in ports)]:
        text = "port: %d, proto: %s" % (item["port"], item["proto"])
        if item.get("sources"):
            text += ", sources: %s" % json.dumps(item["sources"])
        items.append("{%s}" % text)
    return "[%s]" % ", ".join(items)


def _is_ours(item: Dict[str, Any]) -> bool:
    daemon = processes.daemon_of(item)
    return daemon == _INGRESS or daemon.startswith(_ENGINES)


def _in_words(port: int, found: List[Dict[str, Any]]) -> str:
    here = [item for item in found if item["port"] == port]
    addresses = sorted({item["address"] for item in here})
    # Of many workers, the first will do.
    programs: Dict[Any, Dict[str, Any]] = {}
    for item in sorted(here, key=lambda one: int(one["pid"])):
        programs.setdefault((item["name"], item["unit"]), item)
    seen = [item for item in programs.values() if item["pid"]]
    words = [processes.in_words(seen)] if seen else []
    if len(seen) < len(programs):
        words.append("no process that can be seen (perhaps the kernel itself, as with NFS)")
    return "port %d on %s, %s" % (port, " and ".join(addresses), ", ".join(words))
