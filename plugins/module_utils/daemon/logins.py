# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which daemons root has put into login sessions: root's own record, in a folder of root's.

What lies in an account's folder, that account can write: it says neither that it is ours, nor which
directories are to be removed with it, nor how long to wait for its process.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils import files
from ansible_collections.tether.fleet.plugins.module_utils.daemon import (
    plist,
    plist_place,
    root_folders,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

# Kept over a boot, as the plists are.
FOLDER = "/var/lib/tether/logins"


@dataclass(frozen=True)
class Login:
    """A daemon at the place of a login session, as it was last written there.

    :ivar stop_timeout: seconds, of its entry
    :ivar directories: its runtime directories
    """

    place: plist_place.Place
    stop_timeout: int
    directories: Tuple[str, ...]


def path(label: str) -> str:
    return os.path.join(FOLDER, label + ".json")


def of(entry: Dict[str, Any], place: plist_place.Place) -> Login:
    directories = tuple(item["path"] for item in entry["runtime_directories"])
    return Login(place, entry["stop_timeout"], directories)


def read(label: str) -> List[Login]:
    """The places that a daemon was put to; none when there is no record that root wrote."""
    if root_folders.strange(FOLDER):
        return []
    try:
        handle = os.open(path(label), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []
    with os.fdopen(handle, encoding="utf-8") as stream:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return []
        try:
            return [_parsed(item) for item in json.load(stream)]
        except (KeyError, TypeError, ValueError):
            return []


def find(label: str, place: plist_place.Place) -> Optional[Login]:
    return next((one for one in read(label) if one.place == place), None)


def labels(prefix: str) -> List[str]:
    """Daemons with a record whose name begins so."""
    try:
        names = os.listdir(FOLDER)
    except OSError:
        return []
    ends = ".json"
    return sorted(n[: -len(ends)] for n in names if n.startswith(prefix) and n.endswith(ends))


def add(label: str, login: Login) -> None:
    """Note a daemon's place, before anything is written there.

    :raises Refusal: when the folder is not root's
    """
    problem = root_folders.make(FOLDER, os.path.dirname(FOLDER))
    if problem:
        raise Refusal(
            "record %s" % path(label),
            "that %s" % problem,
            "a directory of root's that nobody else may write",
            "Move it away and find out who made it, then run again",
        )
    _write(label, [one for one in read(label) if one.place != login.place] + [login])


def remove(label: str, place: plist_place.Place) -> None:
    kept = [one for one in read(label) if one.place != place]
    if kept:
        _write(label, kept)
    else:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path(label))


def _write(label: str, logins: List[Login]) -> None:
    items = [
        {
            "account": one.place.account,
            "home": one.place.home,
            "uid": one.place.uid,
            "gid": one.place.gid,
            "stop_timeout": one.stop_timeout,
            "directories": list(one.directories),
        }
        for one in logins
    ]
    files.write_file(path(label), json.dumps(items).encode("utf-8"), 0o600)


def _parsed(item: Dict[str, Any]) -> Login:
    place = plist_place.session(item["account"], item["home"], int(item["uid"]), int(item["gid"]))
    directories = tuple(each for each in item["directories"] if plist.is_runtime_directory(each))
    return Login(place, int(item["stop_timeout"]), directories)
