# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Is this host fit to serve? Everything that is wrong is said at once; nothing is changed."""

from __future__ import annotations

import glob
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Set

from ansible_collections.tether.fleet.plugins.module_utils import mac_facts, os_trouble
from ansible_collections.tether.fleet.plugins.module_utils.daemon import base, processes
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal

_OLDEST_PYTHON = (3, 9)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_GIB = 1024**3
# Files that an installation makes: engines come with their libraries, each version as a folder.
_FILES = 1000
# ID or ID_LIKE of os-release(5) -> the family that packages are named by.
_FAMILIES = {
    "debian": "Debian",
    "ubuntu": "Debian",
    "fedora": "RedHat",
    "rhel": "RedHat",
    "centos": "RedHat",
    "suse": "Suse",
    "opensuse": "Suse",
    "sles": "Suse",
}

# What an inventory calls a system -> what the kernel does.
_SYSTEMS = {"linux": "Linux", "macos": "Darwin"}
# What the wheels of MLX are tagged for (macosx_14_0); the ingress, made with Go 1.26, needs 12.
_OLDEST_MACOS = "14"
# Of what a host needs beyond its system, macOS ships everything.
_ONLY_LINUX = ("nftables",)

ARGUMENT_SPEC: Dict[str, Any] = {
    "space": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "path", "required": True},
            "bytes": {"type": "int", "required": True},
        },
    },
    "missing_space": {"type": "str", "choices": ["report", "fail"], "default": "fail"},
    "port": {"type": "int", "default": 9443},
    "port_daemon": {"type": "str", "default": "tether-ingress"},
    "system": {"type": "str", "choices": sorted(_SYSTEMS)},
    "controller_time": {"type": "float"},
    "max_skew": {"type": "int", "default": 60},
    "libraries": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "library": {"type": "str", "required": True},
            "packages": {"type": "dict", "required": True},
        },
    },
    "commands": {"type": "dict", "default": {"openssl": "openssl", "nftables": "nft"}},
    "missing_packages": {
        "type": "str",
        "choices": ["report", "fail"],
        "default": "report",
    },
    "platforms": {"type": "list", "elements": "str", "default": []},
    "min_glibc": {"type": "str"},
}


class Findings(Refusal):
    """All that is wrong with a host, one line each."""

    def __init__(self, findings: List[Dict[str, str]], facts: Dict[str, Any]) -> None:
        super().__init__("host", "%d problems" % len(findings), "none", "Mend them", facts)
        lines = [
            "{check}: found {found}; expected {expected}. {remedy}.".format(**item)
            for item in findings
        ]
        count = "1 problem" if len(lines) == 1 else "%d problems" % len(lines)
        self.args = ("%s; nothing was changed.\n- %s" % (count, "\n- ".join(lines)),)


def observe(desired: Dict[str, Any]) -> Dict[str, Any]:
    """Read what ``plan`` judges.

    :param desired: ``{"space": [{"path", "bytes"}], "missing_space": "report" | "fail",
        "port", "port_daemon", "system", "controller_time", "max_skew",
        "libraries": [{"library": soname, "packages": {OS family: package}}],
        "commands": {package: command}, "missing_packages": "report" | "fail",
        "platforms": [names], "min_glibc"}``
    """
    now = time.time()
    libraries = _libraries() if desired["libraries"] else set()
    family = os_family(_os_release())
    return {
        "supervisor": base.supervisor(),
        "python": list(sys.version_info[:3]),
        "python_path": sys.executable,
        "system": platform.system(),
        "machine": platform.machine(),
        "glibc": _glibc(),
        "musl": bool(glob.glob("/lib/ld-musl-*")),
        "uid": os.geteuid(),
        "time": now,
        "space": [dict(_space(item["path"]), **item) for item in desired["space"]],
        # Where nobody knows what a package is called, the engine's own start has to tell.
        "libraries": {
            item["packages"][family]: item["library"] in libraries
            for item in desired["libraries"]
            if family in item["packages"]
        },
        "commands": {
            package: shutil.which(name, path=_PATH) is not None
            for package, name in desired["commands"].items()
            if package not in _ONLY_LINUX or platform.system() == "Linux"
        },
        "read_only": {
            path: os_trouble.mount_of(path)
            for path in os_trouble.roots()
            if os_trouble.is_read_only(path)
        },
        "listeners": processes.listeners(desired["port"]) if desired["port"] else [],
        "mac": mac_facts.read() if platform.system() == "Darwin" else {},
        "gpu_devices": sorted(glob.glob("/dev/nvidia[0-9]*") + glob.glob("/dev/dri/render*")),
    }


