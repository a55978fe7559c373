# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The vocabulary of a supervised process, the same for every platform's supervisor.

A supervisor is a component beside this file, of one file or several, with ``observe``, ``plan``,
``apply`` and ``verify``; it takes the entries of ``ENTRY_SPEC`` and gives, for each daemon, the
facts of ``facts_of``.
"""

from __future__ import annotations

import grp
import hashlib
import json
import os
import platform
import re
from typing import Any, Callable, Dict, List, Mapping, Optional

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

# What a stranger could read in a unit, a plist or /proc must hold no secret.
_SECRET_KEY = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|API_?KEY|PRIVATE_KEY|CREDENTIALS?)$", re.I
)
_NAME = re.compile(r"tether-[A-Za-z0-9][A-Za-z0-9_.-]{0,200}")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Programs live under paths that the fleet or the OS chose; systemd would not put a doubled dollar
# of the program's own path back together.
_PROGRAM = re.compile(r"/[A-Za-z0-9._/+:~,-]+")
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_UNIT = re.compile(r"[A-Za-z0-9:_.@-]+\.(service|target|socket|mount|path|device)")
_CAPABILITY = re.compile(r"CAP_[A-Z_]+")
_FAMILY = re.compile(r"AF_[A-Z0-9]+")
_MODE = re.compile(r"[0-7]{3,4}")
_SIZE = re.compile(r"[0-9]+[KMGT]?")
_SHA256 = re.compile(r"[0-9a-f]{64}")

# What runtime directories hold is removed at each start: nothing else may be there.
RUNTIME_ROOT = "/run/tether/"

_WATCHED: Dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "sha256": {"type": "str"},
}
ENTRY_SPEC: Dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "description": {"type": "str"},
    "state": {"type": "str", "choices": ["started", "stopped", "absent"], "default": "started"},
    "type": {"type": "str", "choices": ["exec", "oneshot"], "default": "exec"},
    "argv": {"type": "list", "elements": "str", "default": []},
    "version": {"type": "str"},
    "environment": {"type": "dict", "default": {}},
    "user": {"type": "str"},
    "session": {"type": "str", "choices": ["system", "login"], "default": "system"},
    "group": {"type": "str"},
    "supplementary_groups": {"type": "list", "elements": "str", "default": []},
    "device_groups": {"type": "list", "elements": "str", "default": []},
    "working_directory": {"type": "path"},
    "umask": {"type": "str", "default": "0077"},
    "runtime_directories": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "path", "required": True},
            "owner": {"type": "str", "default": "root"},
            "group": {"type": "str", "default": "root"},
            "mode": {"type": "str", "default": "0755"},
            "seal": {"type": "str"},
        },
    },
    "read_only_paths": {"type": "list", "elements": "path", "default": []},
    "read_write_paths": {"type": "list", "elements": "path", "default": []},
    "inaccessible_paths": {"type": "list", "elements": "path", "default": []},
    "capabilities": {"type": "list", "elements": "str", "default": []},
    "address_families": {
        "type": "list",
        "elements": "str",
        "default": ["AF_UNIX", "AF_INET", "AF_INET6"],
    },
    "devices": {"type": "bool", "default": False},
    "executable_memory": {"type": "bool", "default": False},
    "restart": {
        "type": "dict",
        "apply_defaults": True,
        "options": {
            "policy": {
                "type": "str",
                "choices": ["always", "on-failure", "no"],
                "default": "always",
            },
            "delay": {"type": "int", "default": 2},
            "burst": {"type": "int", "default": 0},
            "interval": {"type": "int", "default": 0},
        },
    },
    "limits": {
        "type": "dict",
        "apply_defaults": True,
        "options": {
            "open_files": {"type": "int", "default": 65536},
            "memory": {"type": "str"},
            "locked_memory": {"type": "bool", "default": False},
        },
    },
    "restart_files": {"type": "list", "elements": "dict", "default": [], "options": _WATCHED},
    "reload_files": {"type": "list", "elements": "dict", "default": [], "options": _WATCHED},
    "reload_argv": {"type": "list", "elements": "str", "default": []},
    "after": {"type": "list", "elements": "str", "default": []},
    "health": {
        "type": "dict",
        "options": {
            "unix": {"type": "path"},
            "address": {"type": "str", "default": "127.0.0.1"},
            "port": {"type": "int"},
            "path": {"type": "str"},
            "status": {"type": "int", "default": 200},
            "headers": {"type": "dict", "default": {}},
            "tls": {"type": "bool", "default": False},
            "ca": {"type": "path"},
            "server_name": {"type": "str"},
            "timeout": {"type": "int", "default": 60},
        },
    },
    "stop_timeout": {"type": "int", "default": 30},
}
ARGUMENT_SPEC: Dict[str, Any] = {
    "daemons": {"type": "list", "elements": "dict", "required": True, "options": ENTRY_SPEC},
    "prune": {"type": "list", "elements": "str", "default": []},
}


def join_device_groups(entries: List[Dict[str, Any]]) -> None:
    """Add those of ``device_groups`` that this host has to ``supplementary_groups``.

    Which group owns a GPU's device differs between systems (video, render, none): a supervisor
    refuses a group that does not exist, and an engine without the right one finds no GPU. On a Mac
    no group does: the GPU is for every process.
    """
    if supervisor() == "launchd":
        return
    for entry in entries:
        for name in entry.get("device_groups", []):
            try:
                grp.getgrnam(name)
            except KeyError:
                continue
            if name not in entry["supplementary_groups"]:
                entry["supplementary_groups"] = entry["supplementary_groups"] + [name]


def supervisor() -> Optional[str]:
    """Which supervisor runs this host: ``systemd``, ``launchd`` or None."""
    if os.path.isdir("/run/systemd/system"):
        return "systemd"
    if platform.system() == "Darwin":
        return "launchd"
    return None


def choose(backends: Mapping[str, Any]) -> Any:
    """The back end for this host's supervisor.

    :param backends: by supervisor, as ``backends.BACKENDS``
    :raises Refusal: when there is none
    """
    found = supervisor()
    if found is None or found not in backends:
        raise Refusal(
            "supervised processes on this host",
            "no supervisor" if found is None else "the supervisor %s" % found,
            "one of %s, running" % ", ".join(sorted(backends)),
            "Use a host that boots with it (a container without an init system is none)",
        )
    return backends[found]


def check_entries(
    entries: List[Dict[str, Any]],
    runtime_root: str = RUNTIME_ROOT,
    more: Callable[[Dict[str, Any]], List[str]] = lambda _entry: [],
) -> None:
    """Refuse what no supervisor could run as meant; all mistakes at once.

    :param runtime_root: below it are runtime directories, with this supervisor
    :param more: what else is wrong with an entry for this supervisor
    :raises Refusal: naming each daemon and key
    """
    wrong: List[str] = []
    seen = set()
    for entry in entries:
        name = entry["name"]
        if name in seen:
            wrong.append("%s: listed twice" % name)
        seen.add(name)
        problems = _problems(entry, runtime_root)
        if entry["state"] != "absent":
            problems += more(entry)
        wrong += ["%s: %s" % (name, problem) for problem in problems]
    if wrong:
        raise Refusal(
            "daemons",
            "%d mistake%s: %s" % (len(wrong), "" if len(wrong) == 1 else "s", "; ".join(wrong)),
            "entries as the documentation of tether.fleet.daemon describes",
            "Mend what is named; nothing was changed",
        )


def _problems(entry: Dict[str, Any], runtime_root: str) -> List[str]:
    wrong: List[str] = []
    if not _NAME.fullmatch(entry["name"]):
        wrong.append("name must be tether- and then letters, digits, dots, - and _")
    if entry["state"] == "absent":
        return wrong
    for key in ("argv", "reload_argv"):
        argv = entry[key]
        if not argv:
            if key == "argv":
                wrong.append("argv is missing")
            continue
        if not _PROGRAM.fullmatch(argv[0]) or _climbs(argv[0]):
            wrong.append("%s[0] %r must be an absolute path of plain characters" % (key, argv[0]))
        for index, word in enumerate(argv):
            wrong += ["%s[%d] %s" % (key, index, p) for p in _text_problems(word)]
    for key, value in sorted(entry["environment"].items()):
        if not _KEY.fullmatch(str(key)) or str(key) == "TETHER_DIGEST":
            wrong.append("environment key %r is not a name a process can be given" % key)
        if _SECRET_KEY.search(str(key)):
            wrong.append(
                "environment key %s looks like a secret, and every account of the host can read a"
                " unit's environment; give the process a file of mode 0400 instead" % key
            )
        if isinstance(value, (dict, list)):
            wrong.append("environment %s must be text" % key)
        else:
            wrong += ["environment %s %s" % (key, p) for p in _text_problems(environ_text(value))]
    for key in ("user", "group"):
        if entry.get(key) is not None and not _ACCOUNT.fullmatch(entry[key]):
            wrong.append("%s %r is not the name of an account" % (key, entry[key]))
    for group in entry["supplementary_groups"] + entry.get("device_groups", []):
        if not _ACCOUNT.fullmatch(group):
            wrong.append("supplementary group %r is not the name of a group" % group)
    wrong += _path_problems(entry, runtime_root)
    for unit in entry["after"]:
        if not _UNIT.fullmatch(unit):
            wrong.append("after %r is not the name of a unit" % unit)
    for item in entry["capabilities"]:
        if not _CAPABILITY.fullmatch(item):
            wrong.append("capability %r is not of the form CAP_NAME" % item)
    for item in entry["address_families"]:
        if not _FAMILY.fullmatch(item):
            wrong.append("address family %r is not of the form AF_NAME" % item)
    if not _MODE.fullmatch(entry["umask"]):
        wrong.append("umask %r is not octal" % entry["umask"])
    if entry.get("description") is not None:
        wrong += ["description %s" % p for p in _text_problems(entry["description"])]
    memory = entry["limits"].get("memory")
    if memory is not None and not _SIZE.fullmatch(memory):
        wrong.append("limits.memory %r is not a number with K, M, G or T" % memory)
    restart = entry["restart"]
    numbers = [("restart.%s" % key, restart[key]) for key in ("delay", "burst", "interval")]
    numbers.append(("stop_timeout", entry["stop_timeout"]))
    numbers.append(("limits.open_files", entry["limits"]["open_files"]))
    wrong += ["%s %d is negative" % item for item in numbers if item[1] < 0]
    if bool(entry["reload_files"]) and not entry["reload_argv"]:
        wrong.append("reload_files needs reload_argv")
    wrong += _health_problems(entry)
    return wrong


def _path_problems(entry: Dict[str, Any], runtime_root: str) -> List[str]:
    wrong: List[str] = []
    paths = [("working_directory", entry.get("working_directory"))]
    for key in ("read_only_paths", "read_write_paths", "inaccessible_paths"):
        paths += [(key, path) for path in entry[key]]
    for key in ("restart_files", "reload_files"):
        paths += [(key, item["path"]) for item in entry[key]]
        for item in entry[key]:
            if item.get("sha256") is not None and not _SHA256.fullmatch(item["sha256"]):
                wrong.append("%s sha256 %r is not 64 hex digits" % (key, item["sha256"]))
    for key, path in paths:
        if path is not None:
            if not os.path.isabs(path) or _climbs(path):
                wrong.append("%s %r is not an absolute path without .." % (key, path))
            wrong += ["%s %s" % (key, p) for p in _text_problems(path)]
    for item in entry["runtime_directories"]:
        path = item["path"]
        plain = _PROGRAM.fullmatch(path) and os.path.normpath(path) == path
        if not plain or not path.startswith(runtime_root) or _climbs(path):
            wrong.append("runtime directory %r is not a path below %s" % (path, runtime_root))
        if item.get("seal") and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", item["seal"]):
            wrong.append("seal %r of a runtime directory is not a plain file name" % item["seal"])
        if not _MODE.fullmatch(item["mode"]):
            wrong.append("runtime directory mode %r is not octal" % item["mode"])
        for key in ("owner", "group"):
            if not _ACCOUNT.fullmatch(item[key]):
                wrong.append("runtime directory %s %r is not a name" % (key, item[key]))
    return wrong


def _health_problems(entry: Dict[str, Any]) -> List[str]:
    health = entry.get("health")
    if not health:
        return []
    wrong = []
    if (health.get("unix") is None) == (health.get("port") is None):
        wrong.append("health needs either unix or port")
    if health.get("port") is not None and not 0 < health["port"] < 65536:
        wrong.append("health.port %d is no port" % health["port"])
    if health.get("path") is not None and not re.fullmatch(r"/[!-~]*", health["path"]):
        wrong.append("health.path %r must start with / and hold no blanks" % health["path"])
    if health["timeout"] < 1:
        wrong.append("health.timeout must be at least 1 second")
    if entry["type"] == "oneshot":
        wrong.append("health makes no sense with type=oneshot, which ends")
    return wrong


def _climbs(path: str) -> bool:
    return ".." in path.split("/")


def _text_problems(text: str) -> List[str]:
    if "\n" in text or "\r" in text or "\0" in text:
        return ["holds a line break or a null character"]
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return ["is not valid text"]
    return []


def environ_text(value: Any) -> str:
    """A value as a process gets it; YAML's booleans and numbers as people write them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def watched_digests(items: List[Dict[str, Any]]) -> Dict[str, str]:
    """``{path: sha256}`` of watched files: the given digest, else what is on disk now."""
    return {item["path"]: item.get("sha256") or file_digest(item["path"]) for item in items}


def group_id(name: str) -> int:
    """The number of a group. Root's own is 0 everywhere, whatever its name (wheel on macOS).

    :raises KeyError: when there is none
    """
    return 0 if name == "root" else grp.getgrnam(name).gr_gid


def file_digest(path: str) -> str:
    """sha256 of a file's content; ``missing`` when there is none."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                digest.update(block)
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    return digest.hexdigest()


def digest_of(value: Any) -> str:
    """sha256 of a JSON-able value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode("utf-8")).hexdigest()


def facts_of(unit: str, action: Optional[str], healthy: Optional[bool] = None) -> Dict[str, Any]:
    """What the module says of one daemon.

    :param action: what its process needs: start, restart, reload, stop, remove or None
    :param healthy: None where nobody looked (check mode, stopped, absent)
    """
    return {
        "unit": unit,
        "changed": False,
        "action": action,
        "healthy": healthy,
        "failed": False,
        "reason": "",
        "last_lines": [],
    }
