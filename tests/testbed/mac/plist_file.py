# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether the emulated launchd trusts the file of a property list."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .xpc_errors import BAD_OWNERSHIP, INPUT_OUTPUT, QUARANTINED, LaunchdError

# The attribute that macOS sets on what was downloaded. Linux keeps it among the user's.
QUARANTINE = "user.com.apple.quarantine"


def check(path: Path, owner: int) -> None:
    """Refuse a file that somebody else could have written.

    :param owner: the account whose domain it is for
    :raises LaunchdError: 5 without a file; 155 for a quarantined one; 122 unless it is a plain file
        of that account (root for the system domain) that neither group nor others may write (an
        issue says; launchctl(1), "load")
    """
    try:
        status = path.stat()
    except OSError as error:
        raise LaunchdError(INPUT_OUTPUT, str(error)) from error
    if not stat.S_ISREG(status.st_mode):
        raise LaunchdError(BAD_OWNERSHIP, "no plain file")
    if quarantined(path):
        raise LaunchdError(QUARANTINED, "it has the attribute com.apple.quarantine")
    if status.st_uid not in (0, owner):
        raise LaunchdError(BAD_OWNERSHIP, f"it belongs to uid {status.st_uid}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise LaunchdError(BAD_OWNERSHIP, f"its mode is {stat.S_IMODE(status.st_mode):04o}")


def quarantined(path: Path) -> bool:
    """Whether a file carries the mark of a download."""
    try:
        return QUARANTINE in os.listxattr(path)
    except OSError:
        return False
