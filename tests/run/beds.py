# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The test beds: brought up beside the checks that need none, joined by the first that does."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import IO

from paths import BUILD, PYTHON, ROOT

# The bed of the scenarios and drills; `make demo` has its own, so both can stand side by side.
FIRST = os.environ.get("TETHER_BED", "test")
# For tests of single parts: a cluster, and the one host that is not managed.
SECOND = f"{FIRST}2"
_UP = {FIRST: "up", SECOND: "up --hosts neighbour"}
_COMMAND = (PYTHON, "tests/testbed", "--bed")
LOCK = Path(f"/run/lock/tether-bed-{FIRST}.tests")


class Beds:
    """The beds of one run: fresh at its start, gone at its end.

    With ``KEEP_BED=1`` they are taken as they are found and left up: for those who work on one
    scenario.

    :param names: which of them, ``FIRST`` and ``SECOND``, are needed
    """

    def __init__(self, names: set[str]) -> None:
        self._up = {name: _UP[name] for name in sorted(names)}
        self.log = BUILD / "beds.log"
        self.keep = os.environ.get("KEEP_BED", "") not in ("", "0")
        self.refusal = ""
        self.seconds = 0.0
        self._since = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None

    def start(self) -> None:
        """Begin to bring them up; returns at once. What stands in the way is said by ``join``."""
        self._since = time.monotonic()
        self.refusal = self._refusal()
        if self.refusal:
            return
        steps = []
        for name, up in self._up.items():
            steps += [[name, "down"]] * (not self.keep) + [[name, *up.split()]]
        script = " && ".join(f'"$@" {shlex.join(step)}' for step in steps)
        self._process = subprocess.Popen(
            ["sh", "-c", script, "sh", *_COMMAND],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self.log.open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def join(self) -> str:
        """Wait until they are up; returns why they are not to be had, or nothing."""
        if self._process is None:
            return self.refusal
        shown = time.monotonic()
        while self._process.poll() is None:
            if time.monotonic() - shown > 30:
                shown = time.monotonic()
                print(f"   waiting for the test beds: {self._last_line()}", flush=True)
            time.sleep(0.2)
        self.seconds = self.seconds or time.monotonic() - self._since
        if self._process.returncode:
            print(self.log.read_text(errors="replace")[-8000:], flush=True)
            return "the test beds did not come up (their log is above)"
        return ""

    def settings(self, name: str) -> dict[str, str]:
        """Where tests find a bed, once it is up. Only the host that is not managed is theirs."""
        state = Path("/var/lib/tether-bed") / name
        if self._process is None or self._process.poll() != 0:
            return {}
        return {
            "TETHER_TEST_KUBECONFIG": str(state / "kubeconfig"),
            "TETHER_TEST_RELAY_IMAGE": (state / "relay_image").read_text().strip(),
            "TETHER_TEST_SSH_CONFIG": str(state / "ssh_config"),
            "TETHER_TEST_HOST": "neighbour",
        }

    def stop(self) -> str:
        """Take them down again; returns what went wrong, or nothing."""
        if self._process is None:
            return ""
        if self._process.poll() is None:
            # The bed is made to be interrupted: what is half made, `down` finds.
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait()
        if self.keep:
            return ""
        log = BUILD / "beds-down.log"
        with log.open("wb") as stream:
            failed = [
                subprocess.run(
                    [*_COMMAND, name, "down"], cwd=ROOT, stdout=stream, stderr=stream, check=False
                ).returncode
                for name in self._up
            ]
        return f"see {log}" if any(failed) else ""

    def _refusal(self) -> str:
        done = subprocess.run(
            ["sh", "tests/run/setup.sh", "bed", "test"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return done.stderr.strip()
        self._lock = LOCK.open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return f"another run of the tests uses the bed {FIRST} (it holds {LOCK})"
        return ""

    def _last_line(self) -> str:
        lines = self.log.read_text(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "started")
