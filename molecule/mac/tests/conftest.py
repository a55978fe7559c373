# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
os.environ["MOLECULE_SCENARIO_NAME"] = HERE.parent.name
os.environ["TETHER_TEST_BED"] = "mac"
# The helpers of the scenario that they are shared with.
sys.path.insert(0, str(HERE.parents[1] / "default" / "tests"))
# The emulation, which says what a Mac would do with a packet. Last, as it has a module bed too.
sys.path.append(str(HERE.parents[2] / "tests" / "testbed"))

from client_pod import client_pod  # noqa: E402, F401 (a fixture)
