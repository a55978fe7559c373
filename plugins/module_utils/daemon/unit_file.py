# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hardened systemd units: pure functions from a daemon's entry to text.

Nothing in an argument or a value survives as a specifier, a variable or a directive: words are
quoted as systemd.syntax(7) says, and what cannot be quoted is refused by ``base.check_entries``.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterable, List

from ansible_collections.tether.fleet.plugins.module_utils.daemon import base

MARK = "# Written by the Ansible collection tether.fleet: changes made here are lost."


def problems(entry: Dict[str, Any]) -> List[str]:
    """What of an entry systemd has no counterpart for."""
    wrong: List[str] = []
    if entry["session"] == "login":
        wrong.append("session=login is for macOS: here every daemon is the system's")
    return wrong


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
    restart = entry["restart"]
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
    tail = ["", "[Install]", "WantedBy=multi-user.target", ""]
    return "\n".join([*head, "", *_service(entry), *tail])


def _service(entry: Dict[str, Any]) -> List[str]:
    restart, limits = entry["restart"], entry["limits"]
    lines = ["[Service]", "Type=%s" % entry["type"]]
    if entry["type"] == "oneshot":
        lines.append("RemainAfterExit=yes")
    lines += _runtime_directories(entry)
    lines.append("ExecStart=%s" % command(entry["argv"]))
    lines += _seals(entry)
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
        folder = entry["working_directory"]
        # A runtime directory is still to be made when the first command starts in it.
        dash = "-" if folder.startswith(base.RUNTIME_ROOT) else ""
        lines.append("WorkingDirectory=%s%s" % (dash, folder.replace("%", "%%")))
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
    """Root makes them afresh at each start: nothing stale and nothing of a stranger is in them.

    They are emptied and not removed: ReadWritePaths makes each a mount point for these commands
    too (systemd 252), and those cannot be removed. While it is emptied it is root's alone.
    """
    made = [item["path"] for item in entry["runtime_directories"]]
    parents = set()
    for path in made:
        folder = os.path.dirname(path)
        while folder != "/run":
            parents.add(folder)
            folder = os.path.dirname(folder)
    lines = []
    missing = sorted(parents - set(made))
    if missing:
        lines.append("ExecStartPre=+/usr/bin/install -d -m 0755 %s" % " ".join(missing))
    for item in entry["runtime_directories"]:
        lines += [
            "ExecStartPre=+/usr/bin/install -d -o root -g root -m 0700 %s" % item["path"],
            "ExecStartPre=+/usr/bin/find %s -mindepth 1 -delete" % item["path"],
            "ExecStartPre=+/usr/bin/install -d -o %s -g %s -m %s %s"
            % (item["owner"], item["group"], item["mode"], item["path"]),
        ]
    return lines


def _seals(entry: Dict[str, Any]) -> List[str]:
    """Root takes a directory over once its socket is there.

    Whoever connects follows links with its own rights. A process that could still rename what is in
    its directory could lead the ingress to another tenant's engine.
    """
    lines = []
    for item in entry["runtime_directories"]:
        if not item.get("seal"):
            continue
        folder, socket = item["path"], "%s/%s" % (item["path"], item["seal"])
        script = (
            "while [ ! -S {1} ]; do sleep 0.1; done; "
            "chown root {0} && chmod 0710 {0} && [ ! -L {1} ] && [ -S {1} ]"
        ).format(folder, socket)
        lines.append("ExecStartPost=+/bin/sh -c %s" % quote(script))
        health = entry.get("health") or {}
        lines.append("TimeoutStartSec=%d" % max(90, health.get("timeout", 90)))
    return lines


def emptied_directories(text: str) -> List[str]:
    """The runtime directories in the text of a unit that ``render`` made."""
    found = re.findall(r"(?m)^ExecStartPre=\+/usr/bin/find (\S+) -mindepth 1 -delete$", text)
    return [
        path
        for path in found
        if path.startswith(base.RUNTIME_ROOT) and os.path.normpath(path) == path
    ]


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
    for key, paths in (
        ("ReadOnlyPaths", entry["read_only_paths"]),
        ("ReadWritePaths", entry["read_write_paths"]),
        ("InaccessiblePaths", entry["inaccessible_paths"]),
    ):
        lines += ["%s=%s" % (key, quote(path)) for path in paths]
    # Each command gets a mount namespace of its own, also ExecStartPre=+, for which these are still
    # to be made (systemd 252): the dash lets it start without them.
    for item in entry["runtime_directories"]:
        lines.append("ReadWritePaths=%s" % quote("-" + item["path"]))
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


def unit_text(entry: Dict[str, Any], digest: str) -> str:
    return render(entry).replace("\nType=", '\nEnvironment="TETHER_DIGEST=%s"\nType=' % digest, 1)
