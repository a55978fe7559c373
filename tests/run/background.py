# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The test bed beside the checks: brought up in the background, joined by the first that needs it."""

from __future__ import annotations

import os
import signal
import subprocess
import time

from parts import BUILD, PYTHON, ROOT

# The bed that tests use; `make demo` has its own, so both can stand side by side.
NAME = os.environ.get("TETHER_BED", "test")
COMMAND = (PYTHON, "tests/testbed", "--bed", NAME)


class Bed:
    """One bed, up for as long as the run needs it.

    A bed that was up before stays up: somebody works with it. So does one with ``KEEP_BED=1``.
    """

    def __init__(self) -> None:
        self.log = BUILD / "bed.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.started = False
        self.seconds = 0.0
        self._since = 0.0

    def start(self) -> None:
        """Begin to bring it up; returns at once."""
        refused = subprocess.run(["sh", "tests/run/setup.sh", "bed", "test"], cwd=ROOT, check=False)
        was_up = self._call("status") == 0
        self.started = not was_up and not os.environ.get("KEEP_BED")
        self._since = time.monotonic()
        if refused.returncode:
            return
        self.process = subprocess.Popen(
            [*COMMAND, "up"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self.log.open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def join(self) -> bool:
        """Wait until it is up; False when it is not to be had (its log is then shown)."""
        if self.process is None:
            return False
        shown = 0.0
        while self.process.poll() is None:
            if time.monotonic() - shown > 30:
                shown = time.monotonic()
                print(f"   waiting for the test bed: {self._last_line()}", flush=True)
            time.sleep(0.2)
        self.seconds = self.seconds or time.monotonic() - self._since
        if self.process.returncode:
            print(self.log.read_text(errors="replace")[-8000:], flush=True)
            return False
        return True

    def stop(self) -> bool:
        """Take it down if this run brought it up; False when that failed."""
        if self.process is None:
            return True
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait()
        return not self.started or self._call("down") == 0

    def _call(self, verb: str) -> int:
        with (BUILD / f"bed-{verb}.log").open("wb") as log:
            return subprocess.run(
                [*COMMAND, verb], cwd=ROOT, stdout=log, stderr=log, check=False
            ).returncode

    def _last_line(self) -> str:
        lines = self.log.read_text(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "started")
