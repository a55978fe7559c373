# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /usr/sbin/softwareupdate: there never is an update (machine.update stands for one)."""

from __future__ import annotations

from collections.abc import Sequence

from .. import store
from ..program import NotEmulatedError, ProgramError, is_root

_DOCUMENT = "softwareupdate"


def main(argv: Sequence[str]) -> int:
    """-l, --schedule [on|off]."""
    words = list(argv)
    if words in (["-l"], ["--list"]):
        print("Software Update Tool\n\nFinding available software\nNo new software available.")
        return 0
    if words[:1] != ["--schedule"] or words[1:] not in ([], ["on"], ["off"]):
        raise NotEmulatedError(f"softwareupdate {' '.join(argv)}")
    if words[1:]:
        if not is_root():
            raise ProgramError(1, "softwareupdate: Must be run as root")
        with store.changed(store.kept(_DOCUMENT)) as content:
            content["schedule"] = words[1]
    on = store.read(store.kept(_DOCUMENT)).get("schedule", "on") == "on"
    print(f"Automatic checking for updates is turned {'on' if on else 'off'}")
    return 0
