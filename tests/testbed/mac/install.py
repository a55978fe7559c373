# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Puts an emulated Mac into a root folder: a test's, or that of a host of the test bed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from . import machine, pf_state
from .places import ROOT_VARIABLE

LIBRARY = "usr/lib/emulated-mac"
"""Where the code itself goes, below the root."""
PRELOADED = "preloaded.so"

PROGRAMS = {
    "dscl": "usr/bin/dscl",
    "fdesetup": "usr/bin/fdesetup",
    "launchctl": "bin/launchctl",
    "lsof": "usr/sbin/lsof",
    "newsyslog": "usr/sbin/newsyslog",
    "pfctl": "sbin/pfctl",
    "plutil": "usr/bin/plutil",
    "pmset": "usr/bin/pmset",
    "profiles": "usr/bin/profiles",
    "ps": "bin/ps",
    "socketfilterfw": "usr/libexec/ApplicationFirewall/socketfilterfw",
    "softwareupdate": "usr/sbin/softwareupdate",
    "sw_vers": "usr/bin/sw_vers",
    "sysadminctl": "usr/sbin/sysadminctl",
    "sysctl": "usr/sbin/sysctl",
    "system_profiler": "usr/sbin/system_profiler",
    "vm_stat": "usr/bin/vm_stat",
    "xattr": "usr/bin/xattr",
}
"""Modules in `tools`, and where macOS has the programs."""

# Isolated from the caller's variables and packages, as the real programs are.
_LAUNCHER = """\
#!/usr/bin/python3 -IS
# Emulated {name}, part of an emulated Mac: see docs/testing.md of tether.fleet.
import os, sys
sys.path.insert(0, {library!r})
os.environ.setdefault({variable!r}, {root!r})
from mac import program
from mac.tools import {name} as tool
sys.exit(program.run({name!r}, tool.main))
"""
_SUPERVISOR = """\
#!/usr/bin/python3 -IS
# The emulated launchd, part of an emulated Mac: see docs/testing.md of tether.fleet.
import os, sys
sys.path.insert(0, {library!r})
os.environ.setdefault({variable!r}, {root!r})
from mac import launchd
sys.exit(launchd.main())
"""
_FOLDERS = (
    "Library/LaunchAgents",
    "Library/LaunchDaemons",
    "Library/Preferences",
    "Users/Shared",
    "etc/newsyslog.d",
    "etc/pf.anchors",
    "var/db/com.apple.xpc.launchd",
    "var/empty",
    "var/log",
    "var/run",
)
_FILES = {
    "etc/pf.conf": pf_state.STOCK,
    "etc/pf.anchors/com.apple": "# com.apple ruleset, referred to by /etc/pf.conf\n",
    "etc/newsyslog.conf": "# logfilename [owner:group] mode count size when flags\n",
}
LINUX_PROGRAMS = f"{LIBRARY}/linux"
"""Where a host's programs are put that no Mac has; who looks after the host finds them there."""
_LINUX_ONLY = {
    *("adduser", "addgroup", "deluser", "delgroup", "useradd", "userdel", "usermod"),
    *("groupadd", "groupdel", "groupmod", "gpasswd", "chpasswd", "chage", "getent", "runuser"),
    *("systemctl", "journalctl", "loginctl", "systemd-run", "hostnamectl", "timedatectl"),
    *("nft", "iptables", "ip6tables", "ip", "ss", "tc", "bridge", "apt", "dpkg", "apt-get"),
    *("setsid", "timeout", "flock", "nsenter", "unshare", "prlimit", "taskset", "ionice"),
    *("lscpu", "lsblk", "findmnt", "lsmod", "modprobe", "init"),
    # A Mac has some of these; here they would be lost without /proc.
    *("free", "pgrep", "pidof", "pkill", "pmap", "pwdx", "top", "vmstat", "w", "watch"),
}
_MASKED = (
    # It wants a group root.
    "systemd-sysusers.service",
    # It wants journalctl on the path; with a journal in memory it has nothing to do.
    "systemd-journal-flush.service",
)
# What a command over ssh has on a Mac.
_LOGIN_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
# Names and numbers of macOS that Linux has otherwise; there is no group root on a Mac.
_GROUPS = {"wheel": 0, "daemon": 1, "everyone": 12, "staff": 20, "admin": 80}


def programs(root: Path, seen_as: str) -> None:
    """Install the programs and the files that they need.

    :param root: the folder to fill
    :param seen_as: how the programs see that folder when they run: `/` on a host
    """
    for name in _FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name, text in _FILES.items():
        (root / name).write_text(text)
    machine.write_version(root, **machine.VERSION)
    library = root / LIBRARY
    shutil.rmtree(library, ignore_errors=True)
    # What is compiled already comes along, as copies keep their times: programs start faster.
    shutil.copytree(Path(__file__).parent, library / "mac")
    seen = {"library": str(Path(seen_as) / LIBRARY), "variable": ROOT_VARIABLE, "root": seen_as}
    _write_program(library / "emulated-launchd", _SUPERVISOR.format(**seen))
    for name, path in PROGRAMS.items():
        _write_program(root / path, _LAUNCHER.format(name=name, **seen))


def host(root: Path) -> None:
    """Make an emulated Mac of a Linux host's disk, which must be down."""
    programs(root, "/")
    build_preloaded(root / LIBRARY / PRELOADED)
    (root / "etc/ld.so.preload").write_text(f"/{LIBRARY}/{PRELOADED}\n")
    groups = root / "etc/group"
    groups.write_text(_mac_groups(groups.read_text()))
    _put_aside(root)
    units = root / "etc/systemd/system"
    for name in _MASKED:
        (units / name).symlink_to(os.devnull)
    (root / "etc/environment").write_text(f"PATH={_LOGIN_PATH}\n")
    unit = "emulated-launchd.service"
    shutil.copy(Path(__file__).with_name(unit), units / unit)
    wants = units / "multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / unit).unlink(missing_ok=True)
    (wants / unit).symlink_to(f"/etc/systemd/system/{unit}")


def _put_aside(root: Path) -> None:
    """Take programs that no Mac has off the path, so that code cannot lean on them."""
    aside = root / LINUX_PROGRAMS
    aside.mkdir()
    for folder in ("usr/bin", "usr/sbin"):
        for path in sorted((root / folder).iterdir()):
            if path.name in _LINUX_ONLY:
                shutil.move(path, aside / path.name)
            elif path.is_symlink() and os.readlink(path).endswith("/systemctl"):
                # reboot, shutdown and the like are that program under other names.
                path.unlink()
                path.symlink_to(f"/{LINUX_PROGRAMS}/systemctl")


def build_preloaded(target: Path) -> None:
    """Build the library that answers uname(2) and hides folders."""
    source = Path(__file__).with_name("preloaded.c")
    flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", str(target), str(source)], check=True)


def _mac_groups(text: str) -> str:
    """A group file in which names and numbers are those of macOS."""
    numbers = {str(number) for number in _GROUPS.values()}
    kept = []
    for line in text.splitlines():
        name, _, number, _ = line.split(":")
        if name not in _GROUPS and number not in numbers:
            kept.append(line)
    ours = [f"{name}:*:{number}:" for name, number in _GROUPS.items()]
    return "".join(f"{line}\n" for line in [*ours, *kept])


def _write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Never through a link: on a host, /bin is /usr/bin, and there may be programs of these names.
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o755)
