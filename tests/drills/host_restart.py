# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hosts are drained, restarted and undrained under load: ingress, engine, the whole host (N5).

First with a model that has another host, whose requests may not even wait; then with a model that
has none, whose requests wait for it. Nothing may be lost in either. At the end of each comes
site.yml, with a change that restarts every engine and reloads every ingress, and drains by itself.

    python tests/drills/host_restart.py

It runs on the test bed `test` with the inventory of molecule/default (tests/run brings the bed up).
For comparison: LLMKube 0.10.0 reports an outage of 19 s when its host restarts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from drill_parts import fleet, options, report
from drill_parts.load import Load

bed = fleet.bed
# Seconds that requests wait for the only host: longer than a drain, a restart and an undrain take.
WAIT = 90


def ingress(host: str, _unit: str) -> None:
    bed.ssh(host, "systemctl restart tether-ingress.service")


def engine(host: str, unit: str) -> None:
    bed.ssh(host, f"systemctl restart {unit}")


def machine(host: str, _unit: str) -> None:
    keeper = fleet.status()["hosts"][host]["pid"]
    bed.ssh(host, "systemctl poweroff", check=False)
    fleet.wait_for_end(keeper, host, 60)
    bed.bed("up", timeout=300)


RESTARTS: tuple[Callable[[str, str], None], ...] = (ingress, engine, machine)


def changed() -> str:
    """Variables unlike the inventory's: other arguments of each engine, another Caddyfile."""
    models = bed.declared_models()
    for model in models:
        model["args"] = [*model["args"][:-1], "2"]
    return json.dumps({"fleet_models": models, "ingress_max_body_bytes": 30_000_000})


def drill(
    host: str,
    namespace: str,
    model: str,
    told: argparse.Namespace,
    variables: tuple[str, ...],
) -> tuple[Load, dict[str, Any]]:
    """Each restart of one host under load of one model; the load, and seconds by restart.

    The short form has those by site.yml alone.
    """
    seconds: dict[str, Any] = {}
    hosts = ("-e", f"drain_hosts={host}", *variables)
    with Load(fleet.service(namespace, model), model, told.short, timeout=WAIT + 60) as load:
        for restart in () if told.short else RESTARTS:
            load.wait_for(told.requests // 4)
            drained = fleet.play("drain", *hosts)
            began = time.monotonic()
            restart(host, fleet.unit(namespace, model))
            down = round(time.monotonic() - began, 1)
            undrained = fleet.play("undrain", *hosts)
            seconds[restart.__name__] = (drained, down, undrained)
            lost = len(load.outcome.bad)
            print(
                f"{model}, {restart.__name__}: {seconds[restart.__name__]}, lost {lost}", flush=True
            )
        load.wait_for(told.requests // 4)
        # There and back: what runs afterwards is what the inventory says.
        seconds["site"] = (
            fleet.play("site", *variables, "-e", changed()),
            fleet.play("site", *variables),
        )
        print(f"{model}, site: {seconds['site']}, lost {len(load.outcome.bad)}", flush=True)
        load.wait_for(max(50, told.requests - load.outcome.total))
    return load, seconds


def main() -> int:
    told = options.read(__doc__)
    variables = ("-e", json.dumps({"relay_host_wait": WAIT}))
    fleet.build(*variables)
    (lone,) = [
        item["hosts"]
        for item in bed.declared_models()
        if (item["namespace"], item["name"]) == fleet.LONE
    ]
    phases = {"two hosts": ("gpu1", fleet.NAMESPACE, fleet.MODEL)}
    if not told.short:
        phases["one host"] = (lone[0], *fleet.LONE)
    problems: list[str] = []
    figures: dict[str, Any] = {}
    for name, (host, namespace, model) in phases.items():
        load, seconds = drill(host, namespace, model, told, variables)
        problems += [f"{name}: {loss}" for loss in report.losses(load.outcome)]
        figures[name] = {
            "requests": load.outcome.total,
            "lost": len(load.outcome.bad),
            "longest": load.outcome.longest,
            "seconds": seconds,
        }
    return report.end("host-restart", problems, **figures)


if __name__ == "__main__":
    sys.exit(main())
