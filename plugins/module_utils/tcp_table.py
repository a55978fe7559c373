# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The TCP sockets of a Linux machine, as /proc/net/tcp and /proc/net/tcp6 list them (proc(5))."""

from __future__ import annotations

import ipaddress
import sys
from dataclasses import dataclass
from typing import List, Union

ESTABLISHED = "01"
LISTEN = "0A"

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


@dataclass(frozen=True)
class Socket:
    """One socket.

    :ivar state: ``ESTABLISHED``, ``LISTEN`` or another of the kernel's two digits
    :ivar peer: the other side's address; of a listening socket the unspecified one
    :ivar inode: what a process's link to its socket names
    """

    state: str
    address: Address
    port: int
    peer: Address
    inode: str


def read() -> List[Socket]:
    """All that the kernel shows of this network namespace."""
    found: List[Socket] = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii", errors="replace") as stream:
                found += parse(stream.read())
        except OSError:  # no IPv6 here
            continue
    return found


def parse(text: str) -> List[Socket]:
    """The sockets in a table's text; lines that are none are left out."""
    found = []
    for line in text.splitlines()[1:]:
        try:
            _number, local, remote, state, _queues, _timer, _again, _uid, _wait, inode = (
                line.split()[:10]
            )
            address, port = local.split(":")
            peer, _port = remote.split(":")
            found.append(Socket(state, decode(address), int(port, 16), decode(peer), inode))
        except ValueError:
            continue
    return found


def decode(text: str) -> Address:
    """An address there: words of 32 bits as this machine holds them, in hexadecimal."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    raw = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    if len(raw) == 4:
        return ipaddress.IPv4Address(raw)
    return unmapped(ipaddress.IPv6Address(raw))


def unmapped(address: Address) -> Address:
    """An address of IPv4 that came in an IPv6 socket as itself; others as they are."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
