# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Supervised processes under systemd: hardened units, restarted only when it matters.

What runs carries the digest of what it was started from in its environment (``TETHER_DIGEST``), so
a run that was killed between writing a unit and restarting it is finished by the next one: what
counts is the process, not the file. What was loaded later by a reload is recorded beside the
process' invocation in /run.
"""

from __future__ import annotations

import glob
import grp
import json
import os
import pwd
import re
import subprocess
import time
from typing import Any, Dict, Iterable, List, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils import files
from ansible_collections.tether.fleet.plugins.module_utils.daemon import base, health
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal, Step

UNIT_DIR = "/etc/systemd/system"
RECORD_DIR = "/run/tether/loaded"
MARK = "# Written by the Ansible collection tether.fleet: changes made here are lost."
_POLL = 0.1
# Without a health probe a process that is still there after this long counts as started.
_SETTLE = 1.0
_PROPERTIES = (
    "Id LoadState ActiveState SubState MainPID InvocationID UnitFileState FragmentPath"
    " DropInPaths NeedDaemonReload NRestarts Result ExecMainCode ExecMainStatus"
    " ExecMainStartTimestampMonotonic Job"
).split()


# -- the unit ------------------------------------------------------------------------------------


def quote(text: str) -> str:
    """One word of a unit file: a quoted string in which ``%`` starts no specifier.

    systemd unquotes as C does (systemd.syntax(7)); control characters are written as escapes.
    """
    result = []
    for char in text:
        if char in '"\\':
            result.append("\\" + char)
        elif char == "%":
            result.append("%%")
        elif ord(char) < 0x20 or ord(char) == 0x7F:
            result.append("\\x%02x" % ord(char))
        else:
            result.append(char)
    return '"%s"' % "".join(result)


def quote_argument(text: str) -> str:
    """One word of a command line, where ``$`` would start a variable (systemd.service(5))."""
    return quote(text.replace("$", "$$"))


def command(argv: Iterable[str]) -> str:
    """A command line of a unit. The program itself is plain (``base.check_entries``)."""
    program, *rest = argv
    return " ".join([program] + [quote_argument(word) for word in rest])


def unit_name(daemon: str) -> str:
    return daemon + ".service"


def render(entry: Dict[str, Any]) -> str:
    """The unit of a daemon, without its digest: a pure function of the entry."""
    restart, limits = entry["restart"], entry["limits"]
    head = [
        MARK,
        "[Unit]",
        "Description=%s" % (entry.get("description") or entry["name"]).replace("%", "%%"),
        "After=%s" % " ".join(["network.target"] + entry["after"]),
        # 0: a host comes back whenever its trouble ends, without anybody's help.
        "StartLimitIntervalSec=%d" % restart["interval"],
    ]
    if restart["interval"]:
        head.append("StartLimitBurst=%d" % restart["burst"])
    return "\n".join(head + ["", *_service(entry), "", "[Install]", "WantedBy=multi-user.target", ""])


def _service(entry: Dict[str, Any]) -> List[str]:
    restart, limits = entry["restart"], entry["limits"]
    lines = ["[Service]", "Type=%s" % entry["type"]]
    if entry["type"] == "oneshot":
        lines.append("RemainAfterExit=yes")
    lines += _runtime_directories(entry)
    lines.append("ExecStart=%s" % command(entry["argv"]))
    if entry["reload_argv"]:
        lines.append("ExecReload=%s" % command(entry["reload_argv"]))
    for key, value in sorted(entry["environment"].items()):
        lines.append("Environment=%s" % quote("%s=%s" % (key, base.environ_text(value))))
    if entry.get("user"):
        lines.append("User=%s" % entry["user"])
    if entry.get("group"):
        lines.append("Group=%s" % entry["group"])
    if entry["supplementary_groups"]:
        lines.append("SupplementaryGroups=%s" % " ".join(entry["supplementary_groups"]))
    if entry.get("working_directory"):
        lines.append("WorkingDirectory=%s" % entry["working_directory"].replace("%", "%%"))
    if entry["type"] == "exec":
        lines += ["Restart=%s" % restart["policy"], "RestartSec=%d" % restart["delay"]]
    lines += [
        "TimeoutStopSec=%d" % entry["stop_timeout"],
        "KillMode=mixed",
        "UMask=%s" % entry["umask"],
        "LimitNOFILE=%d" % limits["open_files"],
    ]
    if limits.get("memory"):
        lines.append("MemoryMax=%s" % limits["memory"])
    if limits.get("locked_memory"):
        lines.append("LimitMEMLOCK=infinity")
    return lines + _hardening(entry)


def _runtime_directories(entry: Dict[str, Any]) -> List[str]:
    """Root makes them afresh at each start: nothing stale and nothing of a stranger is in them."""
    lines = []
    parents: List[str] = []
    for item in entry["runtime_directories"]:
        folder = os.path.dirname(item["path"])
        while folder != "/run" and folder not in parents:
            parents.append(folder)
            folder = os.path.dirname(folder)
    own = {item["path"] for item in entry["runtime_directories"]}
    missing = sorted(set(parents) - own)
    if missing:
        lines.append("ExecStartPre=+/usr/bin/install -d -m 0755 %s" % " ".join(missing))
    for item in entry["runtime_directories"]:
        lines.append("ExecStartPre=+/bin/rm -rf %s" % item["path"])
        lines.append(
            "ExecStartPre=+/usr/bin/install -d -o %s -g %s -m %s %s"
            % (item["owner"], item["group"], item["mode"], item["path"])
        )
    return lines


def _hardening(entry: Dict[str, Any]) -> List[str]:
    capabilities = " ".join(entry["capabilities"])
    lines = [
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=%s" % capabilities,
        "AmbientCapabilities=%s" % capabilities,
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "PrivateTmp=yes",
        "ProtectKernelTunables=yes",
        "ProtectKernelModules=yes",
        "ProtectKernelLogs=yes",
        "ProtectControlGroups=yes",
        "ProtectClock=yes",
        "ProtectHostname=yes",
        "ProtectProc=invisible",
        "RestrictAddressFamilies=%s" % " ".join(entry["address_families"]),
        "RestrictNamespaces=yes",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "LockPersonality=yes",
        "SystemCallArchitectures=native",
        "SystemCallFilter=@system-service",
        "SystemCallErrorNumber=EPERM",
    ]
    if entry["devices"]:
        # GPUs: NVIDIA's own devices and kernel, AMD's compute device, and DRM for both.
        lines += [
            "DevicePolicy=closed",
            "DeviceAllow=char-nvidia* rw",
            "DeviceAllow=char-drm rw",
            "DeviceAllow=char-kfd rw",
        ]
    else:
        lines.append("PrivateDevices=yes")
    if not entry["executable_memory"]:
        lines.append("MemoryDenyWriteExecute=yes")
    made = [item["path"] for item in entry["runtime_directories"]]
    for key, paths in (
        ("ReadOnlyPaths", entry["read_only_paths"]),
        ("ReadWritePaths", entry["read_write_paths"] + made),
        ("InaccessiblePaths", entry["inaccessible_paths"]),
    ):
        lines += ["%s=%s" % (key, quote(path)) for path in paths]
    return lines


def wanted_digest(entry: Dict[str, Any]) -> str:
    """What a running process must have been started from: its service and what it read."""
    return base.digest_of(
        {
            "service": _service(entry),
            "version": entry.get("version"),
            "files": base.watched_digests(entry["restart_files"]),
        }
    )


def reload_digest(entry: Dict[str, Any]) -> Optional[str]:
    """What a running process must have loaded since; None when it has nothing to reload."""
    if not entry["reload_files"]:
        return None
    return base.digest_of(base.watched_digests(entry["reload_files"]))


def unit_text(entry: Dict[str, Any], digest: str) -> str:
    return render(entry).replace(
        "\nType=", '\nEnvironment="TETHER_DIGEST=%s"\nType=' % digest, 1
    )


# -- observe -------------------------------------------------------------------------------------


def observe(desired: Dict[str, Any]) -> Dict[str, Any]:
    """Read the units, the processes and the watched files; changes nothing.

    :param desired: ``{"daemons": [entry, ...], "prune": [name prefix, ...]}``
    :return: ``{"units": {daemon: {...}}, "digests": {daemon: (start, reload)}, "prune": [names]}``
    """
    entries = desired["daemons"]
    base.check_entries(entries)
    listed = {entry["name"] for entry in entries}
    prune = [name for name in _ours(desired.get("prune") or []) if name not in listed]
    names = [entry["name"] for entry in entries] + prune
    shown = show([unit_name(name) for name in names])
    units = {}
    for name in names:
        unit = unit_name(name)
        path = os.path.join(UNIT_DIR, unit)
        item = dict(shown.get(unit, {}))
        item["text"] = _text(path)
        item["mode_ok"] = _mode_ok(path)
        item["masked"] = os.path.islink(path) and os.readlink(path) == "/dev/null"
        item["digest"] = _running_digest(item)
        item["record"] = _record(unit)
        item["started"] = _started(item)
        units[name] = item
    digests, newest = {}, {}
    for entry in entries:
        if entry["state"] != "absent":
            digests[entry["name"]] = (wanted_digest(entry), reload_digest(entry))
            newest[entry["name"]] = _newest(entry["reload_files"])
    return {"units": units, "digests": digests, "newest": newest, "prune": prune}


def show(units: List[str]) -> Dict[str, Dict[str, str]]:
    """``systemctl show`` of several units: ``{unit: {property: text}}``."""
    if not units:
        return {}
    done = _systemctl(["show", "--property=" + ",".join(_PROPERTIES), "--", *units])
    if done.returncode != 0:
        raise Refusal(
            "systemd",
            "systemctl show failed: %s" % _said(done),
            "an answer",
            "Look at the host's system bus (systemctl status)",
        )
    result = {}
    for block in done.stdout.split("\n\n"):
        item = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in item:
            result[item["Id"]] = item
    return result


def _ours(prefixes: List[str]) -> List[str]:
    names = []
    for prefix in prefixes:
        for path in sorted(glob.glob(os.path.join(UNIT_DIR, glob.escape(prefix) + "*.service"))):
            if (_text(path) or "").startswith(MARK):
                names.append(os.path.basename(path)[: -len(".service")])
    return names


def _text(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _mode_ok(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return (status.st_mode & 0o777, status.st_uid, status.st_gid) == (0o644, 0, 0)


def _running_digest(item: Dict[str, str]) -> Optional[str]:
    """The digest in the environment that the running process was started with."""
    pid = item.get("MainPID", "0")
    if pid == "0":
        return None
    try:
        with open("/proc/%s/environ" % pid, "rb") as stream:
            for word in stream.read().split(b"\0"):
                if word.startswith(b"TETHER_DIGEST="):
                    return word.split(b"=", 1)[1].decode("ascii", "replace")
    except OSError:
        pass
    return None


def _record_path(unit: str) -> str:
    return os.path.join(RECORD_DIR, unit + ".json")


def _record(unit: str) -> Dict[str, Any]:
    try:
        with open(_record_path(unit), encoding="utf-8") as stream:
            record = json.load(stream)
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _started(item: Dict[str, str]) -> Optional[float]:
    """When the main process started, as seconds since the epoch."""
    text = item.get("ExecMainStartTimestampMonotonic", "0")
    if not text.isdigit() or text == "0":
        return None
    return time.time() - (time.clock_gettime(time.CLOCK_MONOTONIC) - int(text) / 1e6)


def _newest(items: List[Dict[str, Any]]) -> Optional[float]:
    """The newest change of watched files; infinity when one is not (yet) what is expected."""
    newest: Optional[float] = None
    for item in items:
        if item.get("sha256") and base.file_digest(item["path"]) != item["sha256"]:
            return float("inf")
        try:
            # ctime: a rename of an older file into place counts as a change of now.
            changed = os.stat(item["path"]).st_ctime
        except OSError:
            return float("inf")
        newest = changed if newest is None else max(newest, changed)
    return newest


# -- plan ----------------------------------------------------------------------------------------


def plan(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """Units first, then processes; removals last.

    :raises Refusal: when a unit of that name is somebody else's
    """
    result = Plan(facts={"daemons": {}})
    units: List[Step] = []
    processes: List[Step] = []
    removals: List[Step] = []
    for name in [entry["name"] for entry in desired["daemons"]] + observed["prune"]:
        _refuse_foreign(name, observed["units"][name])
    for entry in desired["daemons"]:
        name = entry["name"]
        item = observed["units"][name]
        action: Optional[str] = None
        if entry["state"] == "absent":
            removals += _plan_removal(name, item)
            action = "remove" if removals and removals[-1].data["daemon"] == name else None
            changed = action is not None
        else:
            start, loaded = observed["digests"][name]
            steps = _plan_unit(entry, item, unit_text(entry, start))
            units += steps
            step = _plan_process(entry, item, start, loaded, observed["newest"][name])
            if step is not None:
                processes.append(step)
                action = step.action
            changed = bool(steps) or step is not None
        result.facts["daemons"][name] = base.facts_of(unit_name(name), action)
        result.facts["daemons"][name]["changed"] = changed
        drop_ins = item.get("DropInPaths", "")
        if drop_ins and entry["state"] != "absent":
            result.facts["daemons"][name]["drop_ins"] = drop_ins.split()
    for name in observed["prune"]:
        removals += _plan_removal(name, observed["units"][name])
        result.facts["daemons"][name] = base.facts_of(unit_name(name), "remove")
        result.facts["daemons"][name]["changed"] = True
    result.steps = units + processes + removals
    # For verify, which looks at what should run also when nothing changes.
    result.facts["daemons"] = dict(result.facts["daemons"])
    for step in result.steps:
        step.data["entries"] = desired["daemons"]
    _WATCH[:] = [dict(entry) for entry in desired["daemons"]]
    return result
