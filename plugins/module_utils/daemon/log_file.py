# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a process under launchd writes: one file for each, which its account must be able to open.

launchd opens it as the account, and where it cannot, the process ends with status 78 before it
begins (an issue says; read in the binary of xpcproxy, macOS 26.5.1). It would make a missing folder
so that the account cannot enter it. So folder and file are made beforehand; rotation has to make
the file anew with the same owner and mode. The mode is for nobody but that account: the primary
group of accounts is staff on macOS, which everybody is in.
"""

from __future__ import annotations

import os
import stat
from typing import List, Optional, Tuple

FOLDER = "/var/log/tether"
_MODE = 0o600
# Bytes at the end of a file that are read for its last lines.
_TAIL = 64 * 1024

# Which file it was, and how long: what is behind that was written since.
Position = Tuple[int, int]


def path(daemon: str) -> str:
    return os.path.join(FOLDER, daemon + ".log")


def needs(daemon: str, uid: Optional[int]) -> str:
    """What it takes to be a plain file for that account alone: ``create``, ``update`` or ""."""
    try:
        status = os.lstat(path(daemon))
    except (FileNotFoundError, NotADirectoryError):
        return "create"
    mode = stat.S_IMODE(status.st_mode)
    fine = stat.S_ISREG(status.st_mode) and status.st_uid == uid and mode == _MODE
    return "" if fine else "update"


def make(daemon: str, uid: int, gid: int) -> None:
    """Make the file, or give it to the account; what is in it stays."""
    if not os.path.isdir(FOLDER):
        os.mkdir(FOLDER)
        os.chmod(FOLDER, 0o755)  # noqa: S103 - the files in it are their accounts'
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    handle = os.open(path(daemon), flags, _MODE)
    try:
        os.fchown(handle, uid, gid)
        os.fchmod(handle, _MODE)
    finally:
        os.close(handle)


def position(daemon: str) -> Position:
    """Where what is written from now on begins."""
    try:
        status = os.stat(path(daemon))
    except OSError:
        return 0, 0
    return status.st_ino, status.st_size


def last_lines(daemon: str, since: Position, count: int = 20) -> List[str]:
    """The last lines that were written since, oldest first."""
    try:
        with open(path(daemon), "rb") as stream:
            status = os.fstat(stream.fileno())
            # Rotated or emptied since: everything in it is new.
            same = status.st_ino == since[0] and status.st_size >= since[1]
            begin = since[1] if same else 0
            stream.seek(max(begin, status.st_size - _TAIL))
            if stream.tell() > begin:
                stream.readline()  # the rest of a line
            text = stream.read(_TAIL).decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-count:]
