# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Proves what the timed runs take for granted: that nothing changes, and that a change is seen."""

from __future__ import annotations

from bench_parts.places import BenchError

from . import hosts
from .measure import Run
from .sessions import Ledger
from .tools import Tool

# Every control manages it, and its loss would be noticed at once.
_PROBE_FILE = "etc/tether/ingress/Caddyfile"


def settle(tool: Tool, ledger: Ledger) -> Run:
    """Run a tool until it changes nothing; at most one run may change something.

    :raises BenchError: when it changes something again and again: then it has no state to keep
    """
    first = tool.run(ledger)
    if not first.account.changed:
        return first
    again = tool.run(ledger)
    if again.account.changed:
        raise BenchError(
            f"{tool.name} still changes something at its second run: {again.account.changed}; "
            "expected no change"
        )
    return again


def unchanged(tool: Tool, run: Run) -> Run:
    """:raises BenchError: when a run that was to change nothing did"""
    if run.account.changed:
        raise BenchError(f"{tool.name} changed {run.account.changed}, expected no change")
    return run


def mends(tool: Tool, ledger: Ledger, host: str) -> None:
    """Alter a file on a host and see the tool notice and mend it.

    :raises BenchError: when it does not
    """
    path = hosts.disk(host) / _PROBE_FILE
    before = path.read_bytes()
    path.write_bytes(before + b"# altered\n")
    run = tool.run(ledger)
    if not run.account.changed.get(host) or path.read_bytes() != before:
        raise BenchError(
            f"{tool.name} did not mend /{_PROBE_FILE} on {host} (changed: {run.account.changed}); "
            "expected the file as it was"
        )
