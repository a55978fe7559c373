# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runtime directories where the supervisor makes none: they stay, also over a boot.

All of them are below a folder of root's, which is looked at first, so no account can put a link in
the place of one.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import stat
from typing import Any, Dict, List, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.daemon import base, root_folders


def wrong(items: List[Dict[str, Any]]) -> List[str]:
    """Those that are not there as they should be: owner, group and mode."""
    return [item["path"] for item in items if not _is_right(item)]


def make(items: List[Dict[str, Any]], top: str) -> str:
    """Make them, or set owner and mode; returns why that cannot be, or "".

    :param top: the folder from which down everything above them must be root's
    :raises KeyError: when an account or group does not exist
    """
    for item in items:
        path = item["path"]
        uid, gid = _owner(item)
        problem = root_folders.make(os.path.dirname(path), top)
        if problem:
            return "%s; move it away, and find out who made it" % problem
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return "%s is no directory; move it away" % path
        try:
            os.fchown(handle, uid, gid)
            # After the owner, whose change takes setgid away.
            os.fchmod(handle, int(item["mode"], 8))
        finally:
            os.close(handle)
    return ""


def remove(paths: List[str]) -> None:
    for path in paths:
        # Whose folder is above it could put another one in its place while root removes.
        if _is_directory(path) and not root_folders.strange(os.path.dirname(path)):
            shutil.rmtree(path, ignore_errors=True)


def _is_right(item: Dict[str, Any]) -> bool:
    try:
        status = os.lstat(item["path"])
        owner = _owner(item)
    except (OSError, KeyError):
        return False
    found = (status.st_uid, status.st_gid)
    mode = stat.S_IMODE(status.st_mode)
    return stat.S_ISDIR(status.st_mode) and found == owner and mode == int(item["mode"], 8)


def _owner(item: Dict[str, Any]) -> Tuple[int, int]:
    return pwd.getpwnam(item["owner"]).pw_uid, base.group_id(item["group"])


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
