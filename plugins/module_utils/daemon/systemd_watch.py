# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Follows a process under systemd until it is healthy or its end is seen."""

from __future__ import annotations

import signal
from typing import Any, Dict, Optional

from ansible_collections.tether.fleet.plugins.module_utils.daemon import unit_file, watch


class Watch(watch.Watch):
    """Judges by what ``systemctl show`` says of a unit.

    :ivar invocation: of the process that is waited for, once it was seen
    """

    def __init__(self, entry: Dict[str, Any], before: Optional[str], action: Optional[str]) -> None:
        # What ran before a (re)start is not what is waited for.
        self._before = before if action in ("start", "restart") else None
        super().__init__(entry, unit_file.unit_name(entry["name"]), self._before is not None)
        self.invocation = ""

    def look(self, item: Dict[str, str], now: float) -> None:
        """Judge by the unit's properties at the time ``now`` (monotonic seconds)."""
        found = item.get("InvocationID", "")
        state, sub = item.get("ActiveState", "inactive"), item.get("SubState", "")
        if not self.invocation:
            if self._fresh and found in ("", self._before):
                if item.get("Job", "0") not in ("", "0"):
                    limit = self.entry["stop_timeout"] + 100
                    if now - self._began > limit:
                        self.verdict = "it was not started within %d s" % limit
                    return
                if now - self._began < 0.5:
                    return
                self.verdict = "it could not be started (%s)" % ending(item)
                return
            self.invocation = found
            self.see(now)
        if found != self.invocation:
            self.verdict = "it ended right after its start, and was started again by systemd"
        elif state in ("failed", "inactive", "deactivating") or sub.startswith("auto-restart"):
            self.verdict = ending(item) + self.taken()
        elif self.entry["type"] == "oneshot":
            self.look_oneshot(state == "active", now)
        elif state in ("active", "reloading"):
            self.look_health(now)


def glance(entry: Dict[str, Any], item: Dict[str, str]) -> str:
    """One look at a process that should run, without waiting: "" when it is well."""
    state = item.get("ActiveState", "inactive")
    if state != "active":
        return "it is %s" % state
    return Watch(entry, None, None).glance()


# systemd's own exit statuses (systemd.exec(5)), as what a person has to look at.
_STATUSES = {
    200: "its working directory cannot be entered",
    203: "its program cannot be executed (missing interpreter or library loader, wrong platform)",
    216: "its group does not exist",
    217: "its user does not exist",
    226: "its file system view cannot be set up (a path that the unit names is missing)",
}


def ending(item: Dict[str, str]) -> str:
    """How a process ended, in words."""
    code, status = item.get("ExecMainCode", "0"), item.get("ExecMainStatus", "0")
    number = int(status) if status.isdigit() else 0
    result = item.get("Result", "")
    if result in ("oom-kill", "start-limit-hit", "timeout", "watchdog"):
        return "it ended: %s" % result
    if code in ("2", "3"):
        try:
            named = signal.Signals(number).name
        except ValueError:
            named = "signal %d" % number
        return "it was ended by %s" % named
    if code == "1" and (number or item.get("SubState") != "start-pre"):
        hint = _STATUSES.get(number)
        return "it ended with status %d%s" % (number, ": " + hint if hint else "")
    return "it did not start (%s)" % (result or "no result")
