# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The disk that all hosts start from: Debian 12 with a handful of packages."""

from __future__ import annotations

import shutil
from pathlib import Path

from . import cache
from .commands import run

# debootstrap knows where a suite comes from.
_SUITE = "bookworm"
_PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "openssh-server",
    "python3",
    "sudo",
    "iproute2",
    "ca-certificates",
    "nftables",
    "curl",
    "openssl",
    # What the Linux llama-server wheel links to.
    "libvulkan1",
    "libgomp1",
)


def key() -> str:
    """Names this very template in the cache."""
    return cache.key(_SUITE, *_PACKAGES)


def directory() -> Path:
    """The template's root directory."""
    return cache.entry("template", key()) / "root"


def ensure() -> bool:
    """Make the template unless that was done; return whether it was made now."""
    return cache.ensure("template", key(), _build)[1]


def _build(target: Path) -> None:
    root = target / "root"
    include = f"--include={','.join(_PACKAGES)}"
    run(["nice", "debootstrap", "--variant=minbase", include, _SUITE, root])
    # Each host gets its own.
    for path in (root / "etc/ssh").glob("ssh_host_*"):
        path.unlink()
    for name in ("etc/machine-id", "var/lib/dbus/machine-id", "etc/hostname", "etc/resolv.conf"):
        (root / name).unlink(missing_ok=True)
    for name in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(root / name)
        (root / name / "partial").mkdir(parents=True)
