# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Folders of root's, in which nobody else can put one thing in the place of another."""

from __future__ import annotations

import contextlib
import os
import stat


def strange(path: str) -> str:
    """What is wrong with a folder that root is to rely on, in words; "" when nothing is."""
    try:
        status = os.lstat(path)
    except OSError as error:
        return "one that cannot be read (%s)" % error.strerror
    if not stat.S_ISDIR(status.st_mode):
        return "no directory"
    # The module runs as root; tests may not.
    if status.st_uid != os.geteuid():
        return "a directory of the account with the number %d" % status.st_uid
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "a directory that others may write (mode %04o)" % stat.S_IMODE(status.st_mode)
    return ""


def make(path: str, top: str) -> str:
    """Make a folder, and those above it; returns what is wrong with one of them, or "".

    :param top: from this one down they must be root's; what is above it is the system's
    """
    above = os.path.dirname(path)
    below_top = path.startswith(top.rstrip("/") + "/")
    if below_top or not os.path.isdir(above):
        problem = make(above, top)
        if problem:
            return problem
    if not os.path.lexists(path):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
            # Whatever the umask.
            os.chmod(path, 0o755)  # noqa: S103 - what is in it has modes of its own
    if not below_top and path != top.rstrip("/"):
        return ""
    problem = strange(path)
    return "%s is %s" % (path, problem) if problem else ""
