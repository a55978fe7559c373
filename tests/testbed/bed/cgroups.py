# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cgroups of a bed: who belongs to it, and how much memory it takes.

Every process of a bed is in a cgroup below /tether-NAME, in each hierarchy
that the machine has. That is what makes a bed's processes known for certain,
also those that a killed command had no time to write down.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from .errors import BedError
from .layout import Bed

_MOUNT = Path("/sys/fs/cgroup")


def hierarchies() -> list[Path]:
    """Mount points of all cgroup hierarchies (version 1: many, version 2: one)."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[0] in ("cgroup", "cgroup2"):
            found.append(Path(before.split()[4]))
    return sorted(found)


def unified() -> bool:
    """Whether there is version 2 only."""
    return hierarchies() == [_MOUNT]


def create(bed: Bed, group: str) -> list[Path]:
    """Make a group of the bed in every hierarchy; return its directories."""
    directories = []
    for hierarchy in hierarchies():
        top = hierarchy / bed.namespace
        directory = top / group
        directory.mkdir(parents=True, exist_ok=True)
        if unified():
            _hand_down_controllers(hierarchy)
            _hand_down_controllers(top)
        for part in (top, directory):
            _fill_cpuset(part)
        directories.append(directory)
    return directories


def members(bed: Bed, group: str = "") -> set[int]:
    """Processes in a group and in the groups below it."""
    pids: set[int] = set()
    for hierarchy in hierarchies():
        # os.walk does not mind that groups come and go meanwhile.
        for directory, _, _ in os.walk(hierarchy / bed.namespace / group):
            try:
                words = Path(directory, "cgroup.procs").read_text().split()
            except OSError:
                continue
            pids.update(map(int, words))
    return pids


def end(bed: Bed, group: str = "") -> int:
    """Kill everything in a group, until nothing is left; return how many it were."""
    ended: set[int] = set()
    deadline = time.monotonic() + 20
    while pids := {pid for pid in members(bed, group) if not _is_zombie(pid)}:
        if time.monotonic() > deadline:
            raise BedError(f"processes that do not die: {sorted(pids)}")
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        ended |= pids
        time.sleep(0.05)
    return len(ended)


def remove(bed: Bed) -> None:
    """Delete the bed's groups, the innermost first."""
    deadline = time.monotonic() + 10
    for hierarchy in hierarchies():
        top = hierarchy / bed.namespace
        while top.exists():
            for directory, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(directory)
            if top.exists() and time.monotonic() > deadline:
                raise BedError(f"{top} cannot be removed")
            # The last process of a group may need a moment to leave it.
            time.sleep(0.01)


def memory(bed: Bed) -> int | None:
    """Bytes that the bed holds for itself; the page cache does not count."""
    if unified():
        statistics, wanted = _MOUNT / bed.namespace / "memory.stat", {"anon", "shmem"}
    else:
        statistics = _MOUNT / "memory" / bed.namespace / "memory.stat"
        wanted = {"total_rss", "total_shmem"}
    try:
        lines = statistics.read_text().splitlines()
    except OSError:
        return None
    pairs = (line.split() for line in lines)
    return sum(int(value) for key, value in pairs if key in wanted)


def _hand_down_controllers(directory: Path) -> None:
    available = (directory / "cgroup.controllers").read_text().split()
    control = directory / "cgroup.subtree_control"
    missing = set(available) - set(control.read_text().split())
    for controller in missing:
        try:
            control.write_text(f"+{controller}")
        except OSError:  # not every controller can be handed down everywhere
            continue


def _fill_cpuset(directory: Path) -> None:
    """A version 1 cpuset starts empty, and takes no process until it is filled."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        own = directory / name
        if own.exists() and not unified() and not own.read_text().strip():
            own.write_text((directory.parent / name).read_text())


def _is_zombie(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"
