# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Accounts with the tools of shadow-utils, which every Linux distribution has."""

from __future__ import annotations

from typing import List

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal, Step

# The first id that login.defs gives to people, on every common distribution.
FIRST_PERSON = 1000
SHELL = "/usr/sbin/nologin"


def missing(what: str, program: str) -> Refusal:
    """What to say where a program is not there."""
    return Refusal(
        what,
        "no %s on this host" % program,
        "the tools of shadow-utils (Debian: package passwd)",
        "Install that package",
    )


def commands(step: Step) -> List[List[str]]:
    """What carries a step of ``accounts.plan`` out, one command after the other."""
    name, data = step.name, step.data
    if step.kind == "group":
        return [["groupadd", "--system", name] if step.action == "create" else ["groupdel", name]]
    if step.kind == "membership":
        if step.action == "add":
            return [["usermod", "--append", "--groups", data["group"], data["account"]]]
        return [["gpasswd", "--delete", data["account"], data["group"]]]
    if step.action == "remove":
        return [["userdel", name]]
    if step.action == "create":
        argv = ["useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent"]
        argv += ["--shell", data["shell"], "--gid", name, "--comment", data["comment"], name]
        return [argv]
    argv = ["usermod"]
    if "comment" in data:
        argv += ["--comment", data["comment"]]
    if "lock" in data:
        argv += ["--lock"]
    return [[*argv, name]]
