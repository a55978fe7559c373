# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The bed's own long-running processes: start, recognise, end."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import cgroups, files
from .errors import BedError
from .layout import Bed


@dataclass(frozen=True)
class Daemon:
    """A process that belongs to a bed for as long as the bed is up."""

    name: str
    argv: tuple[str, ...]
    inputs: tuple[Path, ...] = ()
    """Files that it reads at its start: when one changes, it starts anew."""
    env: dict[str, str] = field(default_factory=dict)
    children_outlive_it: bool = False
    """containerd's shims do, so that pods survive its restart."""

    @property
    def fingerprint(self) -> str:
        """Changes when the daemon has to be started anew."""
        digest = hashlib.sha256(json.dumps([self.argv, self.env]).encode())
        for path in self.inputs:
            digest.update(path.read_bytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Identity:
    """A process, told apart from a later one that got the same pid."""

    pid: int
    start: int

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """Identity of a running process; a zombie does not count as one."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else cls(pid, int(fields[19]))


def enter(bed: Bed, group: str, argv: list[str]) -> list[str]:
    """The command line that runs a program inside a bed.

    It joins the bed's cgroups first and the network namespace second, and then
    becomes the program, so that its pid is the program's. `ip netns exec`
    would not do: it mounts a new /sys, without /sys/fs/cgroup.
    """
    procs = [str(directory / "cgroup.procs") for directory in cgroups.create(bed, group)]
    join = 'n=$1; shift; while [ $n -gt 0 ]; do echo 0 >"$1"; shift; n=$((n-1)); done; exec "$@"'
    network = ["nsenter", f"--net=/run/netns/{bed.namespace}", "--"]
    return ["/bin/sh", "-ec", join, "join", str(len(procs)), *procs, *network, *argv]


def running(bed: Bed, name: str) -> Identity | None:
    """The process on record under this name, if it is still that one."""
    try:
        content = json.loads((bed.pids / f"{name}.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    identity = Identity(content["pid"], content["start"])
    return identity if Identity.of(identity.pid) == identity else None


def ensure(bed: Bed, daemon: Daemon) -> bool:
    """Start a daemon unless it runs as it should; return whether it was started."""
    record = bed.pids / f"{daemon.name}.json"
    fingerprint = daemon.fingerprint
    if running(bed, daemon.name):
        if json.loads(record.read_text())["fingerprint"] == fingerprint:
            return False
        stop(bed, daemon.name)
    _end_leftovers(bed, daemon)
    bed.logs.mkdir(parents=True, exist_ok=True)
    with _log(bed, daemon.name).open("ab") as log:
        child = subprocess.Popen(
            enter(bed, daemon.name, list(daemon.argv)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, **daemon.env},
            cwd="/",
        )
    identity = Identity.of(child.pid)
    content = {
        "pid": child.pid,
        "start": identity.start if identity else 0,
        "fingerprint": fingerprint,
        "argv": daemon.argv,
    }
    files.write(record, json.dumps(content, indent=2) + "\n")
    return True


def stop(bed: Bed, name: str) -> None:
    """End a daemon: politely, then not."""
    identity = running(bed, name)
    if identity is None:
        return
    os.kill(identity.pid, signal.SIGTERM)
    deadline = time.monotonic() + 5
    while Identity.of(identity.pid) == identity:
        if time.monotonic() > deadline:
            os.kill(identity.pid, signal.SIGKILL)
        time.sleep(0.05)


def wait_ready(
    bed: Bed, name: str, condition: Callable[[], bool], timeout: float, what: str
) -> None:
    """Wait for what a daemon promises; if it dies or dawdles, show its last words."""
    deadline = time.monotonic() + timeout
    while not condition():
        if running(bed, name) is None:
            raise BedError(f"{name} died before {what}\n{_last_words(bed, name)}")
        if time.monotonic() > deadline:
            raise BedError(f"waited {timeout:.0f} s in vain for {what}\n{_last_words(bed, name)}")
        time.sleep(0.1)


def _log(bed: Bed, name: str) -> Path:
    return bed.logs / f"{name}.log"


def _last_words(bed: Bed, name: str) -> str:
    try:
        lines = _log(bed, name).read_text(errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    return "\n".join([f"last lines of {_log(bed, name)}:", *lines[-15:]])


def _end_leftovers(bed: Bed, daemon: Daemon) -> None:
    """End what an earlier one left in the daemon's cgroup.

    That is its orphans, or the daemon itself when the command that started it
    was killed before it could record the pid.
    """
    if not daemon.children_outlive_it:
        cgroups.end(bed, daemon.name)
        return
    for pid in cgroups.members(bed, daemon.name):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            if tuple(words[:-1][-len(daemon.argv) :]) == daemon.argv:
                os.kill(pid, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            continue
