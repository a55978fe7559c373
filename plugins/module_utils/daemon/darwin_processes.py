# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who listens and who is connected where on macOS, and which launchd job it is of.

lsof(8), "OUTPUT FOR OTHER PROGRAMS": with -F each line is a field, named by its first letter.
``p`` begins a process, ``c`` is its command; ``f`` begins a file, ``t`` is its type and ``n`` its
name. That the lsof of macOS keeps to its manual is an assumption: it was never run for this.

launchd has no groups of processes that could be asked for a process's job. So it is found by its
ancestors: launchctl list, as root, has the process of each job of the system domain. A process that
left its parent is of no job then.
"""

from __future__ import annotations

import calendar
import ipaddress
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from ansible_collections.tether.fleet.plugins.module_utils import tcp_table
from ansible_collections.tether.fleet.plugins.module_utils.daemon import commands
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

# By its path: what stands in its place on somebody's PATH could say anything.
LSOF = "/usr/sbin/lsof"
_OPTIONS = ["-w", "-n", "-P", "+c", "0", "-F", "pcftn"]
_MOMENT = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) (\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_WILDCARDS = {"IPv4": "0.0.0.0", "IPv6": "::"}  # noqa: S104 - read, not bound


class OpenFile(NamedTuple):
    """What lsof says of one file of a process.

    :ivar kind: ``IPv4``, ``IPv6``, ``unix``...
    """

    pid: int
    command: str
    kind: str
    name: str


def listeners(port: int) -> List[Dict[str, Any]]:
    """Who listens on a TCP port here, as ``processes.listeners``."""
    return _described(
        [(one, address(one)) for one in _open_files("-iTCP:%d" % port, "-sTCP:LISTEN")]
    )


def connections(port: int) -> List[tcp_table.Socket]:
    """Connections of other machines and this one with a TCP port here, as ``processes``'s."""
    found = [connection(one) for one in _open_files("-iTCP:%d" % port, "-sTCP:ESTABLISHED")]
    # Those to the same port of another machine are shown as well.
    return [one for one in found if one is not None and one.port == port]


def listening() -> List[tcp_table.Socket]:
    """Every socket that listens on a TCP port, as ``processes.listening``."""
    found = [listener(one) for one in _open_files("-iTCP", "-sTCP:LISTEN")]
    return [one for one in found if one is not None]


def connections_of(pids: List[int]) -> List[Tuple[OpenFile, tcp_table.Socket]]:
    """Established TCP connections that processes hold; by which of them each is held."""
    # -a: of these processes and of that kind; without it lsof shows what is either.
    which = ("-a", "-p", ",".join(map(str, pids)), "-iTCP", "-sTCP:ESTABLISHED")
    found = [(one, connection(one)) for one in _open_files(*which)]
    return [(one, socket) for one, socket in found if socket is not None]


def listener(one: OpenFile) -> Optional[tcp_table.Socket]:
    """The socket of a name like ``*:9443``; None for other names."""
    try:
        here = tcp_table.unmapped(ipaddress.ip_address(address(one)))
        port = int(one.name.rpartition(":")[2])
    except ValueError:
        return None
    nobody = ipaddress.ip_address("0.0.0.0" if here.version == 4 else "::")  # noqa: S104 - no bind
    return tcp_table.Socket(tcp_table.LISTEN, here, port, nobody, "")


def connection(one: OpenFile) -> Optional[tcp_table.Socket]:
    """The socket of a name like ``10.0.0.1:9443->10.0.0.9:51324``; None for other names."""
    local, _arrow, peer = one.name.partition("->")
    try:
        here, port = address(one._replace(name=local)), local.rpartition(":")[2]
        there = address(one._replace(name=peer))
        return tcp_table.Socket(
            tcp_table.ESTABLISHED,
            tcp_table.unmapped(ipaddress.ip_address(here)),
            int(port),
            tcp_table.unmapped(ipaddress.ip_address(there)),
            "",
        )
    except ValueError:
        return None


def unix_listeners(path: str) -> List[Dict[str, Any]]:
    """Who holds a unix socket of that path open, as ``processes.unix_listeners``."""
    # /var is a link: whether the kernel keeps the path as it was given is not known.
    wanted = (path, os.path.realpath(path))
    return _described([(one, path) for one in _open_files("-U") if one.name in wanted])


