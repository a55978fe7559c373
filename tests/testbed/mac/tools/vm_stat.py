# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /usr/bin/vm_stat: figures of an idle Mac; they never change."""

from __future__ import annotations

from collections.abc import Sequence

from .. import machine
from ..program import ProgramError

_PAGE = 16384


def main(argv: Sequence[str]) -> int:
    """Print it once."""
    if argv:
        raise ProgramError(64, "usage: vm_stat   (emulated Mac: no options)")
    pages = machine.get("memory") // _PAGE
    rows = {
        "Pages free": pages // 2,
        "Pages active": pages // 8,
        "Pages inactive": pages // 8,
        "Pages speculative": pages // 100,
        "Pages throttled": 0,
        "Pages wired down": pages // 16,
        "Pages purgeable": pages // 200,
    }
    print(f"Mach Virtual Memory Statistics: (page size of {_PAGE} bytes)")
    for name, number in rows.items():
        print(f"{name + ':':<29}{f'{number}.':>17}")
    return 0
