#!/usr/bin/env python3
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The lock for a bed with an emulated Mac: ``mac_lock.py TARGET``.

An emulated Mac is a Linux machine, so what is pinned for macOS does not run there. In this lock the
programs of this machine's platform stand in the place of the Mac's: the one thing in which what is
installed there differs from what a real Mac gets.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import yaml

_LOCK = Path(__file__).resolve().parents[2] / "fleet.lock.yml"


def main() -> None:
    pins = yaml.safe_load(_LOCK.read_text())
    here = f"linux-{platform.machine()}"
    for artifact in pins["artifacts"].values():
        if here in artifact["platforms"]:
            artifact["platforms"]["darwin-arm64"] = artifact["platforms"][here]
    Path(sys.argv[1]).write_text(
        "# Made by tests/models/mac_lock.py: what is pinned for darwin-arm64 here is for Linux.\n"
        + yaml.safe_dump(pins, sort_keys=False)
    )


if __name__ == "__main__":
    main()