def plan(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """No steps, ever: only facts.

    :raises Findings: with everything that is wrong
    """
    findings: List[Dict[str, str]] = []
    short: List[Dict[str, str]] = []
    name = platform_name(observed["system"], observed["machine"])
    missing = sorted(
        package
        for key in ("libraries", "commands")
        for package, present in observed[key].items()
        if not present
    )
    skew = None
    if desired["controller_time"] is not None:
        skew = round(observed["time"] - desired["controller_time"], 1)
    _check_base(desired, observed, name, findings)
    _check_read_only(observed["read_only"], findings)
    _check_mac(observed["mac"], findings)
    _check_space(observed["space"], short)
    if desired["missing_space"] == "fail":
        findings += short
    if skew is not None and abs(skew) > desired["max_skew"]:
        _add(
            findings,
            "clock",
            "%s UTC on this host, %s UTC on the controller (%+.0f s)"
            % (_utc(observed["time"]), _utc(desired["controller_time"]), skew),
            "at most %d s apart: certificates are only valid in their time" % desired["max_skew"],
            "Let both take their time from NTP (timedatectl set-ntp true), or set the wrong clock",
        )
    if missing and desired["missing_packages"] == "fail":
        _add(
            findings,
            "packages",
            "none of what %s brings" % ", ".join(missing),
            "them to be installed",
            "Install them: %s" % ", ".join(missing),
        )
    strangers = [
        item
        for item in observed["listeners"]
        if processes.daemon_of(item) != desired["port_daemon"]
    ]
    if strangers:
        _add(
            findings,
            "port %d" % desired["port"],
            "%s listening on it" % processes.in_words(strangers),
            "it to be free, or held by %s" % desired["port_daemon"],
            "Stop that program or move it to another port",
        )
    facts = {
        "platform": name,
        "glibc": observed["glibc"],
        "python": ".".join(str(part) for part in observed["python"]),
        "supervisor": observed["supervisor"],
        "clock_skew": skew,
        "missing_packages": missing,
        "gpu_devices": observed["gpu_devices"],
        "mac": observed["mac"],
        "space": [
            {key: item[key] for key in ("path", "free", "total")} for item in observed["space"]
        ],
        "short": short,
        "findings": findings,
    }
    if findings:
        raise Findings(findings, facts)
    return Plan(facts=facts)


def apply(plan: Plan) -> Dict[str, Any]:
    """Never called: there is nothing to change."""
    return {}


def platform_name(system: str, machine: str) -> str:
    """``linux-x86_64``, ``linux-aarch64``, ``darwin-arm64``...: the names that the lock uses."""
    name = (system or "unknown").lower()
    processor = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine.lower(), machine.lower())
    if name == "darwin" and processor == "aarch64":
        processor = "arm64"
    return "%s-%s" % (name, processor or "unknown")


def _check_base(
    desired: Dict[str, Any], observed: Dict[str, Any], name: str, findings: List[Dict[str, str]]
) -> None:
    if observed["uid"] != 0:
        _add(
            findings,
            "rights",
            "uid %d" % observed["uid"],
            "root",
            "Set become: true for the play, and let the ssh account use sudo",
        )
    if observed["supervisor"] is None:
        _add(
            findings,
            "supervisor",
            "no running systemd",
            "a host that booted with it, or a Mac",
            "Use such a host: a container without an init system cannot supervise processes",
        )
    if tuple(observed["python"]) < _OLDEST_PYTHON:
        _add(
            findings,
            "python",
            "%d.%d.%d at %s" % (*observed["python"], observed["python_path"]),
            "%d.%d or newer" % _OLDEST_PYTHON,
            "Install a newer one and set ansible_python_interpreter to its path",
        )
    if desired["system"] and observed["system"] != _SYSTEMS[desired["system"]]:
        _add(
            findings,
            "system",
            observed["system"],
            "%s, as the inventory says" % _SYSTEMS[desired["system"]],
            "Set fleet_system of this host to %s in the inventory"
            % next((key for key, value in _SYSTEMS.items() if value == observed["system"]), "..."),
        )
    if desired["platforms"] and name not in desired["platforms"]:
        _add(
            findings,
            "platform",
            name,
            "one that every artifact is pinned for: %s" % ", ".join(desired["platforms"]),
            "Add pins for %s to fleet.lock.yml, or take the host out of the model's hosts" % name,
        )
    if desired["min_glibc"] and observed["system"] == "Linux":
        found = observed["glibc"]
        if found is None or _version(found) < _version(desired["min_glibc"]):
            _add(
                findings,
                "C library",
                "glibc %s" % found if found else "musl" if observed["musl"] else "no glibc",
                "glibc %s or newer" % desired["min_glibc"],
                "Use a newer release of the operating system",
            )


