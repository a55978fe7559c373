# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Property lists of launchd: pure functions from a daemon's entry to a dictionary, and to XML.

A plist is a dictionary (launchd.plist(5)), so it is made and compared as one: what plutil or
another hand has only written differently is the same. It is ours when it carries ``TETHER_DIGEST``
in its environment, which outlives such rewriting and which ``launchctl print`` shows of a loaded
label too; or our comment, which what was damaged may still hold.

launchd has no sandbox to be told of: ``after``, ``read_only_paths``, ``read_write_paths``,
``inaccessible_paths``, ``address_families``, ``devices``, ``executable_memory`` and ``seal`` change
nothing here, and docs/macs.md says so.
"""

from __future__ import annotations

import os
import plistlib
import re
from typing import Any, Dict, List, Optional, Sequence

from ansible_collections.tether.fleet.plugins.module_utils.daemon import base, log_file

MARK = "Written by the Ansible collection tether.fleet: changes made here are lost."
DIGEST = "TETHER_DIGEST"
# macOS has no /run, its root is sealed and /var/run is emptied at boot, before which a daemon's own
# account could not make its directory anew. So they stay.
RUNTIME_ROOT = "/var/lib/tether/run/"

# `default environment` of launchctl print, measured on macOS 26.5.1.
_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
_EMPTY = "/var/empty"
# Before its program a process empties its directories: what an earlier one left there, a socket
# above all, must not keep it from starting. launchd has nothing that root would do at each start.
_EMPTY_FIRST = (
    'while [ "$1" != -- ]; do /usr/bin/find "$1" -mindepth 1 -delete; shift; done; shift; exec "$@"'
)
_EMPTIES = ["/bin/sh", "-c", _EMPTY_FIRST, "sh"]
# What XML 1.0 cannot hold, not even as a reference.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")

Plist = Dict[str, Any]


def problems(entry: Dict[str, Any], others: Sequence[Dict[str, Any]] = ()) -> List[str]:
    """What of an entry launchd could not do as meant, and what a plist cannot hold.

    :param others: the entries of the same call
    """
    wrong: List[str] = []
    for key in ("argv", "reload_argv"):
        for index, word in enumerate(entry[key]):
            if _NOT_XML.search(word):
                wrong.append("%s[%d] holds a control character, which no plist can" % (key, index))
    for key, value in sorted(entry["environment"].items()):
        if _NOT_XML.search(base.environ_text(value)):
            wrong.append("environment %s holds a control character, which no plist can" % key)
    if entry.get("working_directory") and _NOT_XML.search(entry["working_directory"]):
        wrong.append("working_directory holds a control character, which no plist can")
    if entry["capabilities"] and entry.get("user"):
        wrong.append(
            "capabilities are Linux's: on macOS an account other than root cannot have %s; use a"
            " port from 1024 on, or run the daemon as root" % ", ".join(entry["capabilities"])
        )
    if entry["limits"].get("memory"):
        wrong.append(
            "limits.memory cannot be kept on macOS, where nothing limits a process's memory; leave"
            " it out and choose a model that fits"
        )
    if entry["session"] == "login":
        if not entry.get("user"):
            wrong.append("session=login needs user: whose login session it is")
        if entry.get("group") or entry["supplementary_groups"]:
            wrong.append("session=login takes the groups of its session; leave groups out")
    everything = [one for one in (entry, *others) if one["state"] != "absent"]
    outer = {item["path"] for one in everything for item in one["runtime_directories"]}
    for path in [item["path"] for item in entry["runtime_directories"]]:
        if any(path.startswith(other + "/") for other in outer):
            wrong.append(
                "runtime directory %r is in another one, which its account could swap" % path
            )
    return wrong


def wanted(entry: Dict[str, Any], home: Optional[str] = None) -> Plist:
    """The plist of a daemon, without its digest.

    :param home: of the account of a login session
    """
    log = log_file.path(entry["name"])
    limit = {"NumberOfFiles": entry["limits"]["open_files"]}
    result: Plist = {
        "Label": entry["name"],
        "ProgramArguments": _arguments(entry),
        "EnvironmentVariables": environment(entry, home),
        "RunAtLoad": True,
        # An integer, in decimal: launchd.plist(5), "property lists don't support octal".
        "Umask": int(entry["umask"], 8),
        "ExitTimeOut": entry["stop_timeout"],
        "SoftResourceLimits": limit,
        "HardResourceLimits": dict(limit),
        # One file, as it was said in one order.
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    if entry.get("working_directory"):
        result["WorkingDirectory"] = entry["working_directory"]
    if entry["session"] == "system":
        # launchd then sets all groups that the account is in (InitGroups, launchd.plist(5)).
        if entry.get("user"):
            result["UserName"] = entry["user"]
        if entry.get("group"):
            # macOS calls root's own group wheel.
            result["GroupName"] = "wheel" if entry["group"] == "root" else entry["group"]
    if entry["type"] == "exec":
        # Who answers requests must not be slowed down: an engine of type Background made 11 tokens
        # a second where an Interactive one made 87 (measured by an issue's author).
        result["ProcessType"] = "Interactive"
        # From start to start, and longer from crash to crash: launchd doubles it up to 1200 s, and
        # never gives up (read in the binary of macOS 26.5.1). It ignores 0.
        result["ThrottleInterval"] = max(1, entry["restart"]["delay"])
        if entry["restart"]["policy"] == "always":
            result["KeepAlive"] = True
        elif entry["restart"]["policy"] == "on-failure":
            result["KeepAlive"] = {"SuccessfulExit": False}
    return result


def environment(entry: Dict[str, Any], home: Optional[str] = None) -> Dict[str, str]:
    """What the process gets; HOME and PATH always, as launchd sets hardly any (issues say)."""
    given = {key: base.environ_text(value) for key, value in entry["environment"].items()}
    if not home:
        home = entry.get("working_directory") or (_EMPTY if entry.get("user") else "/var/root")
    return {"HOME": home, "PATH": _PATH, **given}


def _arguments(entry: Dict[str, Any]) -> List[str]:
    directories = [item["path"] for item in entry["runtime_directories"]]
    if not directories:
        return list(entry["argv"])
    return [*_EMPTIES, *directories, "--", *entry["argv"]]


def wanted_digest(entry: Dict[str, Any], plist: Plist) -> str:
    """What a running process must have been started from: its plist and what it read."""
    return base.digest_of(
        {
            "plist": plist,
            "version": entry.get("version"),
            "files": base.watched_digests(entry["restart_files"]),
        }
    )


def with_digest(plist: Plist, digest: str) -> Plist:
    return dict(plist, EnvironmentVariables=dict(plist["EnvironmentVariables"], **{DIGEST: digest}))


def runtime_directories(plist: Optional[Plist]) -> List[str]:
    """The runtime directories of a plist that ``wanted`` made."""
    arguments = (plist or {}).get("ProgramArguments")
    count = len(_EMPTIES)
    if not isinstance(arguments, list) or arguments[:count] != _EMPTIES or "--" not in arguments:
        return []
    paths = arguments[count : arguments.index("--", count)]
    return [path for path in paths if is_runtime_directory(path)]


def is_runtime_directory(path: Any) -> bool:
    """Whether it is strictly below the folder of them all, so that it may be removed."""
    return (
        isinstance(path, str) and os.path.normpath(path) == path and path.startswith(RUNTIME_ROOT)
    )


def text(plist: Plist) -> str:
    """A plist as XML, always the same for the same meaning."""
    lines = plistlib.dumps(plist, sort_keys=True).decode("utf-8").split("\n", 2)
    return "\n".join([*lines[:2], "<!-- %s -->" % MARK, *lines[2:]])


def parse(data: bytes) -> Optional[Plist]:
    """The dictionary in a plist, XML or binary; None where there is none to be read."""
    try:
        found = plistlib.loads(data)
    except Exception:  # noqa: BLE001 - plistlib raises a dozen kinds on what it cannot read
        return None
    return found if isinstance(found, dict) else None


def shown(data: bytes) -> str:
    """What a file says, for comparing and for a diff: its meaning, else its bytes."""
    found = parse(data)
    if found is not None:
        try:
            return text(found)
        # Of kinds that XML has no form for, or holding itself.
        except (TypeError, ValueError, OverflowError, RecursionError):
            pass
    return data.decode("utf-8", "replace")


def names_us(data: bytes) -> bool:
    """Whether an account's file bears our comment or key; it is not parsed.

    A binary plist may hold itself, or one thing a billion times over.
    """
    return MARK.encode("ascii") in data or DIGEST.encode("ascii") in data


def is_ours(data: bytes) -> bool:
    variables = (parse(data) or {}).get("EnvironmentVariables")
    if isinstance(variables, dict) and DIGEST in variables:
        return True
    return MARK.encode("ascii") in data
