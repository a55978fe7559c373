# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether the aims hold, and what a benchmark prints at its end."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Aim:
    """One figure and what it may be at most, or, with ``least``, has to be at least."""

    text: str
    found: float
    limit: float
    least: bool = False

    @property
    def met(self) -> bool:
        return self.found >= self.limit if self.least else self.found <= self.limit

    def __str__(self) -> str:
        verdict = "met" if self.met else "NOT MET"
        side = "at least" if self.least else "at most"
        return f"{verdict:<8} {self.text}: {self.found:g}, {side} {self.limit:g}"


def finish(name: str, found: dict[str, Any], aims: Sequence[Aim], error: str = "") -> int:
    """Print the aims and, as the last line, one JSON object; return the exit status.

    :param error: what ended the benchmark before its end
    """
    if error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)
    for aim in aims:
        print(aim)
    ok = not error and all(aim.met for aim in aims)
    found["aims"] = [
        {"aim": aim.text, "found": aim.found, "limit": aim.limit, "met": aim.met} for aim in aims
    ]
    if error:
        # The whole of it is on standard error.
        found["error"] = error.splitlines()[0]
    print(json.dumps({"name": name, "ok": ok, "figures": found}))
    return 0 if ok else 1
