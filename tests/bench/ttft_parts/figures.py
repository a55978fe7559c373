# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Percentiles, what a way adds to the direct one, and the aims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench_parts.aims import Aim
from bench_parts.places import BenchError

# A first token that takes as long as that of a small model on a good machine.
TOKEN_MS = 80
MOST_OF_TOKEN = 1.02
MOST_OF_CADDY = 0.85
MOST_RESIDENT = 80.0
MOST_ANONYMOUS = 24.0
# Where memory is read, and the processor's time is compared.
MEMORY_AT = 64


def check_alive(where: str, way: str, good: int, errors: Sequence[str]) -> None:
    """:raises BenchError: when more than one request in twenty failed: then nothing was measured"""
    if len(errors) * 20 > good:
        raise BenchError(
            f"{where}, {way}: {len(errors)} of {good + len(errors)} requests failed ({errors[0]}), "
            "expected hardly any: look at that way before its figures"
        )


def percentile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


def first_tokens(series: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By way: p50 and p99 in milliseconds, how much they are above the direct way's, and errors."""
    direct = series["direct"]["first"]
    found: dict[str, dict[str, Any]] = {}
    for name, one in series.items():
        entry: dict[str, Any] = {"requests": len(one["first"]), "errors": len(one["errors"])}
        for label, part in (("p50", 0.5), ("p99", 0.99)):
            mine, base = percentile(one["first"], part), percentile(direct, part)
            entry[label] = round(mine, 3)
            entry[f"added_{label}"] = round(mine - base, 3)
            entry[f"ratio_{label}"] = round(mine / base, 3) if base else 0.0
        found[name] = entry
    return found


def aims(found: dict[str, Any]) -> list[Aim]:
    """What is promised of the relay and the ingress, of figures as `ttft` has them."""
    real, slow = found["first_token"]["llama"], found["first_token"]["slow"]
    clients = str(MEMORY_AT)
    cost = {
        way: found["load"][clients][way]["cpu_us_a_request"] for way in ("relay", "caddy")
    }  # fmt: skip
    memory = found["memory"]["relay"]
    failed = sum(
        entry["relay"]["errors"] for entry in found["first_token"].values()
    ) + sum(entry["relay"]["failed"] for entry in found["load"].values())  # fmt: skip
    return [
        Aim("real engine: added p50 / Caddy's at both ends",
            round(real["relay"]["added_p50"] / real["caddy"]["added_p50"], 3), MOST_OF_CADDY),
        Aim(f"a first token of {TOKEN_MS} ms: p50 / direct",
            slow["relay"]["ratio_p50"], MOST_OF_TOKEN),
        Aim(f"{clients} clients: processor a request, both hops / Caddy's at both ends",
            round(cost["relay"] / cost["caddy"], 3), MOST_OF_CADDY),
        Aim("relay: resident MiB", memory["resident"], MOST_RESIDENT),
        Aim("relay: anonymous MiB", memory["anonymous"], MOST_ANONYMOUS),
        Aim("relay: failed requests", failed, 0),
    ]  # fmt: skip
