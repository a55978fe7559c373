# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One of a model's two hosts breaks under load: its engine, the host itself, its link (N3, N5).

Lost may be only what was on its way to that host: requests that began before the break or so
shortly after it that the relays could not know, each with an error within ten seconds. Whatever
begins later is answered, and a host that returns brings no losses with it.

    python tests/drills/host_crash.py

It runs on the test bed `test` with the inventory of molecule/default (tests/run brings the bed up).
The hosts are systemd-nspawn machines: to kill one is to end its every process at once, as a power
cut does; its link is a pair of virtual interfaces, one of which is set down.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from drill_parts import fleet, options, report
from drill_parts.load import Load

bed = fleet.bed
HOST = "gpu1"
# Seconds after the break in which relays may still send to the host, and until a lost request ends.
NOTICED, TOLD = 3.0, 10.0
# Seconds that the break itself may take: a machine that dies for longer shows nothing.
DYING = 5.0


def kill_engine() -> None:
    bed.ssh(HOST, f"systemctl kill --signal=KILL {fleet.unit(fleet.NAMESPACE, fleet.MODEL)}")


def kill_host() -> None:
    keeper = fleet.status()["hosts"][HOST]["pid"]
    # The machine's first process, with which the kernel ends all others.
    (first,) = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    os.kill(int(first), signal.SIGKILL)
    # It goes when the last of them has gone, which takes seconds on a busy machine.
    fleet.wait_for_end(int(first), HOST, 30)


def pull_link() -> None:
    bed.bed("link", HOST, "down")


def mend_engine() -> None:
    """systemd starts it again."""


def mend_host() -> None:
    bed.bed("up", timeout=300)


def mend_link() -> None:
    bed.bed("link", HOST, "up")


BREAKS: tuple[tuple[str, Callable[[], None], Callable[[], None]], ...] = (
    ("engine", kill_engine, mend_engine),
    ("link", pull_link, mend_link),
    ("host", kill_host, mend_host),
)


def judge(
    name: str, broken: float, gone: float, mended: float, load: Load
) -> tuple[list[str], int]:
    """What was lost without need, and how many requests were lost with it.

    :param broken: when the break began, in seconds since the load's start
    :param gone: when nothing was left of what it broke
    :param mended: when the return began
    """
    problems, allowed = [], 0
    for when, kind, lost, took in load.outcome.bad:
        began = when - took
        told_in_time = broken <= when <= max(began, broken) + TOLD
        if began <= gone + NOTICED and told_in_time:
            allowed += 1
        else:
            place = "after the return" if began > mended else "after the break"
            problems.append(
                f"{name}: {kind}, begun {began - gone:.1f} s {place if began > gone else ''}"
                f" and lost after {took:.1f} s: {lost}"
            )
    return problems, allowed


def main() -> int:
    told = options.read(__doc__)
    fleet.build()
    fleet.wait_for_relays(fleet.replicas())
    problems: list[str] = []
    figures = {}
    total = lost = 0
    for name, break_it, mend_it in BREAKS[:1] if told.short else BREAKS:
        with Load(fleet.service(), fleet.MODEL, told.short) as load:
            load.wait_for(told.requests // 4)
            broken = load.seconds()
            break_it()
            gone = load.seconds()
            load.wait_for(told.requests // 4)
            time.sleep(max(0.0, 15 - (load.seconds() - broken)))
            mended = load.seconds()
            mend_it()
            load.wait_for(told.requests // 2)
            time.sleep(10)
        found, allowed = judge(name, broken, gone, mended, load)
        if gone - broken > DYING:
            found.append(f"{name}: the break took {gone - broken:.1f} s, too long to judge by")
        problems += found
        total += load.outcome.total
        lost += len(load.outcome.bad)
        longest = max((item[3] for item in load.outcome.bad), default=0.0)
        figures[name] = {
            "requests": load.outcome.total,
            "lost": allowed,
            "longest": longest,
            "took": round(gone - broken, 1),
        }
        print(f"{name}: {figures[name]}, {len(found)} problems", flush=True)
    return report.end("host-crash", problems, requests=total, lost=lost, breaks=figures)


if __name__ == "__main__":
    sys.exit(main())
