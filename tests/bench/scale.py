#!/usr/bin/env python3
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Two hundred models over forty hosts in single runs of the relay module; ten of them run.

``make bench NAME=scale`` or ``.venv/bin/python tests/bench/scale.py --help``. It needs what the
test bed needs. docs/performance.md says what is measured and what the figures do not say.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from bench_parts import rows, testbed
from bench_parts.aims import Aim, finish
from bench_parts.places import BED_STATE, BenchError
from bench_parts.progress import say
from reconcile_parts import audit, task
from reconcile_parts.fleet import MODELS_A_PAIR, Fleet
from reconcile_parts.real_hosts import RealHost, answers, real_host

OBJECTS_A_MODEL = 6
# What a run without changes may ask, whatever the number of models.
MOST_REQUESTS = 12

_HEAD = ("run", "changes", "seconds", "process", "cpu", "reads", "writes", "peak MiB")
_WIDTHS = (38, 7, 8, 8, 6, 6, 6, 8)


def main() -> int:
    options = _options()
    found: dict[str, Any] = {"models": options.models, "runs": {}}
    aims: list[Aim] = []
    error = ""
    try:
        say("bringing up the bed")
        testbed.up(["gpu1"], fresh=not options.keep_bed)
        print(rows.line(_HEAD, _WIDTHS, range(1, len(_HEAD))), flush=True)
        with real_host() as host:
            aims = _runs(host, options.models, found)
    except (BenchError, AssertionError, OSError, TimeoutError) as problem:
        error = str(problem)
    finally:
        if not options.keep_bed:
            testbed.down()
    return finish("scale", found, aims, error)


def _runs(host: RealHost, count: int, found: dict[str, Any]) -> list[Aim]:
    fleet = Fleet(count, replicas=1, addresses=[host.place])
    found["hosts"] = len(fleet.hosts)
    first = fleet.hosts["host00"]
    running = fleet.of_host(first.name)
    leaves = [fleet.authority.leaf(first.address) for _ in range(2)]
    first.pins = [leaves[0].pem]
    host.identify(leaves[0])
    # The first pair's models run; a quota keeps the pods of all others away.
    fleet.prepare(fleet.namespaces[1:])
    fleet.relay([], prune=True)  # of a bed that was kept
    host.serve(running, fleet.tokens)

    made = _say("from nothing", fleet.relay(fleet.models, peak=True), found)
    _wait_for(running)
    still = _say("no change", fleet.relay(fleet.models, peak=True), found)
    states = still.result["models"]
    served = sum(one["state"] == "served" for one in states.values())
    first.pins = [leaf.pem for leaf in leaves]
    fleet.register(first.name)
    pinned = _say("a host has a second certificate", fleet.relay(fleet.models, peak=True), found)
    secrets = {
        f"update Secret {model['namespace']}/{model['name']}-relay" for model in running
    }  # fmt: skip
    host.identify(*leaves)
    host.ingress.reload()
    first.pins = [leaves[1].pem]
    fleet.register(first.name)
    renewed = _say("and the first one no longer", fleet.relay(fleet.models, peak=True), found)
    lost = _ask(running)
    kept = fleet.models[: count // 2]
    gone = _say(f"{count - len(kept)} models fewer, prune", fleet.relay(kept, prune=True,
                peak=True), found)  # fmt: skip
    lost += _ask([model for model in running if model in kept])
    again = _say("no change after it", fleet.relay(kept, prune=True, peak=True), found)
    found["peak"] = max(run["peak"] for run in found["runs"].values())
    found["lost"] = lost

    def unlike(outcome: task.Outcome, wanted: set[str]) -> int:
        return len(set(outcome.changes) ^ wanted)

    return [
        Aim("from nothing: objects too many or too few",
            abs(len(made.changes) - OBJECTS_A_MODEL * count), 0),
        Aim("no change: writes", audit.writes(still.requests), 0),
        Aim("no change: requests", sum(still.requests.values()), MOST_REQUESTS),
        Aim("models that run and are served", served, len(running), least=True),
        Aim("a second certificate: objects other than the host's models' Secrets",
            unlike(pinned, secrets), 0),
        Aim("the first one no longer: the same", unlike(renewed, secrets), 0),
        Aim("prune: objects too many or too few",
            abs(len(gone.changes) - OBJECTS_A_MODEL * (count - len(kept))), 0),
        Aim("no change after it: writes", audit.writes(again.requests), 0),
        Aim("requests through the Services that failed", len(lost), 0),
    ]  # fmt: skip


def _say(title: str, outcome: task.Outcome, found: dict[str, Any]) -> task.Outcome:
    writes = audit.writes(outcome.requests)
    found["runs"][title] = {
        "changes": len(outcome.changes),
        "seconds": round(outcome.seconds, 2),
        "process_seconds": round(outcome.process, 2),
        "processor_seconds": round(outcome.processor, 2),
        "requests": outcome.requests,
        "peak": outcome.peak,
    }
    cells = (
        title,
        str(len(outcome.changes)),
        f"{outcome.seconds:.2f}",
        f"{outcome.process:.2f}",
        f"{outcome.processor:.2f}",
        str(sum(outcome.requests.values()) - writes),
        str(writes),
        f"{outcome.peak:.0f}",
    )
    print(rows.line(cells, _WIDTHS, range(1, len(_HEAD))), flush=True)
    return outcome


def _wait_for(models: list[dict[str, Any]], seconds: float = 300) -> None:
    """Until their relays run, each of them."""
    place, end = models[0]["namespace"], time.monotonic() + seconds
    while True:
        ready = [
            item["metadata"]["name"]
            for item in testbed.objects("deployments", "-n", place)
            if item["status"].get("availableReplicas") == item["spec"]["replicas"]
        ]
        if len(ready) >= len(models):
            return
        if time.monotonic() > end:
            raise BenchError(
                f"{len(ready)} of {len(models)} relays run after {seconds:.0f} s, expected all. "
                f"Look at the pods of namespace {place} with --keep-bed ({BED_STATE})"
            )
        time.sleep(2)


def _ask(models: list[dict[str, Any]]) -> list[str]:
    """One request through each Service; what went wrong."""
    lost = []
    for model in models:
        (service,) = (
            item
            for item in testbed.objects("services", "-n", model["namespace"])
            if item["metadata"]["name"] == model["name"]
        )
        problem = answers(service["spec"]["clusterIP"], model["port"])
        if problem:
            lost.append(f"{model['namespace']}/{model['name']}: {problem}")
    return lost


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--models",
        type=int,
        default=200,
        help=f"models, {MODELS_A_PAIR} on each pair of hosts (default: 200)",
    )
    parser.add_argument("--quick", action="store_true", help="20 models over 4 hosts")
    parser.add_argument(
        "--keep-bed", action="store_true", help="take the bed as it is, and leave it up"
    )
    options = parser.parse_args()
    if options.quick:
        options.models = 20
    return options


if __name__ == "__main__":
    sys.exit(main())
