# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runtime directories where the supervisor makes none: they stay, also over a boot.

All of them are below a folder of root's, so no account can put a link in the place of one.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from typing import Any, Dict, List, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.daemon import base


def wrong(items: List[Dict[str, Any]]) -> List[str]:
    """Those that are not there as they should be: owner, group and mode."""
    return [item["path"] for item in items if not _is_right(item)]


def make(items: List[Dict[str, Any]]) -> str:
    """Make them, or set owner and mode; returns why that cannot be, or "".

    :raises KeyError: when an account or group does not exist
    """
    for item in items:
        path = item["path"]
        uid, gid = _owner(item)
        if os.path.lexists(path) and not _is_directory(path):
            return "%s is no directory; move it away" % path
        _make_parents(path)
        if not os.path.lexists(path):
            os.mkdir(path, 0o700)
        os.chown(path, uid, gid)
        # After the owner, whose change takes setgid away.
        os.chmod(path, int(item["mode"], 8))
    return ""


def remove(paths: List[str]) -> None:
    for path in paths:
        if _is_directory(path):
            shutil.rmtree(path, ignore_errors=True)


def _make_parents(path: str) -> None:
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        _make_parents(folder)
        os.mkdir(folder)
        os.chmod(folder, 0o755)  # noqa: S103 - each directory in it has a mode of its own


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
