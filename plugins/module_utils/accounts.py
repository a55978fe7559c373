# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""System accounts of the fleet on a host: no login, no home, no password.

Each account has a group of its own name. Of supplementary groups only the fleet's own
(``tether-...``) are taken away again: whoever added an account to another group had a reason.
"""

from __future__ import annotations

import grp
import os
import platform
import pwd
import re
import subprocess
from typing import Any, Dict, List, Optional

from ansible_collections.tether.fleet.plugins.module_utils import dscl, shadow_utils
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal, Step

PREFIX = "tether-"
COMMENT = "tether.fleet"
NO_LOGIN = ("/usr/sbin/nologin", "/sbin/nologin", "/bin/false", "/usr/bin/false")

ENTRY_SPEC: Dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "groups": {"type": "list", "elements": "str", "default": []},
    "comment": {"type": "str", "default": COMMENT},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}
ARGUMENT_SPEC: Dict[str, Any] = {
    "accounts": {"type": "list", "elements": "dict", "required": True, "options": ENTRY_SPEC},
}

_NAME = re.compile(r"tether-[a-z0-9_-]{1,25}")
# A new system is one file beside this one, and one more row here.
_SYSTEMS: Dict[str, Any] = {"Darwin": dscl}
_TOOLS = ("/usr/sbin", "/sbin", "/usr/bin", "/bin")


def observe(desired: Dict[str, Any]) -> Dict[str, Any]:
    """Read the account and group databases; changes nothing.

    :param desired: ``{"accounts": [entry, ...]}``, entries as in ``ENTRY_SPEC``
    :return: ``{"first_person": the first id that people have here, "shell": of accounts that
        nobody logs in to, "accounts": {name: None | {"uid", "gid", "shell", "comment", "locked"}},
        "groups": {name: gid}, "members": {name: [groups that list it]}}``
    """
    check_entries(desired["accounts"])
    names = [entry["name"] for entry in desired["accounts"]]
    locked = _locked(names)
    accounts: Dict[str, Optional[Dict[str, Any]]] = {}
    for name in names:
        try:
            item = pwd.getpwnam(name)
        except KeyError:
            accounts[name] = None
            continue
        accounts[name] = {
            "uid": item.pw_uid,
            "gid": item.pw_gid,
            "shell": item.pw_shell,
            "comment": item.pw_gecos,
            "locked": locked.get(name, True),
        }
    everything = grp.getgrall()
    return {
        "first_person": _here().FIRST_PERSON,
        "shell": _here().SHELL,
        "accounts": accounts,
        "groups": {group.gr_name: group.gr_gid for group in everything},
        "members": {
            name: sorted(group.gr_name for group in everything if name in group.gr_mem)
            for name in names
        },
    }


def check_entries(entries: List[Dict[str, Any]]) -> None:
    """Refuse names that are not the fleet's to make, and names given twice.

    :raises Refusal: naming the account
    """
    seen = set()
    for entry in entries:
        name = entry["name"]
        what = "account %s" % name
        if not _NAME.fullmatch(name):
            raise Refusal(
                what,
                "the name %r" % name,
                "tether- and then 1 to 25 of a-z, 0-9, - and _",
                "Name the account so: the fleet makes and removes no other accounts",
            )
        if name in seen:
            raise Refusal(what, "two entries", "one", "Merge them")
        seen.add(name)
        if any(mark in entry["comment"] for mark in ":\n,="):
            raise Refusal(
                what,
                "the comment %r" % entry["comment"],
                "no colon, comma, equals sign or line break",
                "Word the comment without it",
            )


def plan(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """What differs, as steps: groups, accounts, memberships, then removals.

    :raises Refusal: when a name belongs to somebody else, or a group does not exist
    """
    result = Plan()
    entries = desired["accounts"]
    present = [entry for entry in entries if entry["state"] == "present"]
    ours = {entry["name"] for entry in present}
    for entry in entries:
        _refuse_foreign(entry["name"], observed)
    for entry in present:
        for group in entry["groups"]:
            if group not in observed["groups"] and group not in ours:
                raise Refusal(
                    "account %s" % entry["name"],
                    "no group %s on this host" % group,
                    "it to exist, or an account of that name in the same call",
                    "Make the group, or take it out of the account's groups",
                )
    for entry in present:
        if entry["name"] not in observed["groups"]:
            result.steps.append(Step("create", "group", entry["name"]))
    for entry in present:
        _plan_account(entry, observed["accounts"][entry["name"]], observed["shell"], result)
    for entry in present:
        _plan_memberships(entry, observed["members"].get(entry["name"], []), result)
    for entry in entries:
        if entry["state"] == "absent":
            if observed["accounts"][entry["name"]] is not None:
                result.steps.append(Step("remove", "account", entry["name"]))
            if entry["name"] in observed["groups"]:
                result.steps.append(Step("remove", "group", entry["name"]))
    return result


def apply(plan: Plan) -> Dict[str, Any]:
    """Carry the steps out with the system's own tools."""
    tools = _here()
    for step in plan.steps:
        # Whoever removes an account may take the group of the same name along.
        if (step.action, step.kind) != ("remove", "group") or _has_group(step.name):
            for argv in tools.commands(step):
                _run(step, argv, tools)
    return {}


