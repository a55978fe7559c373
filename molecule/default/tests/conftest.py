# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The helpers beside this file, and the collection by its own name.
sys.path[:0] = [str(HERE), str(HERE.parents[2] / ".ansible" / "collections")]

from client_pod import client_pod  # noqa: E402, F401 (a fixture)