def _check_read_only(paths: Dict[str, str], findings: List[Dict[str, str]]) -> None:
    for mount in sorted(set(paths.values())):
        below = " and ".join(sorted(path for path in paths if paths[path] == mount))
        _add(
            findings,
            "file system at %s" % mount,
            "it read-only, with %s on it" % below,
            "one that can be written",
            "Find out why (Linux: dmesg, /etc/fstab; macOS: diskutil verifyVolume): after a disk"
            " error the kernel mounts it so. Then run mount -o remount,rw %s (macOS: mount -uw)"
            % mount,
        )


def _check_mac(mac: Dict[str, Any], findings: List[Dict[str, str]]) -> None:
    version = mac.get("version")
    if version and _version(version) < _version(_OLDEST_MACOS):
        _add(
            findings,
            "macOS",
            version,
            "%s or newer" % _OLDEST_MACOS,
            "Update it (System Settings, General, Software Update)",
        )


def _check_space(space: List[Dict[str, Any]], findings: List[Dict[str, str]]) -> None:
    """Paths on one file system share its free space."""
    systems: Dict[int, List[Dict[str, Any]]] = {}
    for item in space:
        systems.setdefault(item["device"], []).append(item)
    for items in systems.values():
        wanted = sum(item["bytes"] for item in items)
        paths = " and ".join(item["path"] for item in items)
        if 0 <= items[0]["files"] < _FILES:
            _add(
                findings,
                "inodes at %s" % paths,
                "room for %d more files" % items[0]["files"],
                "%d" % _FILES,
                "Remove small files there (df -i), or make a file system with more inodes",
            )
        if wanted > items[0]["free"]:
            _add(
                findings,
                "disk space at %s" % paths,
                "%s free" % _size(items[0]["free"]),
                "%s" % _size(wanted),
                "Free %s there or give it a larger file system" % _size(wanted - items[0]["free"]),
            )


def _add(
    findings: List[Dict[str, str]], check: str, found: str, expected: str, remedy: str
) -> None:
    findings.append({"check": check, "found": found, "expected": expected, "remedy": remedy})


def _space(path: str) -> Dict[str, Any]:
    """Free bytes of the file system that will hold ``path``, which may not exist yet."""
    path = os_trouble.existing(path)
    status = os.statvfs(path)
    return {
        "free": status.f_bavail * status.f_frsize,
        "total": status.f_blocks * status.f_frsize,
        # Some file systems (btrfs) have no fixed number.
        "files": status.f_favail if status.f_files else -1,
        "device": os.stat(path).st_dev,
    }


def os_family(text: str) -> str:
    """``Debian``, ``RedHat``, ``Suse``... from an os-release(5), in Ansible's words. Pure."""
    words = re.findall(r"(?m)^ID(?:_LIKE)?=[\"']?([^\"'\n]*)", text)
    for word in " ".join(words).split():
        if word in _FAMILIES:
            return _FAMILIES[word]
    return "unknown"


def _os_release() -> str:
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                return stream.read()
        except OSError:
            continue
    return ""


def _libraries() -> Set[str]:
    """Sonames that the dynamic loader knows."""
    program = shutil.which("ldconfig", path=_PATH)
    if program is None:
        return set()
    done = subprocess.run(
        [program, "-p"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return parse_ldconfig(done.stdout)


def parse_ldconfig(text: str) -> Set[str]:
    """The sonames in the output of ``ldconfig -p``: lines of a tab, a name and `` (libc6...``."""
    return set(re.findall(r"(?m)^\t(\S+) \(", text))


def _glibc() -> Optional[str]:
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return None
    match = re.fullmatch(r"glibc (\S+)", text)
    return match.group(1) if match else None


def _version(text: str) -> List[int]:
    return [int(part) for part in re.findall(r"\d+", text)]


def _size(count: int) -> str:
    if count >= _GIB:
        return "%.1f GiB" % (count / _GIB)
    return "%.0f MiB" % (count / 1024**2)


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
