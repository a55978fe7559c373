# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Follows a process under systemd until it is healthy or its end is seen."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any, Dict, List, Optional

from ansible_collections.tether.fleet.plugins.module_utils.daemon import health, unit_file

# Without a health probe a process that is still there after this long counts as started.
_SETTLE = 1.0


class Watch:
    """Follows one process until there is a verdict: "" for healthy, else what is wrong."""

    def __init__(self, entry: Dict[str, Any], before: Optional[str], action: Optional[str]) -> None:
        self.entry = entry
        self.unit = unit_file.unit_name(entry["name"])
        self.verdict: Optional[str] = None
        self.invocation = ""
        self.since = time.time()
        # What ran before a (re)start is not what is waited for.
        self._before = before if action in ("start", "restart") else None
        self._fresh = self._before is not None
        self._began = time.monotonic()
        self._seen: Optional[float] = None
        self._probe: Optional[_Prober] = None

    def stop(self) -> None:
        if self._probe is not None:
            self._probe.stop()

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
            self.invocation, self._seen = found, now
        if found != self.invocation:
            self.verdict = "it ended right after its start, and was started again by systemd"
        elif state in ("failed", "inactive", "deactivating") or sub.startswith("auto-restart"):
            self.verdict = ending(item) + self._taken()
        elif self.entry["type"] == "oneshot":
            self._look_oneshot(state, now)
        elif state in ("active", "reloading"):
            self._look_health(now)

    def _look_oneshot(self, state: str, now: float) -> None:
        if state == "active":
            self.verdict = ""
        elif now - (self._seen or now) > 600:
            self.verdict = "it did not end within 600 s"

    def _look_health(self, now: float) -> None:
        probe = self.entry.get("health")
        waited = now - (self._seen or now)
        if not probe:
            if not self._fresh or waited >= _SETTLE:
                self.verdict = ""
            return
        if self._probe is None:
            self._probe = _Prober(probe)
        answer = self._probe.answer
        if answer == "":
            self.verdict = self.stranger()
        elif waited > probe["timeout"]:
            self.verdict = "it is not healthy after %d s: %s%s" % (
                probe["timeout"],
                answer or "no answer",
                self._taken(),
            )

    def _listeners(self) -> List[Dict[str, Any]]:
        probe = self.entry.get("health")
        if not probe:
            return []
        if probe.get("unix"):
            return health.unix_listeners(probe["unix"])
        return health.listeners(probe["port"])

    def stranger(self) -> str:
        """What is wrong when the healthy answer came from another process, else ""."""
        found = [item for item in self._listeners() if item["pid"]]
        if found and not any(item["unit"] == self.unit for item in found):
            return "another process answers in its place: %s" % health.in_words(found)
        return ""

    def _taken(self) -> str:
        found = [item for item in self._listeners() if item["unit"] != self.unit]
        if not found:
            return ""
        probe = self.entry["health"]
        where = probe["unix"] if probe.get("unix") else "port %d" % probe["port"]
        return "; %s is taken by %s" % (where, health.in_words(found))


def glance(entry: Dict[str, Any], item: Dict[str, str]) -> str:
    """One look at a process that should run, without waiting: "" when it is well."""
    state = item.get("ActiveState", "inactive")
    if state != "active":
        return "it is %s" % state
    if entry["type"] == "oneshot" or not entry.get("health"):
        return ""
    return health.probe(entry["health"], timeout=2) or Watch(entry, None, None).stranger()


class _Prober(threading.Thread):
    """Asks again and again beside the watch, so that a slow answer does not hide a death."""

    def __init__(self, probe: Dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.answer: Optional[str] = None
        self._health = probe
        self._end = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._end.is_set():
            self.answer = health.probe(self._health, timeout=5)
            if self.answer == "":
                return
            self._end.wait(0.2)

    def stop(self) -> None:
        self._end.set()


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
