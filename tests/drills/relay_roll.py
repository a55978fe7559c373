# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Relays are rolled, get other pins, and are evicted, under load: no request may be lost (N3).

    python tests/drills/relay_roll.py

It runs on the test bed `test` with the inventory of molecule/default (tests/run brings the bed up).
The bed has one relay image and one node. So it is another setting of the pods that rolls them and
not another image, which is the same to Kubernetes; and the node is drained as far as one alone can
be: each relay is evicted through the API, as kubectl drain does it, and its successor may come back
to that node.
"""

from __future__ import annotations

import json
import sys
import time

from drill_parts import fleet, options, report
from drill_parts.load import Load

bed = fleet.bed


def names() -> set[str]:
    """The relays that are there and do not end."""
    return {
        pod["metadata"]["name"]
        for pod in fleet.relays()
        if "deletionTimestamp" not in pod["metadata"]
    }


def roll() -> float:
    """Every pod is replaced, by site.yml, there and back; the seconds of both."""
    before = names()
    seconds = fleet.play("site", "-e", json.dumps({"relay_drain_timeout": 100}))
    if before & names():
        raise SystemExit(f"not rolled: {before & names()}")
    return seconds + fleet.play("site")


def pins() -> float:
    """Every host gets a new certificate, and relays pin it alone in the end."""
    before = certificates()
    # All of it but a millionth is left: due for renewal.
    seconds = fleet.play("site", "-e", json.dumps({"identity_renew_fraction": 0.999999}))
    kept = [host for host, pem in certificates().items() if before[host] == pem]
    if kept:
        raise SystemExit(f"certificates that were not renewed: {kept}")
    return seconds


def certificates() -> dict[str, list[str]]:
    """What relays accept of each host, by the hosts' records."""
    items = bed.get("configmap", "-n", "tether-fleet", "-l", "tether.fleet/record=host")["items"]
    records = [json.loads(item["data"]["record.json"]) for item in items]
    return {record["host"]: record["certificates"] for record in records}


def evict() -> float:
    """Each relay through the Eviction API, which heeds the PodDisruptionBudget."""
    began, wanted = time.monotonic(), fleet.replicas()
    for name in sorted(names()):
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": fleet.NAMESPACE},
        }
        path = f"/api/v1/namespaces/{fleet.NAMESPACE}/pods/{name}/eviction"
        bed.kubectl("create", "--raw", path, "-f", "-", text_in=json.dumps(eviction))
        fleet.wait_for_relays(wanted)
    return round(time.monotonic() - began, 1)


STEPS = (roll, pins, evict)
# The short form leaves out what is `relay-delete` in another way, and the rolling of pods.
SHORT = (pins,)


def main() -> int:
    told = options.read(__doc__)
    fleet.build()
    fleet.wait_for_relays(fleet.replicas())
    seconds: dict[str, float] = {}
    with Load(fleet.service(), fleet.MODEL, told.short) as load:
        for step in SHORT if told.short else STEPS:
            load.wait_for(told.requests // 4)
            seconds[step.__name__] = step()
            lost = len(load.outcome.bad)
            print(f"{step.__name__}: {seconds[step.__name__]} s, lost {lost}", flush=True)
        load.wait_for(max(50, told.requests - load.outcome.total))
    return report.finish(
        "relay-roll", load.outcome, [], seconds=seconds, longest=load.outcome.longest
    )


if __name__ == "__main__":
    sys.exit(main())
