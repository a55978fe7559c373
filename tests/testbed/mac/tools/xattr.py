# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /usr/bin/xattr, for the mark of downloads: Linux keeps such attributes as
`user.NAME`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..program import EX_USAGE, ProgramError

_USAGE = "usage: xattr FILE | -p NAME FILE | -w NAME VALUE FILE | -d NAME FILE (emulated Mac)"


def main(argv: Sequence[str]) -> int:
    """List, print, write or delete attributes of one file."""
    words = list(argv)
    try:
        if len(words) == 1 and not words[0].startswith("-"):
            for name in os.listxattr(words[0]):
                print(name.removeprefix("user."))
        elif len(words) == 3 and words[0] == "-p":
            print(os.getxattr(words[2], f"user.{words[1]}").decode())
        elif len(words) == 4 and words[0] == "-w":
            os.setxattr(words[3], f"user.{words[1]}", words[2].encode())
        elif len(words) == 3 and words[0] == "-d":
            os.removexattr(words[2], f"user.{words[1]}")
        else:
            raise ProgramError(EX_USAGE, _USAGE)
    except FileNotFoundError as error:
        raise ProgramError(1, f"xattr: [Errno 2] No such file: '{words[-1]}'") from error
    except OSError as error:
        raise ProgramError(1, f"xattr: {words[-1]}: No such xattr: {words[1]}") from error
    return 0