def _open_files(*which: str) -> List[OpenFile]:
    """What lsof says.

    :raises Refusal: when that is nothing one could rely on
    """
    done = commands.run([LSOF, *_OPTIONS, *which], timeout=30)
    found = parse(done.stdout)
    # It answers 1 where there is nothing to show, and where something else went wrong.
    if done.returncode in (0, 1) and found:
        return found
    if done.returncode == 1 and not (done.stdout + done.stderr).strip():
        return []
    raise Refusal(
        "who listens on this Mac",
        "nothing that can be read from lsof (status %d: %s)"
        % (done.returncode, commands.said(done)),
        "the sockets of all processes",
        "Run sudo %s -nP -iTCP -sTCP:LISTEN on it and mend what that says" % LSOF,
    )


def parse(text: str) -> List[OpenFile]:
    """The open files in lsof's field output; lines that are none are left out."""
    found: List[OpenFile] = []
    pid, command, kind = 0, "", ""
    for line in text.split("\n"):
        mark, value = line[:1], line[1:]
        if mark == "p":
            pid, command = (int(value) if value.isdecimal() else 0), ""
        elif mark == "c":
            command = value
        elif mark == "f":
            kind = ""
        elif mark == "t":
            kind = value
        elif mark == "n" and pid:
            found.append(OpenFile(pid, command, kind, value))
    return found


def address(one: OpenFile) -> str:
    """The address in the name of a socket: ``*:9443``, ``127.0.0.1:9443``, ``[::1]:9443``."""
    text = one.name.rpartition(":")[0].strip("[]").partition("%")[0]
    return _WILDCARDS.get(one.kind, text) if text == "*" else text


def labels(text: str) -> Dict[int, str]:
    """Process -> label, of ``launchctl list``: lines of process (or ``-``), status and label."""
    rows = [line.split("\t") for line in text.splitlines()]
    return {int(row[0]): row[2] for row in rows if len(row) == 3 and row[0].isdecimal()}


def lineage(pid: int, parents: Dict[int, int]) -> List[int]:
    """A process, its parent and so on; without launchd, whom everything comes from."""
    found: List[int] = []
    while pid > 1 and pid not in found:
        found.append(pid)
        pid = parents.get(pid, 0)
    return found


def _described(found: List[Tuple[OpenFile, str]]) -> List[Dict[str, Any]]:
    if not found:
        return []
    above, known = parents(), labels(commands.run(["launchctl", "list"], timeout=30).stdout)
    result: List[Dict[str, Any]] = []
    seen: Set[Tuple[int, str]] = set()
    for one, where in found:
        if (one.pid, where) in seen:  # one socket, held twice
            continue
        seen.add((one.pid, where))
        line = lineage(one.pid, above)
        unit = next((known[pid] for pid in line if pid in known), "")
        item = {"pid": one.pid, "name": one.command, "unit": unit, "address": where}
        result.append(dict(item, lineage=line))
    return result


def parents() -> Dict[int, int]:
    """Process -> its parent."""
    done = commands.run(["ps", "-axo", "pid=,ppid="], timeout=30)
    rows = [line.split() for line in done.stdout.splitlines()]
    return {int(row[0]): int(row[1]) for row in rows if len(row) == 2 and "".join(row).isdecimal()}


def started(pid: int) -> Tuple[str, Optional[float]]:
    """When a process started, as ps says it and in seconds since the epoch; ("", None) without one.

    The text tells a process from a later one of the same number. ps prints it with strftime's %c,
    which is English in the locale C; in UTC no hour comes twice.
    """
    done = commands.run(["ps", "-o", "lstart=", "-p", str(pid)], timeout=30, TZ="UTC")
    text = " ".join(done.stdout.split())
    return (text, moment(text)) if text else ("", None)


def moment(text: str) -> Optional[float]:
    """``Mon Nov 30 16:45:12 2026``, in UTC, as seconds since the epoch; None for other texts."""
    found = _MOMENT.fullmatch(text)
    if not found or found.group(1) not in _MONTHS:
        return None
    day, hour, minute, second, year = (int(each) for each in found.groups()[1:])
    month = _MONTHS.index(found.group(1)) + 1
    return float(calendar.timegm((year, month, day, hour, minute, second)))
