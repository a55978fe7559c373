# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /usr/bin/sw_vers: the first program that Ansible runs on a Mac."""

from __future__ import annotations

from collections.abc import Sequence

from .. import machine
from ..program import ProgramError


def main(argv: Sequence[str]) -> int:
    """All of the version, or one part."""
    parts = {
        "ProductName": "macOS",
        "ProductVersion": machine.get("version"),
        "BuildVersion": machine.get("build"),
    }
    # Since macOS 13 with two dashes too.
    options = {f"{dash}{n[0].lower()}{n[1:]}": n for dash in ("-", "--") for n in parts}
    if not argv:
        for name, text in parts.items():
            print(f"{name + ':':<16}\t{text}")
    elif len(argv) == 1 and argv[0] in options:
        print(parts[options[argv[0]]])
    else:
        raise ProgramError(64, "Usage: sw_vers [--productName|--productVersion|--buildVersion]")
    return 0
