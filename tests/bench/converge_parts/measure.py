# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One timed run of one way, with what it executed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench_parts.command import run
from bench_parts.progress import say

from .sessions import Ledger


@dataclass(frozen=True)
class Account:
    """What a tool itself says of its run.

    :ivar tasks: tasks or operations that it went through
    :ivar changed: host to how many of them changed something
    :ivar modules: host to modules that were executed there; empty when the tool knows no modules
    :ivar commands: host to commands that the tool says it executed there; the same
    :ivar on_controller: modules that were executed on the controller
    :ivar profile: (task, seconds)
    """

    tasks: int
    changed: dict[str, int]
    modules: dict[str, int] = field(default_factory=dict)
    commands: dict[str, int] = field(default_factory=dict)
    on_controller: int = 0
    profile: list[tuple[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Run:
    """What a run cost.

    :ivar wall: seconds from the start of the tool's process to its end
    :ivar executions: host to commands that its SSH server started
    :ivar transfers: host to SFTP sessions that its SSH server started
    """

    wall: float
    executions: dict[str, int]
    transfers: dict[str, int]
    account: Account


def timed(argv: Sequence[str], env: Mapping[str, str], timeout: float = 1800) -> tuple[float, str]:
    """Run a tool; return the seconds that it took and its standard output."""
    start = time.monotonic()
    try:
        output = run(argv, env=env, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{' '.join(argv)} did not end in {timeout:.0f} s") from error
    wall = time.monotonic() - start
    say(f"{wall:6.1f} s  {Path(argv[0]).name} {' '.join(argv[1:2])}")
    return wall, output


def counted(ledger: Ledger, wall: float, account: Account) -> Run:
    """Put what the hosts' SSH servers counted beside what the tool says of itself.

    :raises ValueError: when they contradict each other: then no figure can be trusted
    """
    sessions = ledger.read()
    executions = {host: found.commands for host, found in sessions.items()}
    for host, said in account.commands.items():
        if executions[host] != said:
            raise ValueError(
                f"{host}: its SSH server started {executions[host]} commands, the tool says that "
                f"it sent {said}; expected the same number. Does something else log in to the bed?"
            )
    transfers = {host: found.transfers for host, found in sessions.items()}
    return Run(wall, executions, transfers, account)
