# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where the benchmark finds and leaves things, and which versions it compares with."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent
WAYS = HERE / "ways"
ON_HOST = HERE / "on_host"
CALLBACKS = HERE / "callbacks"

BED = "bench"
# Under the bed's own folder, so that taking the bed down takes it too: it holds the bed's tokens.
BED_STATE = Path("/var/lib/tether-bed") / BED
STATE = BED_STATE / "converge"

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tether-fleet" / "bench"
PLAYBOOK = str(Path(sys.executable).parent / "ansible-playbook")
GALAXY = str(Path(sys.executable).parent / "ansible-galaxy")

ROLE_COLLECTION = "prometheus.prometheus"
ROLE_VERSION = "0.30.2"
# The default of that version of the role.
NODE_EXPORTER_VERSION = "1.11.1"
PYINFRA_VERSION = "3.10.0"


class BenchError(Exception):
    """The benchmark cannot go on: what was found, what was expected, what to do."""
