# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How a relay spreads a model's requests over its hosts, and how many run on each. Pure.

One request occupies one HTTP/1.1 connection, so Envoy's limit of connections per host is one of
running requests. Envoy's other limits count over all hosts of a cluster. Health checks have
connections of their own, which are not counted (observed with Envoy 1.40).

What is above the limit waits in the relay, behind the host that was chosen for it: Envoy never
moves a waiting request to another host. So the choice has to be good; see `RUNTIME` and `policy`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, List, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import envoy_parts as parts
from ansible_collections.tether.fleet.plugins.module_utils.cluster import forms

LEAST_REQUEST, ROUND_ROBIN, AFFINITY = "least_request", "round_robin", "affinity"
POLICIES = (LEAST_REQUEST, ROUND_ROBIN, AFFINITY)

MAX_PARALLEL = 4096
MAX_QUEUE = 100000
# As many as one client of the OpenAI library may have open at most (httpx limits of openai 2.x).
QUEUE = 1000

# A request that waits behind a host, or for its connection, counts as one that the host has.
# Without it a burst over cold connections goes to one host, and queues grow apart (Envoy 1.40).
RUNTIME = {"envoy.reloadable_features.least_request_lb_count_pending_requests": True}

# Draws until a retry has found a host that was not tried yet; see `policy`.
REDRAWS = 500

# Above this share of the average load, in percent, a host's clients are sent to others: of eight
# at once with one value two were, and with 150 none (two hosts, Envoy 1.40). Only in the new form
# of a policy: under ``common_lb_config`` the factor does nothing there.
_BALANCE_FACTOR = 110
_UNLIMITED = 100000

_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")


@dataclass(frozen=True)
class Balancing:
    """One model's balancing.

    :ivar policy: one of `POLICIES`
    :ivar header: the header whose value chooses the host, for `AFFINITY`
    :ivar parallel: requests that may run on one host, those of all relays together; 0: no limit
    :ivar queue: requests that may wait in one relay, when there is a limit; up to as many more as
        may run there, see `circuit_breakers`
    :ivar relays: over how many pods ``parallel`` is divided; they share no count
    """

    policy: str = LEAST_REQUEST
    header: str = ""
    parallel: int = 0
    queue: int = QUEUE
    relays: int = 2

    @property
    def per_relay(self) -> int:
        """One relay's part, rounded up so that no slot is left idle; 0: no limit."""
        return -(-self.parallel // self.relays)


DEFAULT = Balancing()


def read(entry: Dict[str, Any], relays: int) -> Tuple[Balancing, List[str]]:
    """A plan's entry, and what is wrong with it."""
    wrong: List[str] = []
    policy = entry.get("balancing") or LEAST_REQUEST
    if policy not in POLICIES:
        wrong.append("balancing is not one of %s" % ", ".join(POLICIES))
    header = entry.get("affinity_header") or ""
    if (policy == AFFINITY or header) and not (
        isinstance(header, str) and _HEADER.fullmatch(header)
    ):
        wrong.append("affinity_header is not a header's name")
    parallel, queue = entry.get("parallel"), entry.get("queue")
    parallel = 0 if parallel is None else parallel
    queue = QUEUE if queue is None else queue
    return (
        Balancing(
            policy,
            header,
            forms.number("parallel", parallel, 0, 0, MAX_PARALLEL, wrong),
            forms.number("queue", queue, QUEUE, 1, MAX_QUEUE, wrong),
            relays,
        ),
        wrong,
    )


def circuit_breakers(balancing: Balancing, hosts: int) -> Dict[str, Any]:
    """Envoy's limits of a cluster with so many hosts.

    Envoy counts a request as waiting whose connection is still to be made. So as many as may run
    are allowed beside the queue: else a burst over cold connections would be refused while slots
    are free.
    """
    limits = {
        "max_connections": _UNLIMITED,
        "max_pending_requests": _UNLIMITED,
        "max_requests": _UNLIMITED,
        "max_retries": 10000,
    }
    result: Dict[str, Any] = {}
    if balancing.parallel:
        limits["max_pending_requests"] = balancing.queue + balancing.per_relay * hosts
        result["per_host_thresholds"] = [{"max_connections": balancing.per_relay}]
    result["thresholds"] = [
        dict(limits, priority="DEFAULT"),
        dict(limits, priority="HIGH"),
    ]
    return result


def policy(balancing: Balancing, hosts: int) -> Dict[str, Any]:
    """Envoy's choice of a host, as keys of a cluster.

    Least request draws hosts by lot, one as often as it comes, and takes the one with the fewest.
    Four draws a host find a free one in 99 of 100 cases. Looking at all of them (Envoy's full scan)
    would find it always, and at every retry find a host again that fails at once and so has none.
    """
    if balancing.policy == ROUND_ROBIN:
        return {"lb_policy": "ROUND_ROBIN"}
    if balancing.policy == AFFINITY:
        chosen = parts.extension(
            "envoy.load_balancing_policies.maglev",
            "load_balancing_policies.maglev.v3.Maglev",
            {"consistent_hashing_lb_config": {"hash_balance_factor": _BALANCE_FACTOR}},
        )
        return {"load_balancing_policy": {"policies": [{"typed_extension_config": chosen}]}}
    return {
        "lb_policy": "LEAST_REQUEST",
        "least_request_lb_config": {"choice_count": max(2, 4 * hosts)},
    }


def endpoint_metadata(host: str) -> Dict[str, Any]:
    """What affinity knows a host by: one that moves to another address keeps its clients."""
    return {"envoy.lb": {"hash_key": host}}


def hash_policy(balancing: Balancing) -> Dict[str, Any]:
    """What chooses the host by affinity, as keys of a route. Without the header any host may."""
    if balancing.policy != AFFINITY:
        return {}
    return {"hash_policy": [{"header": {"header_name": balancing.header}}]}
