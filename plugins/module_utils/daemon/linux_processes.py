# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who listens where on Linux, and of which unit it is, as /proc tells (proc(5))."""

from __future__ import annotations

import glob
import os
from typing import Any, Dict, List, Set

from ansible_collections.tether.fleet.plugins.module_utils import tcp_table


def listeners(port: int) -> List[Dict[str, Any]]:
    """Who listens on a TCP port here: ``[{"pid", "name", "unit", "address"}]``.

    A listener whose process cannot be seen has pid 0.
    """
    inodes = {
        one.inode: str(one.address)
        for one in tcp_table.read()
        if one.state == tcp_table.LISTEN and one.port == port
    }
    owners = _owners(set(inodes))
    result = []
    for inode, address in sorted(inodes.items()):
        pids = owners.get(inode) or [0]
        result += [dict(describe(pid), address=address) for pid in pids]
    return result


def listening() -> List[tcp_table.Socket]:
    """Every socket that listens on a TCP port, as ``processes``'s."""
    return [one for one in tcp_table.read() if one.state == tcp_table.LISTEN]


def connections(port: int) -> List[tcp_table.Socket]:
    """Connections with a TCP port here, as ``processes``'s."""
    return [
        one for one in tcp_table.read() if one.state == tcp_table.ESTABLISHED and one.port == port
    ]


def unix_listeners(path: str) -> List[Dict[str, Any]]:
    """Who holds a unix socket of that path open, as ``listeners``."""
    inodes = set()
    for line in _read("/proc/net/unix").splitlines()[1:]:
        fields = line.split(None, 7)
        # __SO_ACCEPTCON: a listening socket; connections that it accepted bear the path too.
        if len(fields) == 8 and fields[7] == path and fields[3] == "00010000":
            inodes.add(fields[6])
    owners = _owners(inodes)
    pids = [pid for inode in sorted(inodes) for pid in owners.get(inode, [])]
    return [dict(describe(pid), address=path) for pid in pids]


def describe(pid: int) -> Dict[str, Any]:
    """``{"pid", "name", "unit"}`` of a process; empty texts for what cannot be seen."""
    if not pid:
        return {"pid": 0, "name": "", "unit": ""}
    name = _read("/proc/%d/comm" % pid).strip()
    return {"pid": pid, "name": name, "unit": unit_of(_read("/proc/%d/cgroup" % pid))}


def unit_of(cgroup: str) -> str:
    """The unit in the text of a /proc/PID/cgroup, or "".

    The innermost one: in a container the outer path may name the container's own unit first.
    """
    for line in cgroup.splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3 and fields[1] in ("", "name=systemd"):
            for part in reversed(fields[2].split("/")):
                if part.endswith((".service", ".scope")):
                    return part
    return ""


def _owners(inodes: Set[str]) -> Dict[str, List[int]]:
    owners: Dict[str, List[int]] = {}
    if not inodes:
        return owners
    for link in glob.glob("/proc/[0-9]*/fd/*"):
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if target.startswith("socket:[") and target[8:-1] in inodes:
            pid = int(link.split("/")[2])
            found = owners.setdefault(target[8:-1], [])
            if pid not in found:
                found.append(pid)
    return owners


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
