# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The bed's network: a namespace, a bridge in it, and a cable to the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import files
from .commands import run, succeeds
from .errors import BedError
from .layout import Bed

BRIDGE = "lan"
"""Bridge inside the namespace: the switch that hosts, node and machine are plugged into."""

_UPLINK = "uplink"
_SETTINGS = {
    # Pods, hosts and the machine reach each other through the node.
    "net/ipv4/ip_forward": "1",
    # The switch is a switch: what hosts say to each other is not the node's business.
    "net/bridge/bridge-nf-call-iptables": "0",
    "net/bridge/bridge-nf-call-ip6tables": "0",
}


def ensure(bed: Bed) -> None:
    """Make whatever of the network is missing."""
    _ensure_namespace(bed)
    inside = ["ip", "-n", bed.namespace]
    run([*inside, "link", "set", "lo", "up"])
    _apply_settings(bed)
    if not _has_link(inside, BRIDGE):
        run([*inside, "link", "add", BRIDGE, "type", "bridge", "forward_delay", "0"])
    run([*inside, "address", "replace", f"{bed.node_address}/24", "dev", BRIDGE])
    run([*inside, "link", "set", BRIDGE, "up"])
    if not _has_link(["ip"], bed.veth):
        _refuse_overlap(bed)
        peer = ["peer", "name", _UPLINK, "netns", bed.namespace]
        run(["ip", "link", "add", bed.veth, "type", "veth", *peer])
    run([*inside, "link", "set", _UPLINK, "master", BRIDGE, "up"])
    run(["ip", "address", "replace", f"{bed.machine_address}/24", "dev", bed.veth])
    run(["ip", "link", "set", bed.veth, "up"])
    # Without any route a ClusterIP is "unreachable" before it can be translated.
    run([*inside, "route", "replace", "default", "via", bed.machine_address])
    for target in (bed.pod_range, bed.service_range):
        run(["ip", "route", "replace", target, "via", bed.node_address, "dev", bed.veth])


def remove(bed: Bed) -> None:
    """Take the network away; all rules and links in the namespace go with it."""
    # The kernel ends a namespace in its own time, so the link goes first.
    _delete_link(["ip"], bed.veth)
    path = _namespace_path(bed)
    if files.mounts_below(path):
        run(["ip", "netns", "delete", bed.namespace])
    path.unlink(missing_ok=True)


def exists(bed: Bed) -> bool:
    """Whether the namespace is there."""
    return bool(files.mounts_below(_namespace_path(bed)))


def plug(bed: Bed, machine: str) -> None:
    """Put a host's cable in."""
    _set_port(bed, machine, "up")


def pull(bed: Bed, machine: str) -> None:
    """Pull a host's cable: its own link loses the carrier."""
    _set_port(bed, machine, "down")


def plugged(bed: Bed, machine: str) -> bool:
    """Whether a host's cable is in."""
    port = _port(bed, machine)
    return port is not None and "UP" in port["flags"]


def forget_port(bed: Bed, machine: str) -> None:
    """Delete the port of a host that died, so that its next start finds the name free."""
    port = _port(bed, machine)
    if port is not None:
        _delete_link(["ip", "-n", bed.namespace], port["ifname"])


def _delete_link(ip: list[str], name: str) -> None:
    """Have a link gone; that the kernel, ending the other side's namespace, was first is fine."""
    if not succeeds([*ip, "link", "delete", name]) and _has_link(ip, name):
        run([*ip, "link", "delete", name])


def _namespace_path(bed: Bed) -> Path:
    return Path("/run/netns") / bed.namespace


def _ensure_namespace(bed: Bed) -> None:
    if exists(bed):
        return
    # A bare file is what a killed `ip netns add` leaves; it would be refused.
    _namespace_path(bed).unlink(missing_ok=True)
    run(["ip", "netns", "add", bed.namespace])


def _apply_settings(bed: Bed) -> None:
    # /proc/sys/net shows the namespace of the process that opens it.
    script = "".join(
        f'[ ! -e "/proc/sys/{name}" ] || echo {value} >"/proc/sys/{name}"\n'
        for name, value in _SETTINGS.items()
    )
    run(["nsenter", f"--net=/run/netns/{bed.namespace}", "/bin/sh", "-ec", script])


def _has_link(ip: list[str], name: str) -> bool:
    return succeeds([*ip, "link", "show", "dev", name])


def _refuse_overlap(bed: Bed) -> None:
    """The machine must not know the bed's addresses from somewhere else already."""
    for target in (bed.network, bed.pod_range, bed.service_range):
        routes = run(["ip", "route", "show", "root", target]).strip()
        if routes:
            raise BedError(f"the machine has routes inside {target} already:\n{routes}")


def _port(bed: Bed, machine: str) -> dict[str, Any] | None:
    """The switch's port that a host is plugged into, as `ip` describes it.

    systemd-nspawn calls it vb-MACHINE, shortened where that is too long; the
    long name is an alternative name then.
    """
    answer = run(["ip", "-n", bed.namespace, "-json", "link", "show", "master", BRIDGE])
    links: list[dict[str, Any]] = json.loads(answer or "[]")
    for link in links:
        if f"vb-{machine}" in (link["ifname"], *link.get("altnames", ())):
            return link
    return None


def _set_port(bed: Bed, machine: str, state: str) -> None:
    port = _port(bed, machine)
    if port is None:
        raise BedError(f"{machine} is not plugged in: it does not run")
    run(["ip", "-n", bed.namespace, "link", "set", "dev", port["ifname"], state])
