# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /usr/sbin/sysadminctl: makes and deletes accounts.

Everything is said on standard error, and the exit status is 0 also when nothing was done (an issue
says); so whoever calls it reads the account afterwards.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from .. import directory
from ..program import NotEmulatedError, is_root

_VALUES = ("-fullName", "-UID", "-GID", "-shell", "-home", "-password", "-hint")
_SWITCHES = ("-admin", "-roleAccount")
# sysadminctl(8): a role account's name starts with _, its UID is from 200 to 400.
_ROLE_UIDS = range(200, 401)


def main(argv: Sequence[str]) -> int:
    """-addUser NAME ..., -deleteUser NAME."""
    words = list(argv)
    if len(words) < 2 or words[0] not in ("-addUser", "-deleteUser"):
        raise NotEmulatedError(f"sysadminctl {' '.join(argv)}")
    name = words[1]
    options = _options(words[2:])
    if not is_root():
        _say("Must be run as root")
    elif words[0] == "-addUser":
        _add(name, options)
    elif name in directory.records(directory.USERS):
        directory.save(directory.USERS, name, None)
        _say(f"Deleting record for {name}")
    else:
        _say(f"Unable to find user record for {name}")
    return 0


def _options(words: list[str]) -> dict[str, str]:
    found = {}
    while words:
        word = words.pop(0)
        if word in _SWITCHES:
            found[word] = "yes"
        elif word in _VALUES and words:
            found[word] = words.pop(0)
        else:
            raise NotEmulatedError(f"sysadminctl: option {word}")
    return found


def _add(name: str, options: dict[str, str]) -> None:
    users = directory.records(directory.USERS)
    taken = {int(uid) for record in users.values() for uid in record.get("UniqueID", [])}
    role = "-roleAccount" in options
    if name in users:
        _say("User already exists. Please choose another name.")
        return
    uid = int(options.get("-UID") or max({500} | {number for number in taken if number < 1000}) + 1)
    if uid in taken:
        _say(f"UID {uid} is already in use.")
        return
    if role and (not name.startswith("_") or "-UID" not in options or uid not in _ROLE_UIDS):
        _say("Role accounts require name starting with _ and UID in 200-400 range.")
        return
    record = {
        "UniqueID": [str(uid)],
        "PrimaryGroupID": [options.get("-GID", "20")],
        "RealName": [options.get("-fullName", name)],
        "NFSHomeDirectory": [options.get("-home", "/var/empty" if role else f"/Users/{name}")],
        "UserShell": [options.get("-shell", "/usr/bin/false" if role else "/bin/zsh")],
    }
    directory.save(directory.USERS, name, record)
    _say("Creating user record...")
    if "-admin" in options:
        admins = directory.records(directory.GROUPS).get("admin", {"PrimaryGroupID": ["80"]})
        admins.setdefault("GroupMembership", []).append(name)
        directory.save(directory.GROUPS, "admin", admins)


def _say(text: str) -> None:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"{stamp}.000 sysadminctl[1:1] {text}", file=sys.stderr)
