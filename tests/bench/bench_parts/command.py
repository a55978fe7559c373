# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs programs: a failure shows what the program said."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .places import ROOT, BenchError


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    text_in: str | None = None,
    timeout: float = 900,
) -> str:
    """Run a program from the repository's root; return its standard output.

    :raises BenchError: with the end of what it said, when it fails
    """
    words = [str(word) for word in argv]
    done = subprocess.run(
        words, cwd=ROOT, env=env, input=text_in, capture_output=True, text=True,
        timeout=timeout, check=False,
    )  # fmt: skip
    if done.returncode:
        said = (done.stdout + done.stderr)[-6000:]
        raise BenchError(f"{' '.join(words)} ended with {done.returncode}:\n{said}")
    return done.stdout
