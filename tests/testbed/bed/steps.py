# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One line of output for each step, with what came of it and how long it took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Outcome:
    """What a step's line says behind its name."""

    text: str = "ok"


@contextmanager
def step(name: str) -> Iterator[Outcome]:
    """Time a step and print its line when it ends, however it ends."""
    outcome = Outcome()
    start = time.monotonic()
    try:
        yield outcome
    except BaseException:
        outcome.text = "FAILED"
        raise
    finally:
        seconds = time.monotonic() - start
        print(f"{name:<22} {seconds:7.1f} s  {outcome.text}", flush=True)
