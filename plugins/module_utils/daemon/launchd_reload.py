# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs the command that makes a process read its files again, as systemd's ExecReload does.

As the process's account, with its environment, folder and umask. The module's own process is in the
system domain as the daemon is, so neither sudo nor launchctl asuser is needed: a change of user in
the child is all.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from typing import Any, Dict

from ansible_collections.tether.fleet.plugins.module_utils.daemon import base, commands, plist

_PATIENCE = 120
# setgroups(2) takes no more on macOS (NGROUPS_MAX).
_MOST_GROUPS = 16


def run(entry: Dict[str, Any], home: str) -> str:
    """Run it; returns what went wrong, or "".

    :param home: of the account of a login session, else ""
    """
    argv = entry["reload_argv"]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            env=plist.environment(entry, home or None),
            cwd=entry.get("working_directory") or "/",
            umask=int(entry["umask"], 8),
            check=False,
            **_account(entry),
        )
    except subprocess.TimeoutExpired:
        done = subprocess.CompletedProcess(argv, 124, "", "no answer within %d s" % _PATIENCE)
    except OSError as error:
        done = subprocess.CompletedProcess(argv, 126, "", "%s: %s" % (argv[0], error.strerror))
    if done.returncode == 0:
        return ""
    return (
        "it did not take its new configuration (status %d: %s); it still runs with the old one"
        % (
            done.returncode,
            commands.said(done),
        )
    )


def _account(entry: Dict[str, Any]) -> Dict[str, Any]:
    """Whom subprocess is to become; launchd too gives all groups that an account is in."""
    if not entry.get("user"):
        return {}
    item = pwd.getpwnam(entry["user"])
    groups = os.getgrouplist(item.pw_name, item.pw_gid)[:_MOST_GROUPS]
    group = base.group_id(entry["group"]) if entry.get("group") else item.pw_gid
    return {"user": item.pw_uid, "group": group, "extra_groups": groups}
