# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Medians, ratios within rounds, and whether the aims hold."""

from __future__ import annotations

from statistics import median
from typing import Any

from bench_parts.aims import Aim

from .measure import Run

# The aims for what the collection manages on a host.
MOST_EXECUTIONS = 4
MOST_OF_ROLE = 0.25
MOST_OF_PYINFRA = 1.0

Round = dict[str, Run]
"""Way to its run."""


def summary(runs: list[Run]) -> dict[str, Any]:
    """The figures of one way: median seconds, and the most that any round executed on a host."""
    walls = [run.wall for run in runs]
    return {
        "seconds": round(median(walls), 2),
        "seconds_of_rounds": [round(wall, 2) for wall in walls],
        "tasks": max(run.account.tasks for run in runs),
        "executions_per_host": max(max(run.executions.values()) for run in runs),
        "modules_per_host": max(max(run.account.modules.values(), default=0) for run in runs),
        "transfers_per_host": max(max(run.transfers.values()) for run in runs),
        "modules_on_controller": max(run.account.on_controller for run in runs),
    }


def ratio(rounds: list[Round], way: str, control: str) -> float:
    """The median of a way's time over a control's, each taken within its round."""
    return round(median(row[way].wall / row[control].wall for row in rounds), 3)


def aims(count: int, rounds: list[Round]) -> list[Aim]:
    most = max(max(row["site"].executions.values()) for row in rounds)
    who = f"{count} host{'s' if count > 1 else ''}"
    return [
        Aim(f"{who}: executions on a host", most, MOST_EXECUTIONS),
        Aim(f"{who}: host part / role", ratio(rounds, "host", "role"), MOST_OF_ROLE),
        Aim(f"{who}: host part / pyinfra", ratio(rounds, "host", "pyinfra"), MOST_OF_PYINFRA),
    ]


def mixed(run: Run, linux: str, mac: str) -> tuple[dict[str, dict[str, int]], list[Aim]]:
    """What one run of the whole executed on each host of a fleet of both systems."""
    found = {
        name: {
            "executions": run.executions[name],
            "transfers": run.transfers[name],
            "modules": run.account.modules.get(name, 0),
        }
        for name in (linux, mac)
    }
    aims = [
        Aim(f"emulated Mac: {what}, as on Linux", found[mac][what], found[linux][what])
        for what in ("executions", "transfers")
    ]
    return found, aims


def profile(runs: list[Run], top: int = 8) -> list[tuple[str, float]]:
    """The tasks that take the most time: median seconds by name, over the runs."""
    by_name: dict[str, list[float]] = {}
    for run in runs:
        sums: dict[str, float] = {}
        for name, seconds in run.account.profile:
            sums[name] = sums.get(name, 0.0) + seconds
        for name, seconds in sums.items():
            by_name.setdefault(name, []).append(seconds)
    medians = [(name, median(seconds)) for name, seconds in by_name.items()]
    return sorted(medians, key=lambda row: -row[1])[:top]
