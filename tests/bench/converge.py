#!/usr/bin/env python3
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a converge without changes costs, beside three other ways of keeping a host's state.

``make bench NAME=converge``, or ``.venv/bin/python tests/bench/converge.py --help``. Needs what the
test bed needs. docs/performance.md says what is measured and what the figures do not say.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from bench_parts import testbed
from bench_parts.aims import Aim, finish
from bench_parts.places import BenchError
from bench_parts.progress import say
from converge_parts import figures, hosts, pyinfra_source, role_source, table
from converge_parts.fleet import Fleet, Mixed

_CONTROLS = ("role", "ordinary", "pyinfra")
# The number of hosts at which one change is timed.
_CHANGE_AT = 4


def main() -> int:
    options = _options()
    found: dict[str, Any] = {"hosts": {}}
    aims: list[Aim] = []
    error = ""
    try:
        say("bringing up the bed")
        names = hosts.names(max([1, *options.hosts]))
        hosts.up(names + ([Mixed.MAC] if options.mac else []), fresh=not options.keep_bed)
        if options.hosts:
            aims += _beside_controls(names, options, found["hosts"])
        if options.mac:
            say("a Mac beside a Linux host: converging")
            found["mixed"], met = figures.mixed(Mixed().run(), Mixed.LINUX, Mixed.MAC)
            aims += met
            print(table.mixed(found["mixed"]), flush=True)
    except (BenchError, ValueError, TimeoutError) as problem:
        error = str(problem)
    finally:
        if not options.keep_bed:
            testbed.down()
    return finish("converge", found, aims, error)


def _beside_controls(
    names: list[str], options: argparse.Namespace, found: dict[str, Any]
) -> list[Aim]:
    """Measure each number of hosts; the figures go into `found`."""
    aims: list[Aim] = []
    role_source.collection()
    pyinfra_source.ensure()
    role_source.python_apt(names)
    with role_source.download_server() as role_settings:
        print(table.head(), flush=True)
        for count in options.hosts:
            found[str(count)], met = _measure(Fleet(count, role_settings), options)
            aims += met
    return aims


def _measure(fleet: Fleet, options: argparse.Namespace) -> tuple[dict[str, Any], list[Aim]]:
    """Time one number of hosts and print its rows."""
    say(f"{fleet.count} host(s): converging and proving")
    fleet.settle()
    rounds, changes = [], []
    for number in range(options.rounds):
        say(f"{fleet.count} host(s): round {number + 1} of {options.rounds}")
        rounds.append(fleet.round(number))
        if fleet.count == _CHANGE_AT:
            changes += fleet.one_change()
    entry: dict[str, Any] = {}
    for way in fleet.tools:
        entry[way] = figures.summary([row[way] for row in rounds])
        print(table.row(fleet.count, way, entry[way]), flush=True)
    if changes:
        entry["one_change"] = figures.summary(changes)
        print(table.row(fleet.count, "one_change", entry["one_change"]), flush=True)
    entry["ratios"] = {
        f"{way}/{control}": figures.ratio(rounds, way, control)
        for way in ("host", "site")
        for control in _CONTROLS
    }
    print(table.ratios(fleet.count, entry["ratios"]), flush=True)
    if options.profile:
        print(table.profile(fleet.count, figures.profile([row["site"] for row in rounds])))
    return entry, figures.aims(fleet.count, rounds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--hosts",
        type=lambda text: sorted({int(word) for word in text.split(",") if word}),
        default=[1, 4, 10],
        help="numbers of hosts (default: 1,4,10); empty for the Mac alone",
    )
    parser.add_argument(
        "--mac",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="count executions on an emulated Mac too (default: yes)",
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each way (default: 3)")
    parser.add_argument("--profile", action="store_true", help="say which tasks take the time")
    parser.add_argument(
        "--keep-bed", action="store_true", help="take the bed as it is, and leave it up"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
