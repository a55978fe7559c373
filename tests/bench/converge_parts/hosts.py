# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The benchmark's bed: up to ten hosts beside a cluster, and ways into them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bench_parts import testbed
from bench_parts.command import run
from bench_parts.places import BED, BED_STATE, ROOT

# Where an emulated Mac keeps the Linux programs that no Mac has comes first (tests/testbed/mac).
_PROGRAMS = "/usr/lib/emulated-mac/linux:/usr/sbin:/usr/bin:/sbin:/bin"


def names(count: int) -> list[str]:
    """The first ``count`` hosts."""
    return [f"gpu{number}" for number in range(1, count + 1)]


def is_mac(name: str) -> bool:
    """Whether a host of the bed is an emulated Mac."""
    return name.startswith("mac")


def mac_lock() -> Path:
    """The lock of a fleet with emulated Macs, which run Linux's programs."""
    path = BED_STATE / "fleet.lock.yml"
    run([sys.executable, ROOT / "tests" / "models" / "mac_lock.py", path])
    return path


def up(wanted: Sequence[str], *, fresh: bool) -> None:
    """Bring the bed up with these hosts.

    :param fresh: from nothing: what an earlier run left would be measured too
    """
    testbed.up(wanted, fresh=fresh)
    run(["sh", ROOT / "tests" / "models" / "prepare.sh", BED, sys.executable])


def addresses() -> dict[str, str]:
    """Host name to address."""
    return {name: host["address"] for name, host in testbed.status()["hosts"].items()}


def disk(host: str) -> Path:
    """A host's root directory, seen from the machine."""
    return BED_STATE / "hosts" / host / "root"


def inside(host: str) -> list[str]:
    """The beginning of a command line that runs in a host without a login.

    What the benchmark itself looks at must not appear among the logins that it counts.
    """
    keeper = testbed.status()["hosts"][host]["pid"]
    children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    enter = ["nsenter", "--target", children[0], "--mount", "--uts", "--ipc", "--pid", "--net"]
    return [*enter, "env", f"PATH={_PROGRAMS}"]
