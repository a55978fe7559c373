# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Talks to systemd and its journal."""

from __future__ import annotations

import re
import subprocess
from typing import Dict, List

from ansible_collections.tether.fleet.plugins.module_utils.daemon import commands
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

_PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "MainPID",
    "InvocationID",
    "UnitFileState",
    "FragmentPath",
    "DropInPaths",
    "NeedDaemonReload",
    "Result",
    "ExecMainCode",
    "ExecMainStatus",
    "ExecMainStartTimestampMonotonic",
    "Job",
)


def show(units: List[str]) -> Dict[str, Dict[str, str]]:
    """``systemctl show`` of several units: ``{unit: {property: text}}``."""
    if not units:
        return {}
    done = call(["show", "--property=" + ",".join(_PROPERTIES), "--", *units])
    if done.returncode != 0:
        raise Refusal(
            "systemd",
            "systemctl show failed: %s" % commands.said(done),
            "an answer",
            "Look at the host's system bus (systemctl status)",
        )
    result = {}
    for block in done.stdout.split("\n\n"):
        item = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in item:
            result[item["Id"]] = item
    return result


def last_lines(unit: str, invocation: str, since: float = 0.0, count: int = 20) -> List[str]:
    """The last lines that a process (and what it started) wrote, oldest first.

    :param since: when its start was asked for, in seconds since the epoch
    """
    _run(["journalctl", "--sync"], timeout=5)
    matches = []
    if re.fullmatch(r"[0-9a-f]{32}", invocation):
        matches.append(["_SYSTEMD_INVOCATION_ID=" + invocation])
    # What ended before the journal could look at it bears no invocation; the time will do.
    matches.append(["--unit=" + unit, "--since=@%d" % since])
    for match in matches:
        argv = ["journalctl", "-q", "--no-pager", "-o", "cat", "-n", str(count)]
        done = _run([*argv, *match], timeout=10)
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        if lines:
            return lines
    return []


def call(argv: List[str], timeout: float = 600) -> subprocess.CompletedProcess[str]:
    return _run(["systemctl", "--no-pager", *argv], timeout)


def must(argv: List[str]) -> None:
    done = call(argv)
    if done.returncode != 0:
        raise Refusal(
            "systemctl %s" % " ".join(argv),
            "status %d: %s" % (done.returncode, commands.said(done)),
            "status 0",
            "Do what the message says, then run again",
        )


def _run(argv: List[str], timeout: float) -> subprocess.CompletedProcess[str]:
    return commands.run(argv, timeout, SYSTEMD_COLORS="0", SYSTEMD_PAGER="")
