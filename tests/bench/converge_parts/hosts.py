# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The benchmark's bed: up to ten hosts beside a cluster, and ways into them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from .command import run
from .places import BED, BED_STATE, ROOT

_TESTBED = (sys.executable, str(ROOT / "tests" / "testbed"), "--bed", BED)


def names(count: int) -> list[str]:
    """The first ``count`` hosts."""
    return [f"gpu{number}" for number in range(1, count + 1)]


def up(count: int, *, fresh: bool) -> None:
    """Bring the bed up with ``count`` hosts.

    :param fresh: from nothing: what an earlier run left would be measured too
    """
    if fresh:
        run([*_TESTBED, "down"])
    run([*_TESTBED, "up", "--hosts", ",".join(names(count))], timeout=3000)
    run(["sh", ROOT / "tests" / "models" / "prepare.sh", BED, sys.executable])


def down() -> None:
    run([*_TESTBED, "down"])


def status() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(run([*_TESTBED, "status", "--json"]))
    return content


def addresses() -> dict[str, str]:
    """Host name to address."""
    return {name: host["address"] for name, host in status()["hosts"].items()}


def disk(host: str) -> Path:
    """A host's root directory, seen from the machine."""
    return BED_STATE / "hosts" / host / "root"


def inside(host: str) -> list[str]:
    """The beginning of a command line that runs in a host without a login.

    What the benchmark itself looks at must not appear among the logins that it counts.
    """
    keeper = status()["hosts"][host]["pid"]
    children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    return ["nsenter", "--target", children[0], "--mount", "--uts", "--ipc", "--pid", "--net"]