def _refuse_foreign(name: str, observed: Dict[str, Any]) -> None:
    found, first = observed["accounts"][name], observed["first_person"]
    gid = observed["groups"].get(name)
    wrong = ""
    if found is not None and found["uid"] >= first:
        wrong = "an account of that name with uid %d" % found["uid"]
    elif found is not None and found["uid"] == 0:
        wrong = "an account of that name with uid 0"
    elif found is not None and found["shell"] not in NO_LOGIN:
        wrong = "an account of that name with the login shell %s" % (found["shell"] or "/bin/sh")
    elif found is None and gid is not None and gid >= first:
        wrong = "a group of that name with gid %d" % gid
    if wrong:
        raise Refusal(
            "account %s" % name,
            wrong,
            "none, or a system account (id below %d) without a login shell" % first,
            "Find out whose it is; rename or remove it, or use another name",
        )


def _plan_account(
    entry: Dict[str, Any], found: Optional[Dict[str, Any]], shell: str, result: Plan
) -> None:
    name = entry["name"]
    if found is None:
        after = "comment: %s\nshell: %s\n" % (entry["comment"], shell)
        data = {"comment": entry["comment"], "shell": shell}
        result.steps.append(Step("create", "account", name, after=after, data=data))
        return
    changed: Dict[str, Any] = {}
    before: List[str] = []
    after_lines: List[str] = []
    if found["comment"] != entry["comment"]:
        changed["comment"] = entry["comment"]
        before.append("comment: %s" % found["comment"])
        after_lines.append("comment: %s" % entry["comment"])
    if not found["locked"]:
        changed["lock"] = True
        before.append("password: usable")
        after_lines.append("password: locked")
    if changed:
        result.steps.append(
            Step(
                "update",
                "account",
                name,
                before="\n".join(before),
                after="\n".join(after_lines),
                data=changed,
            )
        )


def _plan_memberships(entry: Dict[str, Any], found: List[str], result: Plan) -> None:
    name = entry["name"]
    wanted = set(entry["groups"])
    for group in sorted(wanted - set(found)):
        data = {"account": name, "group": group}
        result.steps.append(Step("add", "membership", "%s in %s" % (name, group), data=data))
    for group in found:
        if group.startswith(PREFIX) and group not in wanted:
            data = {"account": name, "group": group}
            result.steps.append(Step("remove", "membership", "%s in %s" % (name, group), data=data))


def _here() -> Any:
    return _SYSTEMS.get(platform.system(), shadow_utils)


def _run(step: Step, argv: List[str], tools: Any) -> None:
    for folder in _TOOLS:
        if os.path.exists(os.path.join(folder, argv[0])):
            argv = [os.path.join(folder, argv[0]), *argv[1:]]
            break
    else:
        raise tools.missing("%s %s" % (step.kind, step.name), argv[0])
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip() or "no message"
        raise Refusal(
            "%s %s %s" % (step.action, step.kind, step.name),
            "%s ended with status %d: %s" % (os.path.basename(argv[0]), done.returncode, said),
            "status 0",
            "Do what the message says (a process that still runs under the account, a lock that"
            " another run holds...), then run again",
        )


def _has_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def _locked(names: List[str]) -> Dict[str, bool]:
    """Which of the accounts have no usable password; empty when the file cannot be read."""
    locked = {}
    try:
        with open("/etc/shadow", encoding="utf-8", errors="replace") as stream:
            for line in stream:
                name, _colon, rest = line.partition(":")
                if name in names:
                    locked[name] = rest[:1] in ("!", "*")
    except OSError:
        pass
    return locked
