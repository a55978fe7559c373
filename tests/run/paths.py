# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where things are, for the programs of this folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Reports and logs of a run.
BUILD = ROOT / "build" / "test"
# What is worth keeping between clones and runs.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tether-fleet"
# The programs of the virtual environment that runs this.
PYTHON = sys.executable
BIN = Path(PYTHON).parent
# The collection under its full name: mypy and Ansible see the names that imports use.
COLLECTIONS = ".ansible/collections"
LINKED = f"{COLLECTIONS}/ansible_collections/tether/fleet"
