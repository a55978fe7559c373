# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Asks a process how it is, and finds out who listens where. Standard library only."""

from __future__ import annotations

import glob
import http.client
import os
import socket
import ssl
from typing import Any, Dict, List, Optional, Set, Tuple

_LISTEN = "0A"


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _TlsConnection(http.client.HTTPConnection):
    """HTTPS to an address, with a server name of its own."""

    def __init__(
        self, address: str, port: int, timeout: float, context: ssl.SSLContext, name: Optional[str]
    ) -> None:
        super().__init__(address, port, timeout=timeout)
        self._context, self._name = context, name

    def connect(self) -> None:
        super().connect()
        self.sock = self._context.wrap_socket(self.sock, server_hostname=self._name or self.host)


def probe(health: Dict[str, Any], timeout: float = 2.0) -> str:
    """One look at a process; returns "" when it is well, else what was found.

    :param health: as in ``base.ENTRY_SPEC``; without ``path`` a connection is enough
    :param timeout: seconds that the answer may take
    """
    connection: http.client.HTTPConnection
    if health.get("unix"):
        where = "unix socket %s" % health["unix"]
        connection = _UnixConnection(health["unix"], timeout)
    else:
        where = "%s port %d" % (health["address"], health["port"])
        if health.get("tls"):
            connection = _TlsConnection(
                health["address"],
                health["port"],
                timeout,
                _context(health.get("ca")),
                health.get("server_name"),
            )
        else:
            connection = http.client.HTTPConnection(
                health["address"], health["port"], timeout=timeout
            )
    try:
        connection.connect()
        if not health.get("path"):
            return ""
        headers = {str(k): str(v) for k, v in (health.get("headers") or {}).items()}
        connection.request("GET", health["path"], headers=headers)
        response = connection.getresponse()
        body = response.read(300)
        if response.status == health["status"]:
            return ""
        return "%s answered GET %s with status %d (%s)" % (
            where,
            health["path"],
            response.status,
            body.decode("utf-8", "replace").strip()[:200] or response.reason,
        )
    except FileNotFoundError:
        return "%s does not exist yet" % where
    except ConnectionRefusedError:
        return "%s refuses connections" % where
    except (socket.timeout, TimeoutError):
        return "%s did not answer within %.0f s" % (where, timeout)
    except (OSError, http.client.HTTPException) as error:
        return "%s: %s" % (where, error or type(error).__name__)
    finally:
        connection.close()


def _context(ca: Optional[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca:
        context.load_verify_locations(cafile=ca)
    else:
        # A look at a process of this very host, over loopback: nothing secret is sent, and who
        # holds the port is checked by the socket's owner instead.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def listeners(port: int) -> List[Dict[str, Any]]:
    """Who listens on a TCP port here: ``[{"pid", "name", "unit", "address"}]``.

    A listener whose process cannot be seen has pid 0.
    """
    inodes: Dict[str, str] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for inode, address, number in _listening(_read(table)):
            if number == port:
                inodes[inode] = address
    owners = _owners(set(inodes))
    result = []
    for inode, address in sorted(inodes.items()):
        pids = owners.get(inode) or [0]
        result += [dict(describe(pid), address=address) for pid in pids]
    return result


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


def in_words(found: List[Dict[str, Any]]) -> str:
    """Listeners as a person would say it."""
    words = []
    for item in found:
        if not item["pid"]:
            words.append("a process that cannot be seen from here")
            continue
        unit = " of unit %s" % item["unit"] if item["unit"] else ""
        words.append("process %d (%s)%s" % (item["pid"], item["name"] or "?", unit))
    return ", ".join(sorted(set(words)))


def _listening(table: str) -> List[Tuple[str, str, int]]:
    """``(inode, address in hex, port)`` of each listening line in a /proc/net/tcp table."""
    found = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTEN:
            address, _colon, port = fields[1].partition(":")
            found.append((fields[9], address, int(port, 16)))
    return found


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
