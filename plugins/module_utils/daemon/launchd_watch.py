# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Follows a process under launchd until it is healthy or its end is seen.

launchd has no limit of starts: it tries for ever, at longer and longer intervals (read in the
binary of macOS 26.5.1). So a loop of crashes is told here, at the first look that shows an end:
``print`` says how the last process ended, and how often the label was started since it was loaded.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, List, Mapping, Optional

from ansible_collections.tether.fleet.plugins.module_utils.daemon import launchd_job, watch
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

# Between bootstrap and a process. launchd starts what has RunAtLoad at once.
_START = 15.0


class Watch(watch.Watch):
    """Judges by what ``launchctl print`` says of a label.

    :ivar target: the label with its domain
    :ivar pid: of the process that is waited for, once it was seen
    """

    def __init__(
        self, entry: Dict[str, Any], target: str, fresh: bool, young: bool = False
    ) -> None:
        """:param young: launchd has just started it again by itself: it has yet to stay"""
        super().__init__(entry, entry["name"], fresh or young)
        self.target = target
        self.pid = 0
        # A label that was just loaded has ended nothing before: what it has, it did since.
        self._just_loaded = fresh

    def look(self, item: Optional[launchd_job.Job], now: float) -> None:
        """Judge by the label at the time ``now`` (monotonic seconds)."""
        if item is None:
            self.verdict = (
                "launchd does not know its label any more: somebody took it out, or switched it off"
                " in System Settings, General, Login Items"
            )
            return
        if item.pid and not self.pid:
            self.pid = item.pid
            self.see(now)
        if self.pid == 0 and not item.ended:
            if now - self._began > _START:
                self.verdict = (
                    "launchd has loaded it and starts nothing (state = %s); try: sudo launchctl"
                    " kickstart %s" % (item.state or "unknown", self.target)
                )
        elif self.entry["type"] == "oneshot":
            if item.pid or item.exit_status == 0:
                self.look_oneshot(not item.pid, now)
            else:
                self.verdict = self._ending(item)
        elif item.pid != self.pid or not item.pid or (self._just_loaded and item.ended):
            self.verdict = self._ending(item)
        else:
            self.look_health(now)

    def owns(self, item: Mapping[str, Any]) -> bool:
        return super().owns(item) or self.pid in item.get("lineage", ())

    def listeners(self) -> List[Dict[str, Any]]:
        """Who is where its probe asks; for a port that is always somebody, or cannot be told.

        A unix socket is in a directory that only its own account may write.
        """
        port = (self.entry.get("health") or {}).get("port")
        if not port:
            with contextlib.suppress(Refusal):
                return super().listeners()
            return []
        found = super().listeners()
        if not found:
            # Root sees all of them, so it is none that could have answered.
            raise Refusal(
                "port %d" % port,
                "nobody whom lsof shows to listen on it",
                "this daemon's process",
                "Look who answers there (sudo lsof -nP -iTCP:%d), then run again" % port,
            )
        return found

    def _ending(self, item: launchd_job.Job) -> str:
        text = item.ended
        if not text:
            text = "it ended"
            text += ", and another run has loaded it anew" if item.pid else " (%s)" % item.state
        if item.runs > 1:
            text += "; launchd has started it %d times" % item.runs
        return text + self.taken()


def glance(entry: Dict[str, Any], target: str, job: Optional[launchd_job.Job]) -> str:
    """One look at a process that should run, without waiting: "" when it is well."""
    if job is None:
        return "it is not loaded"
    one = Watch(entry, target, fresh=False)
    one.pid = job.pid
    if not job.pid and not (entry["type"] == "oneshot" and job.exit_status == 0):
        return job.ended or "it does not run (state = %s)" % job.state
    return one.glance()
