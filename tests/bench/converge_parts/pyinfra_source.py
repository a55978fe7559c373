# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""pyinfra at its pinned version, in a virtual environment that is the benchmark's own."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from bench_parts.command import run
from bench_parts.places import CACHE

from .places import PYINFRA_VERSION

_HOME = CACHE / f"pyinfra-{PYINFRA_VERSION}"
PROGRAM = _HOME / "bin" / "pyinfra"


def ensure() -> None:
    """Make the environment unless it is there."""
    complete = _HOME / ".complete"
    if complete.exists():
        return
    if _HOME.exists():
        shutil.rmtree(_HOME)
    run([sys.executable, "-m", "venv", _HOME])
    run([Path(_HOME, "bin", "pip"), "install", "--quiet", f"pyinfra=={PYINFRA_VERSION}"])
    complete.touch()
