# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One job of the emulated launchd: its process, and what happens when that ends."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from . import calendar_times, spawn
from .clock import Clock, Timer
from .job_description import JobDescription
from .xpc_errors import ALREADY_IN_PROGRESS, IN_PROGRESS, NO_SUCH_PROCESS, LaunchdError

NOT_RUNNING = "not running"
SCHEDULED = "spawn scheduled"
RUNNING = "running"
TERMINATED = "SIGTERMed"
KILLED = "SIGKILLed"

# "typically associated with a crash", launchd.plist(5)
_CRASHES = frozenset(
    (
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGABRT,
        signal.SIGFPE,
        signal.SIGBUS,
        signal.SIGSEGV,
        signal.SIGSYS,
    )
)


@dataclass
class Ending:
    """How a process ended: an exit status, or a signal."""

    status: int = 0
    signal: int = 0

    @classmethod
    def of(cls, wait_status: int) -> Ending:
        code = os.waitstatus_to_exitcode(wait_status)
        return cls(signal=-code) if code < 0 else cls(status=code)

    @property
    def successful(self) -> bool:
        return not self.status and not self.signal


class Job:
    """A job that is loaded in a domain.

    :param account: whom its process runs as; empty for root
    :param forget: takes the job out of its domain when a bootout is complete
    """

    def __init__(
        self,
        description: JobDescription,
        domain: str,
        account: str,
        clock: Clock,
        forget: Callable[[Job], None],
    ) -> None:
        self.description = description
        self.label = description.label
        self.domain = domain
        self.account = account
        # Agents get the variables of their account, daemons do not.
        owner = "" if domain == "system" else account
        self.environment = spawn.environment(description, description.label, owner)
        self.state = NOT_RUNNING
        self.pid = 0
        self.runs = 0
        self.execs = 0
        self.reason = ""
        self.last: Ending | None = None
        self.problem = ""
        """Why the last start never reached the job's program."""
        self.removing = False
        self.refusals = 0
        """How often a bootstrap came while this one was still ending."""
        self._again = False
        self._started_at: float | None = None
        self._clock = clock
        self._forget = forget
        self._timers: list[Timer] = []
        self._waiters: list[Callable[[int], None]] = []

    # What launchctl asks for.

    def load(self) -> None:
        """The job was bootstrapped: start it if its description says so."""
        wants = self.description
        # launchd.plist(5): SuccessfulExit implies RunAtLoad.
        if wants.run_at_load or wants.keep_alive or "SuccessfulExit" in wants.keep_alive_if:
            self.demand("speculative")
        self._arm_interval()
        for entry in wants.calendar:
            self._arm_calendar(entry)

    def kickstart(self, *, kill: bool, then: Callable[[int], None] | None) -> None:
        """Start the job now; `then` gets the pid once there is one."""
        if self.removing:
            raise LaunchdError(ALREADY_IN_PROGRESS, "it is being booted out")
        if then:
            self._waiters.append(then)
        if self.pid and kill:
            self._again = True
            self.terminate()
        else:
            self.demand("non-ipc demand")
            if self.pid:
                self._tell_waiters(self.pid)

    def boot_out(self) -> None:
        """End the process, and forget the job when it has ended; returns before that.

        Measured on macOS 26.5.1: the request answers 0 while the process still runs.
        """
        if self.removing:
            raise LaunchdError(IN_PROGRESS, "it is being booted out already")
        self.removing = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self.pid:
            self.terminate()
        else:
            self._tell_waiters(0)
            self._forget(self)

    def send(self, number: int) -> None:
        """Send the process a signal."""
        if not self.pid:
            raise LaunchdError(NO_SUCH_PROCESS, "it does not run")
        os.kill(self.pid, number)

    # The process.

    def demand(self, reason: str) -> None:
        """Have the process run; not before the throttle's time has passed since its last start."""
        if self.pid or self.removing or self.state == SCHEDULED:
            return
        self.reason = reason
        now = self._clock.now()
        earliest = now if self._started_at is None else self._started_at + self.description.throttle
        if earliest <= now:
            self._spawn()
        else:
            self.state = SCHEDULED
            self._timers.append(self._clock.at(earliest, self._spawn))

    def terminate(self) -> None:
        """SIGTERM now, SIGKILL when ExitTimeOut is over; 0 waits for ever (launchd.plist(5))."""
        if self.state != RUNNING:
            return
        pid = self.pid
        self.state = TERMINATED
        os.kill(pid, signal.SIGTERM)
        if self.description.exit_timeout:
            moment = self._clock.now() + self.description.exit_timeout
            # Not among the timers that a bootout cancels.
            self._clock.at(moment, lambda: self._kill(pid))

    def ended(self, wait_status: int) -> None:
        """The process was reaped."""
        pid, self.pid = self.pid, 0
        self.state = NOT_RUNNING
        self.last = Ending.of(wait_status)
        if not self.description.abandon_group:
            # launchd.plist(5), AbandonProcessGroup: what is left of its process group goes too.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGTERM)
        if self.removing:
            self._tell_waiters(0)
            self._forget(self)
        elif self._again:
            self._again = False
            self.demand("non-ipc demand")
        elif self._kept_alive():
            self.demand("inefficient")

    def _spawn(self) -> None:
        self._started_at = self._clock.now()
        self.runs += 1
        started = spawn.start(self.description, self.account, self.environment)
        self.pid = started.pid
        self.problem = started.problem
        if started.problem:
            # Its end follows at once. Measured: no pid, "last exit code = 78: EX_CONFIG", and with
            # KeepAlive "spawn scheduled" again and again.
            _, status = os.waitpid(started.pid, 0)
            self._tell_waiters(0)
            self.ended(status)
            return
        self.state = RUNNING
        self.execs += 1
        self._tell_waiters(self.pid)

    def _kept_alive(self) -> bool:
        wants, last = self.description, self.last
        assert last is not None
        if wants.keep_alive:
            return True
        for key, value in wants.keep_alive_if.items():
            held = last.successful if key == "SuccessfulExit" else last.signal in _CRASHES
            if held == value:
                return True
        return False

    def _kill(self, pid: int) -> None:
        if self.pid == pid and self.state == TERMINATED:
            self.state = KILLED
            os.kill(pid, signal.SIGKILL)

    def _tell_waiters(self, pid: int) -> None:
        waiters, self._waiters = self._waiters, []
        for tell in waiters:
            tell(pid)

    def _arm_interval(self) -> None:
        seconds = self.description.start_interval
        if seconds:

            def due() -> None:
                self.demand("interval")
                self._arm_interval()

            self._timers.append(self._clock.at(self._clock.now() + seconds, due))

    def _arm_calendar(self, entry: dict[str, int]) -> None:
        now = datetime.now()
        moment = calendar_times.next_time(entry, now)
        if moment is None:
            return

        def due() -> None:
            self.demand("calendar interval")
            self._arm_calendar(entry)

        seconds = (moment - now).total_seconds()
        self._timers.append(self._clock.at(self._clock.now() + seconds, due))
