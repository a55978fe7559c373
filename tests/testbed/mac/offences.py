# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a careful guest on somebody's Mac never does; tests of the collection expect none.

The tools answer as on a Mac; besides, the deed is written down here.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from . import places


def path() -> Path:
    """One JSON object a line."""
    return places.kept() / "offences.jsonl"


def report(tool: str, why: str) -> None:
    """Write an offence down."""
    entry = {"time": time.time(), "tool": tool, "argv": sys.argv[1:], "why": why}
    with path().open("a") as stream:
        stream.write(json.dumps(entry) + "\n")
