# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where the emulated Mac keeps its things: all below one root, so that tests need no host."""

from __future__ import annotations

import os
from pathlib import Path

ROOT_VARIABLE = "EMULATED_MAC_ROOT"


def root() -> Path:
    """The emulated Mac's root folder; `/` on a host that is one."""
    return Path(os.environ.get(ROOT_VARIABLE, "/"))


def place(path: str) -> Path:
    """An absolute path of the Mac, as a path of this machine."""
    return root() / path.lstrip("/")


def kept() -> Path:
    """The emulation's own state that outlives a reboot."""
    return place("/var/db/emulated-mac")


def until_reboot() -> Path:
    """The emulation's own state that a reboot takes away."""
    return place("/var/run/emulated-mac")


def socket_path() -> Path:
    """Where the emulated launchd listens."""
    return place("/var/run/emulated-launchd.sock")


def call_log() -> Path:
    """Every call of an emulated tool: one JSON object a line."""
    return kept() / "calls.jsonl"
