# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Follows processes until each is healthy or its end is seen, whatever their supervisor.

What a supervisor says of a process is read beside this file, one file for each.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ansible_collections.tether.fleet.plugins.module_utils.daemon import health, processes
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

# Without a health probe a process that is still there after this long counts as started.
_SETTLE = 1.0
# What does its work once may take this long.
_ONESHOT = 600
_POLL = 0.1


class Watch:
    """Follows one process until there is a verdict: "" for healthy, else what is wrong.

    :ivar unit: what its supervisor calls it
    :ivar since: when the watch began, in seconds since the epoch
    """

    def __init__(self, entry: Dict[str, Any], unit: str, fresh: bool) -> None:
        self.entry = entry
        self.unit = unit
        self.verdict: Optional[str] = None
        self.since = time.time()
        # Whether it was just started, so that it has still to show that it stays.
        self._fresh = fresh
        self._began = time.monotonic()
        self._seen: Optional[float] = None
        self._probe: Optional[_Prober] = None

    def look(self, item: Any, now: float) -> None:
        """Judge by what the supervisor says, at the time ``now`` (monotonic seconds)."""
        raise NotImplementedError

    def see(self, now: float) -> None:
        """Note that the process that is waited for is there."""
        self._seen = now

    def stop(self) -> None:
        if self._probe is not None:
            self._probe.stop()

    def look_oneshot(self, done: bool, now: float) -> None:
        if done:
            self.verdict = ""
        elif now - (self._seen or now) > _ONESHOT:
            self.verdict = "it did not end within %d s" % _ONESHOT

    def look_health(self, now: float) -> None:
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
                self.taken(),
            )

    def glance(self) -> str:
        """One look at a process that runs, without waiting: "" when it is well."""
        if self.entry["type"] == "oneshot" or not self.entry.get("health"):
            return ""
        return health.probe(self.entry["health"], timeout=2) or self.stranger()

    def owns(self, item: Mapping[str, Any]) -> bool:
        """Whether a listener is this daemon's."""
        return bool(item["unit"] == self.unit)

    def stranger(self) -> str:
        """What is wrong when the healthy answer came from another process, else ""."""
        try:
            found = [item for item in self.listeners() if item["pid"]]
        except Refusal as refusal:
            # It may be anybody's answer.
            return "it cannot be told who answers in its place: %s" % refusal
        if found and not any(self.owns(item) for item in found):
            return "another process answers in its place: %s" % processes.in_words(found)
        return ""

    def taken(self) -> str:
        """Who else listens where it should, as the end of a sentence, or ""."""
        try:
            found = [item for item in self.listeners() if not self.owns(item)]
        except Refusal:
            return ""
        if not found:
            return ""
        probe = self.entry["health"]
        where = probe["unix"] if probe.get("unix") else "port %d" % probe["port"]
        return "; %s is taken by %s" % (where, processes.in_words(found))

    def listeners(self) -> List[Dict[str, Any]]:
        """Who is where its probe asks.

        :raises Refusal: when that cannot be told
        """
        probe = self.entry.get("health")
        if not probe:
            return []
        if probe.get("unix"):
            return processes.unix_listeners(probe["unix"])
        return processes.listeners(probe["port"])


def follow(watches: Sequence[Watch], look: Callable[[List[Any]], None]) -> None:
    """Look at all of them again and again until each has a verdict.

    :param look: has each of the watches that it is given look once
    """
    waiting = list(watches)
    while waiting:
        look(waiting)
        waiting = [one for one in waiting if one.verdict is None]
        if waiting:
            time.sleep(_POLL)
    for one in watches:
        one.stop()


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
