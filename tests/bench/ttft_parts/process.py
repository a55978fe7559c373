# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Processes that are started, watched and ended, with what they take of processor and memory."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from bench_parts.places import BenchError

_TICK = os.sysconf("SC_CLK_TCK")


class Process:
    """A program with its output in a file.

    :param ready: whether it serves
    """

    def __init__(
        self,
        argv: Sequence[str | Path],
        log: Path,
        ready: Callable[[], bool],
        env: Mapping[str, str] | None = None,
    ) -> None:
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(word) for word in argv], stdout=output, stderr=output, env=env, cwd="/"
            )
        self.pid = self._process.pid
        end = time.monotonic() + 60
        while not ready():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise BenchError(f"{argv[0]} does not serve:\n{log.read_text()[-3000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()


def answers(port: int) -> bool:
    """Whether somebody listens on this machine's port."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def processor_seconds(pids: Iterable[int]) -> float:
    """What these processes took of all processors so far; exact to a hundredth of a second."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICK


def memory(pid: int) -> dict[str, float]:
    """Resident and anonymous memory in MiB; the rest of the former is files, above all its own."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    found = {"resident": fields["VmRSS"], "anonymous": fields["RssAnon"]}
    return {name: round(int(text.split()[0]) / 1024, 1) for name, text in found.items()}
