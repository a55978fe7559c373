# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an error of the operating system means for the person who has to act on it.

A full disk or a read-only file system can show at any write, so it is put into words in one place
instead of at each of them.
"""

from __future__ import annotations

import errno
import os
import platform
import re
from typing import Dict, List, Optional, Set, Tuple

_EVERYWHERE = ("/opt/tether", "/var/lib/tether", "/etc/tether", "/tmp")  # noqa: S108
# On macOS `/` is the sealed system volume, read-only by design since 10.15, and what is written is
# on another one that /opt, /private and /Library lead to. So a path that no Mac has, as /run, would
# be judged by `/`, and a sound Mac be called one with a broken disk.
_OF_SYSTEMS: Dict[str, Tuple[str, ...]] = {
    "Darwin": (*_EVERYWHERE, "/Library/LaunchDaemons", "/var/log", "/var/run"),
    "Linux": (*_EVERYWHERE, "/etc/systemd/system", "/run"),
}
_LITTLE = 64 * 1024

Words = Tuple[str, str, str, str]

_OTHERS: Dict[int, Tuple[str, str]] = {
    errno.EIO: (
        "a disk that reads and writes",
        "Look for errors of the disk before anything else (smartctl; Linux: dmesg; macOS: diskutil"
        " verifyVolume)",
    ),
    errno.EDQUOT: (
        "room in the disk quota",
        "Raise root's quota there (quota, repquota), or remove what fills it",
    ),
    errno.EACCES: (
        "root to be allowed to",
        "Look for what forbids it even to root: SELinux, AppArmor (dmesg), a network file system;"
        " on a Mac, that Remote Login in System Settings allows no full disk access",
    ),
    errno.EPERM: (
        "root to be allowed to",
        "Look for what forbids it even to root: an immutable file (lsattr), SELinux or AppArmor;"
        " on a Mac a flag of the file (ls -lO), System Integrity Protection, or that Remote Login"
        " in System Settings allows no full disk access",
    ),
}


def roots(system: Optional[str] = None) -> Tuple[str, ...]:
    """Where the collection writes on a host.

    :param system: ``platform.system()`` of it; this one's without
    """
    return _OF_SYSTEMS.get(system or platform.system(), _EVERYWHERE)


def words(error: OSError, paths: Optional[Tuple[str, ...]] = None) -> Words:
    """``(what, found, expected, remedy)`` of an error, for a ``Refusal``.

    :param paths: where to look for the full or read-only file system when the error names no path;
        ``roots()`` without
    """
    paths = roots() if paths is None else paths
    path = error.filename if isinstance(error.filename, str) else None
    what = path or "this host"
    if os.path.basename(what).startswith(".tmp-"):  # a name of our own making, and gone by now
        what = os.path.dirname(what)
    if error.errno == errno.ENOSPC:
        return _full(what, [path] if path else list(paths))
    if error.errno == errno.EROFS:
        mount = mount_of(path or next((one for one in paths if is_read_only(one)), "/"))
        return (
            what,
            "a read-only file system, mounted at %s" % mount,
            "one that can be written",
            "Find out why (Linux: dmesg, /etc/fstab; macOS: diskutil verifyVolume): after a disk"
            " error the kernel mounts it so. Then run mount -o remount,rw %s (macOS: mount -uw),"
            " and the playbook again" % mount,
        )
    expected, remedy = _OTHERS.get(
        error.errno or 0, ("it to work", "Look at that path on the host, then run again")
    )
    return (
        what,
        "an error of the operating system: %s" % (error.strerror or error),
        expected,
        remedy,
    )


def shortage(path: str) -> Optional[str]:
    """What a file system has run out of, in words, or None when there is room."""
    status = os.statvfs(existing(path))
    if status.f_files and not status.f_favail:
        return "no inodes (that is, no more files) left"
    free = status.f_bavail * status.f_frsize
    return "%d kB left" % (free // 1000) if free < _LITTLE else None


def is_read_only(path: str) -> bool:
    """Whether ``path`` is, or would be, on a read-only file system."""
    return bool(os.statvfs(existing(path)).f_flag & os.ST_RDONLY)


def existing(path: str) -> str:
    """The path itself, or the nearest folder above it that exists."""
    path = os.path.abspath(path)  # above a relative one there would be no end
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def mount_of(path: str) -> str:
    """Where the file system that holds ``path`` is mounted."""
    path = os.path.realpath(existing(path))
    mounts = _mounts()
    while path != "/" and path not in mounts and not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


def _mounts() -> Set[str]:
    """All mount points, where the system lists them: a bind mount is not seen by its device."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as stream:
            fields = [line.split()[1] for line in stream if line.strip()]
    except OSError:
        return set()
    return {re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), one) for one in fields}


def _full(what: str, paths: List[str]) -> Words:
    for path in paths:
        lack = shortage(path)
        if lack:
            mount = mount_of(path)
            return (
                what,
                "%s on the file system at %s" % (lack, mount),
                "room there",
                "Make room (df -h %s; df -i %s), then run again" % (mount, mount),
            )
    # It was full a moment ago: what was half-written has been removed since.
    return (
        what,
        "no room to write",
        "room on the file systems of %s" % ", ".join(mount_of(path) for path in paths[:1]),
        "Make room (df -h; df -i), then run again",
    )
