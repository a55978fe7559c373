# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Timers of the emulated launchd's one thread."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable


class Timer:
    """Something to do later, unless it is cancelled."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """Timers in the order in which they are due."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()

    @staticmethod
    def now() -> float:
        return time.monotonic()

    def at(self, moment: float, action: Callable[[], None]) -> Timer:
        """Do something at a moment of the monotonic clock."""
        timer = Timer(action)
        heapq.heappush(self._due, (moment, next(self._numbers), timer))
        return timer

    def seconds_to_next(self) -> float | None:
        """How long nothing is due; None when nothing ever is."""
        return max(0.0, self._due[0][0] - self.now()) if self._due else None

    def run_due(self) -> None:
        """Do what is due."""
        while self._due and self._due[0][0] <= self.now():
            timer = heapq.heappop(self._due)[2]
            if not timer.cancelled:
                timer.action()
