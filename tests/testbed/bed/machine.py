# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a machine must be and have before a bed can stand on it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import cgroups, files
from .commands import run, succeeds
from .errors import BedError
from .layout import LOCKS

_PACKAGES = {
    # Debian package: what shows that it, or something in its place, is there.
    "debootstrap": "debootstrap",
    "debian-archive-keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "systemd-container": "systemd-nspawn",
    "etcd-server": "etcd",
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/ptp",
    "iptables": "iptables",
    "ipset": "ipset",
    "conntrack": "conntrack",
    "busybox-static": "/var/lib/dpkg/info/busybox-static.list",
    "curl": "curl",
    "iproute2": "ip",
    "mount": "mount",
    "openssl": "openssl",
    "openssh-client": "ssh-keygen",
    "util-linux": "nsenter",
}
_POLICY = Path("/usr/sbin/policy-rc.d")
_POLICY_TEXT = (
    "#!/bin/sh\n# Written by the tether.fleet test bed for the time of one apt-get.\nexit 101\n"
)
_UNIT_SUFFIXES = (".service", ".socket", ".timer", ".path", ".target")


def check(*, builds: bool) -> None:
    """Say at once all that is missing of what cannot be installed from here."""
    problems = []
    if sys.version_info < (3, 11):  # noqa: UP036 (this is where an older one is told)
        problems.append(f"Python 3.11 or newer (this is {platform.python_version()})")
    if os.geteuid() != 0:
        problems.append("root: it makes network namespaces, mounts and cgroups (use sudo)")
    if not _is_debian():
        problems.append("Debian 12 or a relative of it: it installs packages with apt-get")
    if platform.machine() != "x86_64":
        problems.append(f"an x86_64 processor (this is {platform.machine()})")
    if not cgroups.hierarchies():
        problems.append("cgroups, mounted at /sys/fs/cgroup")
    if builds and shutil.which("go") is None:
        problems.append("Go 1.26 or newer on the PATH, to build Kubernetes (go.dev/dl)")
    if problems:
        raise BedError("the test bed needs\n" + "\n".join(f"  - {text}" for text in problems))


def install_packages() -> list[str]:
    """Install the Debian packages that are missing; return their names."""
    if not _missing_packages():
        return []
    with files.locked(LOCKS / "packages"):
        missing = _missing_packages()
        if missing:
            _install(missing)
        return missing


def _missing_packages() -> list[str]:
    return [package for package, sign in _PACKAGES.items() if not _is_there(sign)]


def _install(missing: list[str]) -> None:
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    with _no_service_starts():
        run(["apt-get", "-qq", "update"], env=quiet)
        before = _enabled_units()
        install = ["apt-get", "-qq", "install", "--yes", "--no-install-recommends"]
        wait = ["-o", "DPkg::Lock::Timeout=300"]
        run([*install, *wait, *missing], env=quiet)
        # The bed runs these programs itself; the machine shall not, not even
        # after its next boot.
        for unit in sorted(_enabled_units() - before):
            succeeds(["systemctl", "disable", unit])


def _is_debian() -> bool:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return False
    family = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    return "debian" in family and shutil.which("apt-get") is not None


def _is_there(sign: str) -> bool:
    return Path(sign).exists() if sign.startswith("/") else shutil.which(sign) is not None


def _enabled_units() -> set[str]:
    """Units that start with the machine, by the links that make them do so."""
    links = Path("/etc/systemd/system").glob("*.wants/*")
    return {link.name for link in links if link.suffix in _UNIT_SUFFIXES}


@contextmanager
def _no_service_starts() -> Iterator[None]:
    """Keep package scripts from starting services, in Debian's own way."""
    ours = not _POLICY.exists() or _POLICY.read_text() == _POLICY_TEXT
    if ours:
        _POLICY.write_text(_POLICY_TEXT)
        _POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            _POLICY.unlink()
