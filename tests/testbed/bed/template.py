"""The disk that all hosts start from: Debian 12, an operator, an SSH server."""

from __future__ import annotations

import shutil
from pathlib import Path

from . import cache
from .commands import run
from .layout import LOGIN

_SUITE = "bookworm"
_MIRROR = "http://deb.debian.org/debian"
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
_ENABLED = ("ssh", "systemd-networkd")
# They would only look for a network that is not there.
_MASKED = ("apt-daily.timer", "apt-daily-upgrade.timer", "systemd-networkd-wait-online.service")
_FILES = {
    "etc/ssh/sshd_config.d/bed.conf": (
        "PasswordAuthentication no\n"
        "KbdInteractiveAuthentication no\n"
        "PermitRootLogin no\n"
        "HostKey /etc/ssh/ssh_host_ed25519_key\n"
        "UseDNS no\n"
        "MaxStartups 100\n"
    ),
    "etc/sudoers.d/bed": f"{LOGIN} ALL=(ALL) NOPASSWD: ALL\n",
    "etc/systemd/journald.conf.d/bed.conf": "[Journal]\nStorage=volatile\nRuntimeMaxUse=32M\n",
    # PAM complains at every login while it is not there.
    "etc/default/locale": "LANG=C.UTF-8\n",
    # Nothing answers at any address: a name that is not in /etc/hosts fails at once.
    "etc/resolv.conf": "# This network has no name server.\n",
}


def key() -> str:
    """Names this very template in the cache."""
    files = [part for item in sorted(_FILES.items()) for part in item]
    return cache.key(_SUITE, LOGIN, *_PACKAGES, *_ENABLED, *_MASKED, *files)


def directory() -> Path:
    """The template's root directory."""
    return cache.entry("template", key()) / "root"


def ensure() -> bool:
    """Make the template unless that was done; return whether it was made now."""
    return cache.ensure("template", key(), _build)[1]


def _build(target: Path) -> None:
    root = target / "root"
    include = f"--include={','.join(_PACKAGES)}"
    run(["nice", "debootstrap", "--variant=minbase", include, _SUITE, root, _MIRROR])
    chroot = ["chroot", str(root)]
    run([*chroot, "useradd", "--create-home", "--shell=/bin/bash", "--uid=1000", LOGIN])
    run([*chroot, "systemctl", "enable", *_ENABLED])
    run([*chroot, "systemctl", "mask", *_MASKED])
    for name, text in _FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)
    (root / "etc/sudoers.d/bed").chmod(0o440)
    # Each host gets its own.
    for path in (root / "etc/ssh").glob("ssh_host_*"):
        path.unlink()
    for name in ("etc/machine-id", "var/lib/dbus/machine-id", "etc/hostname"):
        (root / name).unlink(missing_ok=True)
    for name in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(root / name)
        (root / name / "partial").mkdir(parents=True)
