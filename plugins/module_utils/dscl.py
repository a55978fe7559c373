# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Accounts of a Mac, with dscl(1) in its local directory. Never run on a real Mac.

sysadminctl would give them names that begin with ``_`` (its role accounts) or a home and a shell,
and it ends with status 0 when it did nothing. A record without a password cannot log in; ``*`` says
so. What has an id below 500 is not shown at the login window, ``IsHidden`` says it once more.
"""

from __future__ import annotations

import grp
import pwd
from typing import List, Set

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal, Step

FIRST_PERSON = 501
SHELL = "/usr/bin/false"
# Apple's own services have ids up to 400, people from 501 on.
IDS = range(401, 500)
_NODE = "/Local/Default"
_HOME = "/var/empty"


def missing(what: str, program: str) -> Refusal:
    """What to say where a program is not there."""
    return Refusal(
        what,
        "no %s on this Mac" % program,
        "it, as macOS ships it",
        "Find out what removed it, and bring it back",
    )


def commands(step: Step) -> List[List[str]]:
    """What carries a step of ``accounts.plan`` out, one command after the other."""
    if step.kind == "membership":
        verb = "append" if step.action == "add" else "delete"
        group = "/Groups/%s" % step.data["group"]
        return [_dscl(verb, group, "GroupMembership", step.data["account"])]
    record = "/%s/%s" % ("Groups" if step.kind == "group" else "Users", step.name)
    if step.action == "remove":
        return [_dscl("delete", record)]
    if step.kind == "group":
        gid = str(free_id(_taken()))
        return [_dscl("create", record, "PrimaryGroupID", gid)]
    found = []
    if step.action == "create":
        gid = str(grp.getgrnam(step.name).gr_gid)
        uid = gid if int(gid) not in {item.pw_uid for item in pwd.getpwall()} else ""
        found = [
            ("UserShell", step.data["shell"]),
            ("NFSHomeDirectory", _HOME),
            ("IsHidden", "1"),
            ("Password", "*"),
            ("PrimaryGroupID", gid),
            # The last one that an account needs: before it nobody sees half of one.
            ("UniqueID", uid or str(free_id(_taken()))),
        ]
    if "comment" in step.data:
        found.insert(0, ("RealName", step.data["comment"]))
    return [_dscl("create", record, key, value) for key, value in found]


def free_id(taken: Set[int]) -> int:
    """The first id that no account and no group has.

    :raises Refusal: when all are taken
    """
    for number in IDS:
        if number not in taken:
            return number
    raise Refusal(
        "accounts",
        "every id from %d to %d in use" % (IDS[0], IDS[-1]),
        "one that no account and no group has",
        "Remove accounts or groups of that range that nothing needs (dscl . -list /Users UniqueID)",
    )


def _taken() -> Set[int]:
    return {item.pw_uid for item in pwd.getpwall()} | {item.gr_gid for item in grp.getgrall()}


def _dscl(verb: str, path: str, *words: str) -> List[str]:
    return ["dscl", _NODE, "-%s" % verb, path, *words]
