# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /usr/bin/fdesetup: FileVault's state, and the restart that needs nobody at the
screen."""

from __future__ import annotations

from collections.abc import Sequence

from .. import filevault
from ..program import NotEmulatedError, ProgramError, is_root


def main(argv: Sequence[str]) -> int:
    """status, isactive, supportsauthrestart, authrestart -delayminutes -1."""
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
    if words == ["authrestart", "-delayminutes", "-1"]:
        # The password that it asks for is not emulated; -1 leaves the restart to the caller.
        if not is_root():
            raise ProgramError(1, "Error: must be run as root")
        if not on:
            raise ProgramError(1, "Error: FileVault is Off.")
        filevault.cover_next_boot()
        return 0
    raise NotEmulatedError(f"fdesetup {' '.join(argv)}")
