# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The hosts outside the cluster: Debian with a real systemd, in systemd-nspawn."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import time
from pathlib import Path

from mac import install as emulated_mac

from . import cgroups, files, footprint, network, process, template
from .commands import run
from .errors import BedError
from .layout import LOGIN, NODE, Bed, is_mac
from .process import Daemon

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


def daemon_name(host: str) -> str:
    """Name of the process that is a host."""
    return f"host-{host}"


def machine_name(bed: Bed, host: str) -> str:
    """A name that no host of another bed has."""
    return f"{bed.name}-{host}"


def on_disk(bed: Bed) -> set[str]:
    """Hosts that have a disk, also those that the bed shall not have any more."""
    directory = bed.host_directory("any").parent
    return {path.name for path in directory.iterdir()} if directory.exists() else set()


def ensure_key(bed: Bed) -> None:
    """Make the key that opens all hosts of the bed."""
    if not _private_key(bed).exists():
        bed.state.mkdir(parents=True, exist_ok=True)
        _make_key(_private_key(bed), f"{LOGIN}@{bed.namespace}")


def ensure(bed: Bed, host: str) -> bool:
    """Give a host its disk and start it; return whether it had to be started."""
    _ensure_disk(bed, host)
    name = daemon_name(host)
    if process.running(bed, name) is None:
        cgroups.end(bed, name)
        network.forget_port(bed, machine_name(bed, host))
    started = process.ensure(bed, _daemon(bed, host))
    if not started and not network.plugged(bed, machine_name(bed, host)):
        network.plug(bed, machine_name(bed, host))
    return started


def remove(bed: Bed, host: str) -> None:
    """End a host and delete its disk."""
    name = daemon_name(host)
    cgroups.end(bed, name)
    if network.exists(bed):
        network.forget_port(bed, machine_name(bed, host))
    (bed.pids / f"{name}.json").unlink(missing_ok=True)
    footprint.sweep_host(machine_name(bed, host), bed.host_directory(host) / "root")
    files.remove_tree(bed.host_directory(host))


def write_ssh_files(bed: Bed) -> None:
    """Write what `ssh -F` needs, with the hosts' true keys."""
    known = []
    for host, address in bed.hosts.items():
        key = (_host_key(bed, host).with_suffix(".pub")).read_text().split()
        known.append(f"{host},{address} {key[0]} {key[1]}\n")
    files.write(_known_hosts(bed), "".join(known))
    blocks = [f"Host {host}\n  HostName {address}\n\n" for host, address in bed.hosts.items()]
    everything = " ".join([*bed.hosts, *bed.hosts.values()])
    common = (
        f"Host {everything}\n"
        f"  User {LOGIN}\n"
        f"  IdentityFile {_private_key(bed)}\n"
        "  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {_known_hosts(bed)}\n"
        "  GlobalKnownHostsFile /dev/null\n"
        "  StrictHostKeyChecking yes\n"
        "  ConnectTimeout 10\n"
    )
    files.write(bed.ssh_config, "".join(blocks) + common)


def wait_ssh(bed: Bed, host: str) -> None:
    """Wait until a host's SSH server says hello."""
    address = bed.hosts[host]
    process.wait_ready(
        bed, daemon_name(host), lambda: _greets(address), 60, "its SSH server answered"
    )


def ssh(bed: Bed, host: str) -> list[str]:
    """The command line that logs in to a host."""
    check(bed, host)
    return ["ssh", "-F", str(bed.ssh_config), host]


def check(bed: Bed, host: str) -> None:
    """Refuse a host that the bed does not have."""
    if host not in bed.hosts:
        raise BedError(f"bed {bed.name} has no host {host}; it has {', '.join(bed.hosts)}")


def _private_key(bed: Bed) -> Path:
    return bed.state / "ssh_key"


def _known_hosts(bed: Bed) -> Path:
    return bed.state / "known_hosts"


def _host_key(bed: Bed, host: str) -> Path:
    return bed.host_directory(host) / "root/etc/ssh/ssh_host_ed25519_key"


