# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Wait until nobody is connected to a host's ingress any more.

A relay that is told to leave a host alone closes its idle connections to it at once, that of its
health checks too, and every other one when its request has ended. So a relay that is still
connected has a request there, or has not been told yet; both are waited for.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List

from ansible_collections.tether.fleet.plugins.module_utils import tcp_table
from ansible_collections.tether.fleet.plugins.module_utils.daemon import processes

# A relay whose connection was just closed for another reason is back within a second, the interval
# of its health checks: so nobody must be seen for longer than that.
QUIET_SECONDS = 2.5
_PAUSE = 0.25


def peers(connections: List[tcp_table.Socket]) -> List[str]:
    """Addresses of those connected from other machines, one for each connection. Pure."""
    return sorted(str(one.peer) for one in connections if not _is_own(one))


def _is_own(one: tcp_table.Socket) -> bool:
    """Whether the machine has connected to itself."""
    return one.peer.is_loopback or one.peer == one.address


def wait(
    port: int,
    timeout: float,
    look: Callable[[int], List[tcp_table.Socket]] = processes.connections,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Dict[str, Any]:
    """Look until nobody was connected for a while, or the time is over.

    :param port: the ingress's
    :param timeout: seconds for all of it
    :return: ``{"waited": seconds, "connected": peers at the end}``
    """
    began = quiet = clock()
    while True:
        connected = peers(look(port))
        now = clock()
        if connected:
            quiet = now
        if now - quiet >= QUIET_SECONDS or now - began >= timeout:
            return {"waited": round(now - began, 1), "connected": connected}
        sleep(_PAUSE)
