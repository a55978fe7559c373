# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What launchctl prints of a job, read: pure functions from text.

The layout is Apple's to change: launchctl(1) says that it is no interface. What stands here
follows output that people published of macOS 26.5.1, 26.6 and 27.0 (tests/unit has the like):

* the job's own keys are indented by one tab; blocks in braces hold keys of the same names
  (``state = active``) at two tabs and more, and end with a brace at one tab;
* ``arguments`` has a word a line, as it is; ``environment`` has ``KEY => value``;
* of a process that ended, one line tells how: ``last exit code = 1``, with a name where sysexits.h
  has one (``78: EX_CONFIG``), or ``last terminating signal = Killed: 9``, or ``last exit reason =
  OS_REASON_CODESIGNING``. Before that it is ``last exit code = (never exited)``.

What is not there is None, and an argument with a line break (none of ours) is read as two.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from typing import Dict, List, Optional

_OVERRIDE = re.compile(r'\s*"(.+)" => (disabled|enabled|true|false)\s*')
EX_CONFIG = 78

# What launchd gives as its own reason, as what a person has to look at. The names are of xnu's
# reason.h; published output shows the first two.
_REASONS = {
    "OS_REASON_CODESIGNING": "its code signature was not accepted (codesign -v -v, its program)",
    "OS_REASON_DYLD": "a library that it needs was not found",
    "OS_REASON_EXEC": "its program cannot be executed (wrong processor, damaged file)",
    "OS_REASON_TCC": "it asked for something that privacy settings forbid",
    "OS_REASON_ENDPOINTSECURITY": "a security program on this Mac forbids it",
}


@dataclass(frozen=True)
class Job:
    """A label as launchd has it.

    :ivar keys: the job's own keys
    :ivar blocks: its blocks, as lines without their indentation
    """

    keys: Dict[str, str] = field(default_factory=dict)
    blocks: Dict[str, List[str]] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The plist that it was loaded from."""
        return self.keys.get("path", "")

    @property
    def state(self) -> str:
        return self.keys.get("state", "")

    @property
    def pid(self) -> int:
        """Of its process; 0 when there is none."""
        return self._number("pid")

    @property
    def runs(self) -> int:
        """How often it was started since it was loaded."""
        return self._number("runs")

    @property
    def exit_timeout(self) -> int:
        """Seconds between SIGTERM and SIGKILL; 0 for no end (launchd.plist(5))."""
        # Measured on macOS 26.5.1, 26.6 and 27.0: 5 where the plist does not say.
        return self._number("exit timeout", 5)

    @property
    def arguments(self) -> List[str]:
        return self.blocks.get("arguments", [])

    @property
    def environment(self) -> Dict[str, str]:
        lines = self.blocks.get("environment", [])
        return {line.partition(" => ")[0]: line.partition(" => ")[2] for line in lines}

    @property
    def ended(self) -> str:
        """How its last process ended, in words; "" when none has ended, or nothing tells."""
        reason = self.keys.get("last exit reason")
        if reason:
            hint = _REASONS.get(reason)
            if "JETSAM" in reason:
                hint = "macOS ended it for memory"
            return "it was ended for %s%s" % (reason, ": " + hint if hint else "")
        text = self.keys.get("last terminating signal")
        if text:
            return "it was ended by %s" % _signal_name(text)
        status = self.exit_status
        if status is None:
            return ""
        if status == EX_CONFIG:
            # xpcproxy exits with it when it cannot prepare or execute the program (read in the
            # binary of macOS 26.5.1). A program may also choose that status.
            return (
                "it ended with status 78 (EX_CONFIG), which is launchd's own where it could not"
                " start the program: look at the program, its account, folder and log file"
            )
        return "it ended with status %d" % status

    @property
    def exit_status(self) -> Optional[int]:
        """Of its last process; None when none has ended, or by a signal."""
        if "last terminating signal" in self.keys or "last exit reason" in self.keys:
            return None
        found = re.match(r"-?\d+", self.keys.get("last exit code", ""))
        return int(found.group()) if found else None

    def _number(self, key: str, default: int = 0) -> int:
        text = self.keys.get(key, "")
        return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else default


def parse(text: str) -> Job:
    """A job in the output of ``launchctl print DOMAIN/LABEL``; never fails."""
    job = Job()
    block: Optional[List[str]] = None
    # Not splitlines, to which more than a line feed is the end of a line.
    for line in text.split("\n"):
        if block is not None:
            if line == "\t}":
                block = None
            else:
                block.append(line[2:] if line.startswith("\t\t") else line.strip("\t"))
        elif line.startswith("\t") and not line.startswith("\t\t"):
            key, mark, value = line[1:].partition(" = ")
            if value == "{":
                block = job.blocks.setdefault(key, [])
            elif mark:
                job.keys.setdefault(key, value)
    return job


def overrides(text: str) -> Dict[str, bool]:
    """Label -> whether it is disabled, in the output of ``launchctl print-disabled DOMAIN``.

    Measured on macOS 26: ``"LABEL" => disabled`` or ``enabled``; older ones say ``true`` (which is
    disabled) and ``false``. Other blocks may follow the one that is meant.
    """
    found: Dict[str, bool] = {}
    inside = False
    for line in text.split("\n"):
        if line.strip() == "disabled services = {":
            inside = True
        elif line.strip() == "}":
            inside = False
        elif inside:
            match = _OVERRIDE.fullmatch(line)
            if match:
                found[match.group(1)] = match.group(2) in ("disabled", "true")
    return found


def _signal_name(text: str) -> str:
    """``Killed: 9`` as SIGKILL."""
    number = text.rpartition(":")[2].strip()
    try:
        return signal.Signals(int(number)).name
    except ValueError:
        return "the signal %s" % text
