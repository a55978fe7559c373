#!/usr/bin/env python3
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What relay and ingress add to the time to the first token, and what they take, beside others.

``make bench NAME=ttft`` or ``.venv/bin/python tests/bench/ttft.py --help``. It needs Go and no bed.
docs/performance.md says what is measured and what the figures do not say.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from bench_parts import rows
from bench_parts.aims import Aim, finish
from bench_parts.places import BenchError
from bench_parts.progress import say
from ttft_parts import engines, figures, programs, ways
from ttft_parts.client import Client
from ttft_parts.process import memory, processor_seconds

TITLES = {
    "direct": "direct",
    "relay": "relay (Envoy), ingress (Caddy)",
    "caddy": "Caddy at both ends",
    "haproxy": "HAProxy at both ends",
}
ENGINES = {"llama": "llama-server", "slow": f"fixed, {figures.TOKEN_MS} ms", "fixed": "fixed"}
_FIRST_HEAD = ("engine", "way", "p50 ms", "added", "ratio", "p99 ms", "added", "ratio", "errors")
_FIRST_WIDTHS = (12, 31, 7, 7, 6, 7, 7, 6, 6)
_LOAD_HEAD = ("clients", "way", "requests/s", "p50 ms", "p99 ms", "CPU us", "failed")
_LOAD_WIDTHS = (7, 31, 10, 7, 7, 7, 6)


def main() -> int:
    options = _options()
    found: dict[str, Any] = {"first_token": {}, "load": {}, "memory": {}}
    aims: list[Aim] = []
    error = ""
    try:
        say("getting the programs")
        pinned = programs.pinned()
        parts = ways.Programs(pinned["TETHER_ENVOY"], pinned["TETHER_CADDY"], _haproxy())
        load = programs.load()
        client = Client(load)
        with tempfile.TemporaryDirectory(prefix="tether-bench-") as place:
            folder = Path(place)
            started = [
                engines.llama(folder, pinned["TETHER_LLAMA_SERVER"]),
                engines.fixed(folder, load, "slow", figures.TOKEN_MS),
                engines.fixed(folder, load, "fixed"),
            ]
            try:
                for engine in started:
                    with ways.to(engine, folder / f"to-{engine.name}", parts) as open_ways:
                        _first_tokens(engine.name, client, open_ways, options, found)
                        if engine.name == "fixed":
                            _under_load(client, open_ways, options, found)
            finally:
                for engine in started:
                    engine.process.stop()
        aims = figures.aims(found)
    except (BenchError, AssertionError, OSError) as problem:
        error = str(problem)
    return finish("ttft", found, aims, error)


def _haproxy() -> list[str]:
    try:
        return programs.haproxy()
    except BenchError as problem:
        say(f"no HAProxy, so it is left out: {str(problem).splitlines()[0]}")
        return []


def _first_tokens(
    engine: str,
    client: Client,
    open_ways: Mapping[str, ways.Way],
    options: argparse.Namespace,
    found: dict[str, Any],
) -> None:
    say(f"first tokens of {ENGINES[engine]}: {options.rounds} rounds")
    if engine == "llama":
        print(_line(_FIRST_HEAD, _FIRST_WIDTHS), flush=True)
    for way in open_ways.values():
        client.wait(way.address)
    targets = {name: way.address for name, way in open_ways.items()}
    asked = client.turns(targets, options.rounds)
    series = {name: asked[name] for name in targets}
    for name, one in series.items():
        figures.check_alive(ENGINES[engine], name, len(one["first"]), one["errors"])
    entry = figures.first_tokens(series)
    found["first_token"][engine] = entry
    for name, row in entry.items():
        cells = [ENGINES[engine], TITLES[name]]
        for label in ("p50", "p99"):
            cells += [
                f"{row[label]:.2f}",
                f"{row['added_' + label]:.2f}",
                f"{row['ratio_' + label]:.2f}",
            ]
        print(_line((*cells, str(row["errors"])), _FIRST_WIDTHS), flush=True)


def _under_load(
    client: Client,
    open_ways: Mapping[str, ways.Way],
    options: argparse.Namespace,
    found: dict[str, Any],
) -> None:
    """The same ways with 1, 16, 64 and 256 clients; in each round every way has its turn."""
    print(_line(_LOAD_HEAD, _LOAD_WIDTHS), flush=True)
    names = list(open_ways)
    for clients in options.clients:
        say(f"{clients} client(s)")
        seen: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for number in range(options.load_rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                way = open_ways[name]
                used = processor_seconds(way.pids)
                pushed = client.push(way.address, clients, options.seconds)
                pushed["cpu"] = processor_seconds(way.pids) - used
                seen[name].append(pushed)
        entry = {name: _summary(runs) for name, runs in seen.items()}
        for name, row in entry.items():
            figures.check_alive(
                f"{clients} client(s)", name, row["requests"], row["errors"][: row["failed"]]
            )
        found["load"][str(clients)] = entry
        for name, row in entry.items():
            cells = (
                str(clients),
                TITLES[name],
                f"{row['requests_a_second']:.0f}",
                f"{row['p50']:.2f}",
                f"{row['p99']:.2f}",
                f"{row['cpu_us_a_request']:.0f}" if open_ways[name].pids else "",
                str(row["failed"]),
            )
            print(_line(cells, _LOAD_WIDTHS), flush=True)
        if clients == figures.MEMORY_AT:
            found["memory"] = {
                name: memory(way.relay) for name, way in open_ways.items() if way.relay
            }
            for name, taken in found["memory"].items():
                print(
                    f"memory of the relay's side after {clients} clients, {TITLES[name]}: "
                    f"{taken['resident']} MiB resident, {taken['anonymous']} MiB anonymous",
                    flush=True,
                )


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    requests = sum(run["requests"] for run in runs)
    return {
        "requests": requests,
        "requests_a_second": round(median(run["requests"] / run["seconds"] for run in runs), 1),
        "p50": round(median(run["p50"] for run in runs), 3),
        "p99": round(median(run["p99"] for run in runs), 3),
        "cpu_us_a_request": round(sum(run["cpu"] for run in runs) / max(requests, 1) * 1e6, 1),
        "failed": sum(run["failed"] for run in runs),
        "errors": [text for run in runs for text in run["errors"]][:5],
    }


def _line(cells: tuple[str, ...], widths: tuple[int, ...]) -> str:
    text = 2 if widths is _FIRST_WIDTHS else 1
    return rows.line(cells, widths, [n for n in range(len(cells)) if n >= text and n != 1])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=400, help="requests a way (default: 400)")
    parser.add_argument(
        "--clients",
        type=lambda text: sorted({int(word) for word in text.split(",")} | {figures.MEMORY_AT}),
        default=[1, 16, 64, 256],
        help="numbers of clients (default: 1,16,64,256); 64 is always among them",
    )
    parser.add_argument("--load-rounds", type=int, default=3, help="loads a way (default: 3)")
    parser.add_argument("--seconds", type=float, default=3, help="of one load (default: 3)")
    parser.add_argument("--quick", action="store_true", help="60 requests a way, one load of 1 s")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.load_rounds, options.seconds = 60, 1, 1.0
    return options


if __name__ == "__main__":
    sys.exit(main())
