# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Progress for whoever waits; the figures alone are on standard output."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    print(f"-- {text}", file=sys.stderr, flush=True)
