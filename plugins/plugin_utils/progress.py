# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Says now and then who is still at work, while nothing else is said.

The watch runs in a thread of the main process, and worker processes are forked from that process
at any time. So the thread writes through Ansible's Display alone: workers are forked under its lock
(ansible-core 2.17.0 and 2.19.14, executor/process/worker.py), hence never while a line is being
written. Its own lock is touched by nobody in a worker.
"""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, List, Optional, Tuple

# Hosts named in a line.
_NAMED = 5


class Board:
    """Who works on what since when. ``clock`` gives seconds."""

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval, self._clock = interval, clock
        self._lock = threading.Lock()
        # (host, task's id) -> (task's name, when it began)
        self._working: Dict[Tuple[str, str], Tuple[str, float]] = {}
        self._said = clock()

    def begin(self, host: str, task_id: str, task: str) -> None:
        with self._lock:
            self._working[host, task_id] = (task, self._clock())

    def end(self, host: str, task_id: str) -> None:
        """A host is done with a task. That puts the next line off: Ansible has just said it."""
        with self._lock:
            if self._working.pop((host, task_id), None):
                self._said = self._clock()

    def lines(self) -> List[str]:
        """One line a task that has been going on for long, if it is time for one."""
        now = self._clock()
        with self._lock:
            if now - self._said < self.interval:
                return []
            tasks: Dict[str, List[Tuple[float, str]]] = {}
            for (host, _task_id), (task, begun) in self._working.items():
                if now - begun >= self.interval:
                    tasks.setdefault(task, []).append((begun, host))
            if tasks:
                self._said = now
        return [describe(task, hosts, now) for task, hosts in tasks.items()]


class Watch:
    """A daemon thread that says a board's lines until it is stopped."""

    def __init__(self, board: Board, say: Callable[[str], None]) -> None:
        self._board, self._say = board, say
        self._stop = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        """Begin, unless it runs already: a run without a task of ours has no thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tether-progress", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End it: a thread that writes while Python shuts down can take the process with it."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=2)

    def _run(self) -> None:
        # A short step: a line comes at most a step late, and the steps cost nothing.
        while not self._stop.wait(min(1.0, self._board.interval / 4)):
            for line in self._board.lines():
                self._say(line)


def describe(task: str, hosts: List[Tuple[float, str]], now: float) -> str:
    """``still at work on "Run the engines" after 30 s: gpu1, gpu2``."""
    names = [host for _begun, host in hosts]
    more = len(names) - _NAMED
    listed = ", ".join(names[:_NAMED]) + (" and %d more" % more if more > 0 else "")
    longest = now - min(begun for begun, _host in hosts)
    return 'still at work on "%s" after %d s: %s' % (task, longest, listed)
