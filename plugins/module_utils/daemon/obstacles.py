# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Why a process could not be started as meant, found before a running one is ended for it."""

from __future__ import annotations

import os
import pwd
from typing import Any, Callable, Dict, List

from ansible_collections.tether.fleet.plugins.module_utils.daemon import base


def obstacle(entry: Dict[str, Any], runtime_root: str) -> str:
    """What is in the way whatever the supervisor, or ""; a running process is then left alone.

    :param runtime_root: below it are directories that are still to be made
    """
    program = entry["argv"][0]
    if not os.path.isfile(program):
        return "there is no program %s; install its artifact first" % program
    if not os.access(program, os.X_OK):
        return "the program %s is not executable" % program
    users = [entry.get("user")] + [item["owner"] for item in entry["runtime_directories"]]
    groups = [entry.get("group"), *entry["supplementary_groups"]]
    groups += [item["group"] for item in entry["runtime_directories"]]
    for user in users:
        if user and not _known(pwd.getpwnam, user):
            return "there is no account %s; run the role baseline first" % user
    for group in groups:
        if group and not _known(base.group_id, group):
            return "there is no group %s; run the role baseline first" % group
    for item in entry["restart_files"] + entry["reload_files"]:
        found = base.file_digest(item["path"])
        if item.get("sha256") and item["sha256"] != found:
            return "%s has sha256 %s where %s is expected" % (item["path"], found, item["sha256"])
    folder = entry.get("working_directory")
    if folder and not folder.startswith(runtime_root) and not os.path.isdir(folder):
        return "there is no working directory %s" % folder
    return ""


def missing_path(entry: Dict[str, Any]) -> str:
    """Of the paths that a sandbox names, one that is not there, or ""."""
    for path in entry["read_only_paths"] + entry["read_write_paths"] + entry["inaccessible_paths"]:
        if not os.path.exists(path):
            return "there is no %s, which its unit names" % path
    return ""


def not_in(account: pwd.struct_passwd, groups: List[str]) -> str:
    """Of these groups, one that the account is not in, or ""."""
    own = os.getgrouplist(account.pw_name, account.pw_gid)
    return next((name for name in groups if base.group_id(name) not in own), "")


def _known(look: Callable[[str], Any], name: str) -> bool:
    try:
        look(name)
    except KeyError:
        return False
    return True
