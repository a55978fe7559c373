# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs programs, several at a time, each to its end or to its time limit."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from parts import Part
from paths import ROOT


@dataclass
class Ended:
    """A part that has ended; ``note`` says why when its status does not."""

    part: Part
    status: int
    seconds: float
    note: str = ""


@dataclass
class _Running:
    part: Part
    process: subprocess.Popen[bytes]
    output: IO[bytes] | None
    log: Path
    since: float = field(default_factory=time.monotonic)

    def end(self) -> None:
        """The program and its children: what hangs is often a child."""
        if self.process.poll() is None:
            _signal(self.process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=20)
            _signal(self.process, signal.SIGKILL)
            self.process.wait()
        if self.output:
            self.output.close()


def run(
    parts: list[Part], environment: Callable[[Part], dict[str, str]], logs: Path, lanes: int = 2
) -> Iterator[Ended]:
    """Run parts, at most ``lanes`` at a time; yields each as it ends, its output already shown.

    The next part is the first one whose claim no running one has. A part that is alone shows its
    output as it comes, of several each is shown whole at its end.
    """
    waiting, running = list(parts), list[_Running]()
    try:
        while waiting or running:
            while len(running) < lanes and (part := _next(waiting, running)):
                waiting.remove(part)
                started = _start(part, environment, None if len(parts) == 1 else logs)
                if isinstance(started, Ended):
                    yield started
                else:
                    running.append(started)
            for each in list(running):
                ended = _look(each)
                if ended:
                    running.remove(each)
                    yield ended
            time.sleep(0.05)
    finally:
        for each in running:
            each.end()


def _next(waiting: list[Part], running: list[_Running]) -> Part | None:
    claimed = {each.part.claims for each in running if each.part.claims}
    return next((part for part in waiting if part.claims not in claimed), None)


def _start(
    part: Part, environment: Callable[[Part], dict[str, str]], logs: Path | None
) -> _Running | Ended:
    variables = environment(part)
    program = shutil.which(part.argv[0], path=variables["PATH"])
    if program is None:
        print(f"\n{title(part)}")
        return Ended(part, 127, 0.0, f"there is no {part.argv[0]}")
    log = (logs or ROOT) / f"{part.name.replace(' ', '-')}.log"
    output = log.open("wb") if logs else None
    print(f"\n   {part.name} begins" if output else f"\n{title(part)}", flush=True)
    process = subprocess.Popen(
        [program, *part.argv[1:]],
        cwd=ROOT,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        start_new_session=True,
    )
    return _Running(part, process, output, log)


def _look(each: _Running) -> Ended | None:
    seconds = time.monotonic() - each.since
    if each.process.poll() is None and seconds < each.part.limit:
        return None
    note = "" if each.process.poll() is not None else f"no end after {each.part.limit} s"
    each.end()
    if each.output:
        print(f"\n{title(each.part)}\n{each.log.read_text(errors='replace')}", end="", flush=True)
    return Ended(each.part, 1 if note else each.process.returncode, seconds, note)


def title(part: Part) -> str:
    return f"== {part.name}: {part.what}"


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
