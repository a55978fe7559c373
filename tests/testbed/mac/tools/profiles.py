# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /usr/bin/profiles: whether a device management server manages the Mac."""

from __future__ import annotations

from collections.abc import Sequence

from .. import machine
from ..program import NotEmulatedError


def main(argv: Sequence[str]) -> int:
    """status -type enrollment."""
    if list(argv) != ["status", "-type", "enrollment"]:
        raise NotEmulatedError(f"profiles {' '.join(argv)}")
    managed = machine.get("managed")
    print("Enrolled via DEP: No")
    print(f"MDM enrollment: {'Yes (User Approved)' if managed else 'No'}")
    return 0
