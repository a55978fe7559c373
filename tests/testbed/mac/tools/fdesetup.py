# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /usr/bin/fdesetup: FileVault's state, and the restart that needs nobody at the
screen."""

from __future__ import annotations

import plistlib
import sys
from collections.abc import Sequence
from xml.parsers.expat import ExpatError

from .. import filevault
from ..program import NotEmulatedError, ProgramError, is_root


def main(argv: Sequence[str]) -> int:
    """status, isactive, supportsauthrestart, authrestart -delayminutes -1 -inputplist."""
    words = list(argv)
    on = filevault.is_on()
    if words == ["status"]:
        print(f"FileVault is {'On' if on else 'Off'}.")
        return 0
    if words == ["isactive"]:
        print("true" if on else "false")
        return 0 if on else 1
    if words == ["supportsauthrestart"]:
        print("true")
        return 0
    if words == ["authrestart", "-delayminutes", "-1", "-inputplist"]:
        # fdesetup(8): -inputplist reads Username and Password from standard input; -1 leaves the
        # restart to the caller. Whether the password is right is not emulated.
        if not _credentials():
            raise ProgramError(1, "Error: Unable to read input plist.")
        if not is_root():
            raise ProgramError(1, "Error: must be run as root")
        if not on:
            raise ProgramError(1, "Error: FileVault is Off.")
        filevault.cover_next_boot()
        return 0
    raise NotEmulatedError(f"fdesetup {' '.join(argv)}")


def _credentials() -> bool:
    try:
        found = plistlib.loads(sys.stdin.buffer.read())
    except (ValueError, ExpatError):
        return False
    return all(isinstance(found.get(key), str) and found[key] for key in ("Username", "Password"))
