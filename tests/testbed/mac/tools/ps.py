# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /bin/ps: all processes with their parents, and when one of them started (ps(1))."""

from __future__ import annotations

import time
from collections.abc import Sequence

from .. import linux_tables
from ..program import NotEmulatedError


def main(argv: Sequence[str]) -> int:
    """Print one of the two tables."""
    linux_tables.enter()
    found = linux_tables.processes()
    if list(argv) == ["-axo", "pid=,ppid="]:
        for one in found:
            print(f"{one.pid:5} {one.parent:5}")
        return 0
    if list(argv[:3]) != ["-o", "lstart=", "-p"] or len(argv) != 4 or not argv[3].isdigit():
        raise NotEmulatedError("ps %s" % " ".join(argv))
    for one in found:
        if one.pid == int(argv[3]):
            # strftime's %c of the locale C, and blanks at its end.
            print(time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(one.started)) + "    ")
            return 0
    return 1