def _make_key(path: Path, comment: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    public = path.with_name(f"{path.name}.pub")
    temporary_public = path.with_name(f"{temporary.name}.pub")
    # ssh-keygen asks before it overwrites what an interrupted run left.
    for leftover in (temporary, temporary_public):
        leftover.unlink(missing_ok=True)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", temporary])
    # The private key comes last: it says that both are there.
    temporary_public.rename(public)
    temporary.rename(path)


def _ensure_disk(bed: Bed, host: str) -> None:
    """An overlay on the template: made at once, and its pages shared by all hosts."""
    directory = bed.host_directory(host)
    complete = directory / "complete"
    if not complete.exists():
        files.remove_tree(directory)
    for name in ("upper", "work", "root"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    root = directory / "root"
    if not files.mounts_below(root):
        layers = f"lowerdir={_lower(directory)}"
        layers += f",upperdir={directory / 'upper'},workdir={directory / 'work'}"
        run(["mount", "-t", "overlay", machine_name(bed, host), "-o", layers, root])
    if not complete.exists():
        _personalise(bed, host, root)
        complete.touch()


def _lower(directory: Path) -> Path:
    """The template that this host was made from, also when there is a newer one."""
    link = directory / "template"
    if not link.is_symlink():
        link.symlink_to(template.directory())
    return link.readlink()


def _personalise(bed: Bed, host: str, root: Path) -> None:
    """Make one host out of the template."""
    chroot = ["chroot", str(root)]
    run([*chroot, "systemctl", "--quiet", "enable", *_ENABLED])
    run([*chroot, "systemctl", "--quiet", "mask", *_MASKED])
    home = _add_login(host, root)
    for name, text in _FILES.items():
        files.write(root / name, text, 0o440 if "sudoers" in name else 0o644)
    address = bed.hosts[host]
    names = {"127.0.0.1": "localhost", "127.0.1.1": host, bed.machine_address: "machine"}
    names[bed.node_address] = f"{NODE} kubernetes"
    names |= {other: name for name, other in bed.hosts.items() if name != host}
    files.write(root / "etc/hostname", f"{host}\n")
    # Without localhost in it every gathering of facts waits for a name server.
    lines = [f"{number} {name}\n" for number, name in names.items()]
    files.write(root / "etc/hosts", "".join([*lines, "::1 localhost ip6-localhost\n"]))
    files.write(root / "etc/machine-id", f"{secrets.token_hex(16)}\n", 0o444)
    files.write(
        root / "etc/systemd/network/10-lan.network",
        f"[Match]\nName=host0\n\n[Network]\nAddress={address}/24\nGateway={bed.node_address}\n",
    )
    _make_key(root / "etc/ssh/ssh_host_ed25519_key", f"root@{host}")
    owner = home.stat()
    public = Path(f"{_private_key(bed)}.pub").read_text()
    files.write(home / ".ssh/authorized_keys", public, 0o600)
    (home / ".ssh").chmod(0o700)
    for path in (home / ".ssh", home / ".ssh/authorized_keys"):
        os.chown(path, owner.st_uid, owner.st_gid)


def _add_login(host: str, root: Path) -> Path:
    """Make the account that logs in, and the Mac around it if the host is to be one."""
    home, program, account = f"home/{LOGIN}", "useradd", ["--uid=1000"]
    if is_mac(host):
        if shutil.which("gcc") is None:
            raise BedError(f"{host}: an emulated Mac needs gcc (Debian: gcc, libc6-dev)")
        emulated_mac.host(root)
        # The first account of a Mac.
        home, program = f"Users/{LOGIN}", f"/{emulated_mac.LINUX_PROGRAMS}/useradd"
        account = ["--uid=501", "--gid=staff"]
    options = ["--create-home", f"--home-dir=/{home}", "--shell=/bin/bash", *account]
    run(["chroot", root, program, *options, LOGIN])
    return root / home


def _daemon(bed: Bed, host: str) -> Daemon:
    return Daemon(
        daemon_name(host),
        (
            "systemd-nspawn",
            f"--directory={bed.host_directory(host) / 'root'}",
            "--boot",
            f"--machine={machine_name(bed, host)}",
            f"--hostname={host}",
            f"--network-bridge={network.BRIDGE}",
            # There may be no systemd on the machine to keep a unit or a register.
            "--keep-unit",
            "--register=no",
            "--settings=no",
            "--link-journal=no",
            "--resolv-conf=off",
            "--timezone=off",
        ),
    )


def _greets(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=2) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        time.sleep(0.1)
        return False
