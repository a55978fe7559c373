# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where the benchmark finds and leaves things, and which versions it compares with."""

from __future__ import annotations

import sys
from pathlib import Path

from bench_parts.places import BED_STATE

HERE = Path(__file__).resolve().parent
WAYS = HERE / "ways"
ON_HOST = HERE / "on_host"
CALLBACKS = HERE / "callbacks"

STATE = BED_STATE / "converge"

GALAXY = str(Path(sys.executable).parent / "ansible-galaxy")

ROLE_COLLECTION = "prometheus.prometheus"
ROLE_VERSION = "0.30.2"
# The default of that version of the role.
NODE_EXPORTER_VERSION = "1.11.1"
PYINFRA_VERSION = "3.10.0"
