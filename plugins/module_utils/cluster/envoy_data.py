# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a relay's Envoy is made from: hosts, limits and the place where it runs. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import drain

FOLDER = "/etc/tether/relay"
SERVICE_PORT = 8080
PROBE_PORT = 8081
METRICS_PORT = 9464  # of the Service, too
CLUSTER = "hosts"

# Retries wait up to a second each, half of one on average (full jitter).
_RETRY_SECONDS = 0.5
# What a client's link carries at least: a megabit a second, less a tenth.
_SLOWEST_LINK = 900_000
_LEAST_RECEPTION = 300


@dataclass(frozen=True)
class Host:
    """One GPU host as a relay sees it.

    :ivar name: the inventory's name
    :ivar address: IP address or DNS name, the one that the certificates carry
    :ivar port: the ingress port
    :ivar pins: the accepted leaves as PEM, one or, during a change, two; none: nothing matches
    :ivar draining: it gets no new request; those that run there go on
    """

    name: str
    address: str
    port: int
    pins: Tuple[str, ...] = ()
    draining: bool = False


@dataclass(frozen=True)
class Limits:
    """What one request may take.

    :ivar host_wait: seconds that it waits for a host to come back, about
    :ivar max_body: bytes of its body that are kept, so that another host can have it
    :ivar drain_timeout: seconds that it may go on when its relay is to end
    """

    host_wait: int = 30
    max_body: int = 32 * 1024 * 1024
    drain_timeout: int = 120

    @property
    def retries(self) -> int:
        return max(2, round(self.host_wait / _RETRY_SECONDS))

    @property
    def reception(self) -> int:
        """Seconds within which a request must have come whole: 300 for 32 MiB."""
        return max(_LEAST_RECEPTION, -(-8 * self.max_body // _SLOWEST_LINK))

    @property
    def max_heap(self) -> int:
        """Bytes that one Envoy may use: itself, and sixteen bodies of the largest size."""
        return 96 * 1024 * 1024 + 16 * self.max_body

    @property
    def memory(self) -> int:
        """Bytes that the pod may use: a quarter above what Envoy allows itself."""
        return self.max_heap * 5 // 4


@dataclass(frozen=True)
class Place:
    """Where one Envoy runs: in a pod, or, in tests, beside others on a machine.

    :ivar listen: address to listen on; ``::`` for clusters whose pods have IPv6 first
    :ivar folder: of the files that it reads
    :ivar least_drain: seconds that a drain takes at least
    """

    listen: str = "0.0.0.0"  # noqa: S104 - inside a pod, behind its Service
    folder: str = FOLDER
    service_port: int = SERVICE_PORT
    probe_port: int = PROBE_PORT
    drain_port: int = drain.PORT
    metrics_port: int = METRICS_PORT
    admin_socket: str = drain.ADMIN_SOCKET
    least_drain: float = drain.LEAST_SECONDS


DEFAULT_LIMITS = Limits()
POD = Place()


def is_name(address: str) -> bool:
    """Whether an address is a DNS name rather than an IP address."""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return True
    return False
