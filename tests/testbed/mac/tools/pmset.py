# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /usr/bin/pmset: settings of a Mac mini, kept over reboots. It never sleeps."""

from __future__ import annotations

from collections.abc import Sequence

from .. import store
from ..program import EX_USAGE, ProgramError, is_root

_DOCUMENT = "pmset"
# `pmset -g custom` of a desktop Mac: sleep after a minute, no start after a power failure.
_DEFAULTS = {
    "womp": 1,
    "autorestart": 0,
    "powernap": 1,
    "networkoversleep": 0,
    "disksleep": 10,
    "sleep": 1,
    "ttyskeepawake": 1,
    "displaysleep": 10,
    "tcpkeepalive": 1,
    "standby": 0,
    "hibernatemode": 0,
    "lowpowermode": 0,
}
_USAGE = "Usage: pmset -g [custom] | -a <setting> <number> [...]   (emulated Mac: these alone)"


def main(argv: Sequence[str]) -> int:
    """Show or change settings."""
    words = list(argv)
    settings = {**_DEFAULTS, **store.read(store.kept(_DOCUMENT))}
    if words == ["-g"]:
        print("System-wide power settings:\nCurrently in use:")
    elif words == ["-g", "custom"]:
        print("AC Power:")
    else:
        _change(words)
        return 0
    for key, value in settings.items():
        print(f" {key:<20} {value}")
    return 0


def _change(words: list[str]) -> None:
    # -c is the charger, which is all that a desktop has; -b and -u are refused.
    if len(words) < 3 or words[0] not in ("-a", "-c") or len(words) % 2 == 0:
        raise ProgramError(EX_USAGE, _USAGE)
    wanted = {words[index]: words[index + 1] for index in range(1, len(words), 2)}
    for key, value in wanted.items():
        if key not in _DEFAULTS or not value.isdigit():
            raise ProgramError(EX_USAGE, f"pmset: {key} {value}: no such setting\n{_USAGE}")
    if not is_root():
        raise ProgramError(77, "'pmset' must be run as root...")
    with store.changed(store.kept(_DOCUMENT)) as content:
        content.update({key: int(value) for key, value in wanted.items()})
