# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What all emulated programs share: loud failures, and a log of every call.

Python's argparse is not used: it takes abbreviations, prints its own usage and exits with 2; the
programs of macOS do neither.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence

from . import places

# sysexits.h
EX_USAGE = 64
EX_SOFTWARE = 70


class ProgramError(Exception):
    """Ends a program: what it prints on standard error, and its exit status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class NotEmulatedError(ProgramError):
    """A real program may well do this; the emulation says that it does not, and guesses nothing."""

    def __init__(self, what: str) -> None:
        super().__init__(EX_SOFTWARE, f"emulated Mac: not emulated: {what}")


def run(name: str, main: Callable[[Sequence[str]], int]) -> int:
    """Run a program with this process's arguments; return its exit status."""
    argv = sys.argv[1:]
    status = EX_SOFTWARE
    try:
        status = main(argv)
    except ProgramError as failure:
        print(failure.text, file=sys.stderr)
        status = failure.status
    finally:
        sys.stdout.flush()
        _log(name, argv, status)
    return status


def is_root() -> bool:
    """Whether root runs the program."""
    return os.geteuid() == 0


def _log(name: str, argv: Sequence[str], status: int) -> None:
    entry = {
        "time": time.time(),
        "tool": name,
        "argv": list(argv),
        "uid": os.geteuid(),
        "rc": status,
    }
    path = places.call_log()
    line = (json.dumps(entry) + "\n").encode()
    # One write on a file opened for appending: lines of tools that run at once do not mix.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        if is_root():
            os.fchmod(descriptor, 0o666)
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
