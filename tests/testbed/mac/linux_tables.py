# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Linux's tables of processes and sockets, for programs that show a Mac's (proc(5)).

On a host that is an emulated Mac, /proc is hidden from every program by its path. So these go there
and read by names from there.
"""

from __future__ import annotations

import ipaddress
import os
import sys
import time
from dataclasses import dataclass

_LISTEN, _ESTABLISHED = "0A", "01"


@dataclass(frozen=True)
class Process:
    """One process.

    :ivar started: in seconds since the epoch
    """

    pid: int
    parent: int
    name: str
    started: float


def enter() -> None:
    """Go to where the tables are."""
    os.chdir("/proc")


def processes() -> list[Process]:
    """All of them, by their numbers."""
    found = (_process(pid) for pid in sorted(int(name) for name in os.listdir() if name.isdigit()))
    return [one for one in found if one is not None]


def tcp(port: int | None, *, listening: bool) -> dict[str, tuple[str, str]]:
    """Inode of a TCP socket -> (type, name) as lsof has them.

    :param port: at either side; None: any
    :param listening: those that listen; else those that are connected
    """
    found = {}
    for table, kind in (("net/tcp", "IPv4"), ("net/tcp6", "IPv6")):
        for line in _read(table).splitlines()[1:]:
            _number, here, there, state, *rest = line.split()
            ends = [here] if listening else [here, there]
            if state != (_LISTEN if listening else _ESTABLISHED):
                continue
            if port is None or port in map(_port, ends):
                name = "->".join(f"{_address(end.split(':')[0])}:{_port(end)}" for end in ends)
                found[rest[5]] = (kind, name)
    return found


def _port(end: str) -> int:
    return int(end.partition(":")[2], 16)


def unix_sockets() -> dict[str, str]:
    """Inode of a unix socket -> its path, "" for those without one."""
    found = {}
    for line in _read("net/unix").splitlines()[1:]:
        fields = line.split(None, 7)
        found[fields[6]] = fields[7] if len(fields) == 8 else ""
    return found


def sockets(pid: int) -> list[tuple[int, str]]:
    """The descriptors of a process that are sockets, with their inodes."""
    found = []
    try:
        for name in sorted(os.listdir(f"{pid}/fd"), key=int):
            target = os.readlink(f"{pid}/fd/{name}")
            if target.startswith("socket:["):
                found.append((int(name), target[8:-1]))
    except OSError:  # it ends meanwhile
        pass
    return found


def _process(pid: int) -> Process | None:
    text = _read(f"{pid}/stat")
    if not text:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    # Not btime of /proc/stat, which is cut to a second: a process would be up to one too old. In
    # hundredths, as the kernel counts a start, so that two looks give the same.
    booted = round(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME), 2)
    started = booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return Process(pid, int(fields[1]), name, started)


def _address(text: str) -> str:
    """As lsof writes it: the kernel's words of 32 bits, in this machine's order."""

    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    raw = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    if not any(raw):
        return "*"
    return str(ipaddress.IPv4Address(raw)) if len(raw) == 4 else f"[{ipaddress.IPv6Address(raw)}]"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
