#!/usr/bin/env python3
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the relay module costs for 1, 50 and 200 models, beside kubernetes.core.k8s.

``make bench NAME=reconcile`` or ``.venv/bin/python tests/bench/reconcile.py --help``. It needs what
what the test bed needs. docs/performance.md says what is measured and what the figures do not say.
"""

from __future__ import annotations

import argparse
import sys
from statistics import median
from typing import Any

from bench_parts import rows, testbed
from bench_parts.aims import Aim, finish
from bench_parts.places import BenchError
from bench_parts.progress import say
from reconcile_parts import audit, task
from reconcile_parts.fleet import Fleet
from reconcile_parts.ways import LIST, LOOP, RELAY, Ways

# The aims for a run that changes nothing.
MOST_REQUESTS = 12
AIMS_AT = 50
TIMES_FASTER = {LIST: 2.5, LOOP: 100.0}

TITLES = {RELAY: "relay module", LIST: "k8s, one task with a list", LOOP: "k8s, a loop"}
_HEAD = ("models", "way", "run", "objects", "seconds", "process", "cpu", "reads", "writes")
_WIDTHS = (6, 34, 12, 7, 8, 8, 6, 6, 6)
_NUMBERS = (0, 3, 4, 5, 6, 7, 8)


def main() -> int:
    options = _options()
    found: dict[str, Any] = {"models": {}}
    aims: list[Aim] = []
    error = ""
    try:
        say("bringing up the bed")
        testbed.up(["gpu1"], fresh=not options.keep_bed)
        print(rows.line(_HEAD, _WIDTHS, _NUMBERS), flush=True)
        for count in options.models:
            entry, wanted = _measure(count, options)
            found["models"][str(count)] = entry
            aims += wanted
    except (BenchError, ValueError, TimeoutError) as problem:
        error = str(problem)
    finally:
        if not options.keep_bed:
            testbed.down()
    return finish("reconcile", found, aims, error)


def _measure(count: int, options: argparse.Namespace) -> tuple[dict[str, Any], list[Aim]]:
    """One number of models: from nothing and without changes, way by way."""
    say(f"{count} model(s): from nothing")
    fleet = Fleet(count)
    fleet.prepare(fleet.namespaces)
    fleet.relay([], prune=True)  # of a bed that was kept
    entry: dict[str, Any] = {"from_nothing": {}, "unchanged": {}}
    entry["from_nothing"][RELAY] = _row(count, RELAY, "from nothing", [fleet.relay(fleet.models)])
    definitions = fleet.definitions()
    looped = definitions[: len(definitions) // count * min(count, options.loop_models)]
    kept = Ways(fleet, definitions, looped)
    names = (RELAY, LIST, LOOP)
    for way in (RELAY, LIST):
        kept.unchanged(way)  # and what discovery finds is kept from here on
    rounds: list[dict[str, task.Outcome]] = []
    for number in range(options.rounds):
        say(f"{count} model(s): round {number + 1} of {options.rounds}")
        turn = number % len(names)
        rounds.append({way: kept.unchanged(way) for way in names[turn:] + names[:turn]})
    for way in names:
        some = len(looped) if way == LOOP else len(definitions)
        entry["unchanged"][way] = _row(count, way, "no change", [row[way] for row in rounds], some)
    scale = len(definitions) / len(looped)
    loop = entry["unchanged"][LOOP]
    loop["scaled_seconds"] = round(loop["seconds"] * scale, 2)
    title = f"{TITLES[LOOP]}, scaled to {len(definitions)}"
    cells = (f"{loop['scaled_seconds']:.2f}", "", "", "", "")
    print(rows.line((str(count), title, "no change", "", *cells), _WIDTHS, _NUMBERS), flush=True)
    # That the module finds nothing to do after a control made everything says that both keep the
    # same state.
    for way in (LIST, LOOP):
        fleet.relay([], prune=True)
        some = len(looped) if way == LOOP else len(definitions)
        entry["from_nothing"][way] = _row(count, way, "from nothing", [kept.run(way)], some)
        if way == LIST:
            kept.unchanged(RELAY)
    fleet.relay([], prune=True)
    entry["ratios"] = {
        LIST: round(median(row[LIST].seconds / row[RELAY].seconds for row in rounds), 2),
        LOOP: round(median(row[LOOP].seconds * scale / row[RELAY].seconds for row in rounds), 1),
    }
    return entry, _aims(count, rounds, entry["ratios"], scale > 1)


def _row(
    count: int, way: str, run: str, outcomes: list[task.Outcome], objects: int = 0
) -> dict[str, Any]:
    """The figures of one way; printed too."""
    requests = outcomes[0].requests
    writes = audit.writes(requests)
    entry = {
        "seconds": round(median(one.seconds for one in outcomes), 2),
        "seconds_of_rounds": [round(one.seconds, 2) for one in outcomes],
        "process_seconds": round(median(one.process for one in outcomes), 2),
        "processor_seconds": round(median(one.processor for one in outcomes), 2),
        "requests": requests,
        "objects": objects or len(outcomes[0].changes),
    }
    cells = (
        str(count),
        TITLES[way],
        run,
        str(entry["objects"] or ""),
        f"{entry['seconds']:.2f}",
        f"{entry['process_seconds']:.2f}",
        f"{entry['processor_seconds']:.2f}",
        str(sum(requests.values()) - writes),
        str(writes),
    )
    print(rows.line(cells, _WIDTHS, _NUMBERS), flush=True)
    return entry


def _aims(
    count: int, rounds: list[dict[str, task.Outcome]], ratios: dict[str, float], scaled: bool
) -> list[Aim]:
    seen = [row[RELAY].requests for row in rounds]
    aims = [
        Aim(f"{count} models: requests without changes", max(sum(one.values()) for one in seen),
            MOST_REQUESTS),
        Aim(f"{count} models: writes without changes", max(map(audit.writes, seen)), 0),
    ]  # fmt: skip
    if count == AIMS_AT:
        for way, limit in TIMES_FASTER.items():
            more = " (scaled)" if scaled and way == LOOP else ""
            aims.append(
                Aim(f"{count} models: {TITLES[way]}{more} / module", ratios[way], limit, least=True)
            )
    return aims


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--models",
        type=lambda text: sorted({int(word) for word in text.split(",")}),
        default=[1, 50, 200],
        help="numbers of models (default: 1,50,200)",
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each way (default: 3)")
    parser.add_argument(
        "--loop-models",
        type=int,
        default=5,
        help="models that the loop handles, at most; its time is scaled from them (default: 5)",
    )
    parser.add_argument("--quick", action="store_true", help="one round, a loop over one model")
    parser.add_argument(
        "--keep-bed", action="store_true", help="take the bed as it is, and leave it up"
    )
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.loop_models = 1, 1
    return options


if __name__ == "__main__":
    sys.exit(main())
