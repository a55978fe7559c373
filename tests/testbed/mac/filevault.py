# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The emulated Mac's FileVault: with it on, daemons wait after a boot until the disk is unlocked.

An issue says so, and that `fdesetup authrestart` covers one reboot.
"""

from __future__ import annotations

from . import store

_DOCUMENT = "filevault"


def is_on() -> bool:
    return bool(store.read(store.kept(_DOCUMENT)).get("on"))


def turn(on: bool) -> None:
    """Turn it on or off; a test does, no emulated tool."""
    with store.changed(store.kept(_DOCUMENT)) as content:
        content["on"] = on


def cover_next_boot() -> None:
    """The next boot, and only that, needs nobody to unlock the disk."""
    with store.changed(store.kept(_DOCUMENT)) as content:
        content["authrestart"] = True


def waits_for_unlock() -> bool:
    """Asked once at boot: it uses up what cover_next_boot gave."""
    if not is_on():
        return False
    with store.changed(store.kept(_DOCUMENT)) as content:
        covered = bool(content.pop("authrestart", False))
        content["locked"] = not covered
    return not covered


def unlock() -> None:
    """Somebody typed the password."""
    with store.changed(store.kept(_DOCUMENT)) as content:
        content["locked"] = False
