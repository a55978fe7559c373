# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where all benchmarks find and leave things."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COLLECTIONS = ROOT / ".ansible" / "collections"
INTEGRATION = ROOT / "tests" / "integration"

BED = "bench"
# What a benchmark keeps goes below the bed's own folder, so that taking the bed down takes it too:
# it holds the bed's tokens.
BED_STATE = Path("/var/lib/tether-bed") / BED

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tether-fleet" / "bench"
PLAYBOOK = str(Path(sys.executable).parent / "ansible-playbook")


class BenchError(Exception):
    """The benchmark cannot go on: what was found, what was expected, what to do."""
