# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ports for programs that are told where to listen."""

from __future__ import annotations

import random
import socket

# Below the range that the kernel hands to outgoing connections (32768 and up): a port of that range
# that is free now may be another test's connection by the time the program listens on it.
_FIRST, _LAST = 12000, 32000
_given: set[int] = set()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has, and that this process did not give out before."""
    chance = random.SystemRandom()
    for _attempt in range(200):
        port = chance.randint(_FIRST, _LAST)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise AssertionError(f"no free port between {_FIRST} and {_LAST}")
