# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Running programs to their end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .errors import BedError


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
) -> str:
    """Run a program and return what it printed; a failure carries its last lines."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            env=None if env is None else {**os.environ, **env},
            cwd=cwd,
            # Locks are inherited; Python keeps everything else to itself anyway.
            close_fds=False,
            check=False,
        )
    except FileNotFoundError as error:
        raise BedError(f"{words[0]}: no such program") from error
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise BedError(f"{' '.join(words)}\nended with status {done.returncode}:\n{said}")
    return done.stdout


def succeeds(argv: Sequence[str | Path]) -> bool:
    """Whether a program ends well; for questions, not for actions."""
    words = [str(word) for word in argv]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], bool], timeout: float, what: str) -> None:
    """Poll until the condition holds; say what was waited for if it never does."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise BedError(f"waited {timeout:.0f} s in vain for {what}")
        time.sleep(0.1)
