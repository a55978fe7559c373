# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the bed's programs change outside of the bed, and how it is put back.

Some of their paths are fixed in their code, and the kubelet sets a few kernel
parameters. What was there before the first bed came up is on record, so that
the last one to go can leave the machine as it was.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from . import files
from .layout import LOCKS, STATE_ROOT, Bed

_NETNS = Path("/run/netns")
_SHIM_SOCKETS = Path("/run/containerd")
_CNI_RESULTS = Path("/var/lib/cni")
_LOG_LINKS = Path("/var/log/containers")
_DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
_NSPAWN = Path("/run/systemd/nspawn")
_DIRECTORIES = (
    _NETNS,
    _SHIM_SOCKETS,
    _CNI_RESULTS,
    _LOG_LINKS,
    _DEVICE_PLUGINS.parent,
    _NSPAWN,
)
# What the kubelet sets.
_PARAMETERS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
# A bed watches files in some forty places; root has 128 for all of the machine.
_AT_LEAST = {"fs/inotify/max_user_instances": 4096}
_RECORD = STATE_ROOT / "machine.json"


def record() -> None:
    """Before the first bed runs: write down how the machine is, and make room.

    The bed has its directory by then, so that no `restore` takes the record away.
    """
    with files.locked(LOCKS / "footprint"):
        content: dict[str, Any] = {
            "directories": [str(path) for path in _DIRECTORIES if path.exists()],
            "netns_mounted": _NETNS in files.mounts_below(_NETNS),
            "parameters": {},
        }
        if _RECORD.exists():
            content = json.loads(_RECORD.read_text())
        for name in (*_PARAMETERS, *_AT_LEAST):
            content["parameters"].setdefault(name, _parameter(name).read_text())
        files.write(_RECORD, json.dumps(content, indent=2) + "\n")
        for name, value in _AT_LEAST.items():
            if int(_parameter(name).read_text()) < value:
                _parameter(name).write_text(str(value))


def sweep(bed: Bed) -> None:
    """Delete what one bed, whose processes are gone, left in shared places.

    Its mounts and files must still be there: they tell what belongs to it.
    """
    bundles = bed.containerd / "state" / "io.containerd.runtime.v2.task"
    for address in bundles.glob("*/*/address"):
        socket = Path(address.read_text().strip().removeprefix("unix://"))
        if _SHIM_SOCKETS in socket.parents:
            socket.unlink(missing_ok=True)
    for result in _CNI_RESULTS.glob("results/*"):
        # It names the pod's network namespace, which is in containerd's state.
        # Those of other beds come and go meanwhile.
        with contextlib.suppress(FileNotFoundError):
            if f'"{bed.containerd}/' in result.read_text():
                result.unlink()
    for link in _LOG_LINKS.glob("*"):
        with contextlib.suppress(FileNotFoundError):
            if link.is_symlink() and bed.state in link.readlink().parents:
                link.unlink()


def sweep_host(machine_name: str, root: Path) -> None:
    """The same for a host, while its disk is still mounted."""
    for name in ("propagate", "unix-export"):
        files.remove_tree(_NSPAWN / name / machine_name)
    if root.exists():
        # systemd-nspawn locks a disk by the identity of its root directory.
        identity = root.stat()
        lock = _NSPAWN / "locks" / f"inode-{identity.st_dev}:{identity.st_ino}"
        lock.unlink(missing_ok=True)


def restore() -> None:
    """After the last bed: put the machine back as it was on record."""
    with files.locked(LOCKS / "footprint"):
        if not _RECORD.exists() or list(STATE_ROOT.iterdir()) != [_RECORD]:
            return
        before = json.loads(_RECORD.read_text())
        for name, value in before["parameters"].items():
            if _parameter(name).read_text() != value:
                _parameter(name).write_text(value)
        existed = {Path(path) for path in before["directories"]}
        if _DEVICE_PLUGINS.parent not in existed:
            for name in ("kubelet.sock", "kubelet_internal_checkpoint"):
                (_DEVICE_PLUGINS / name).unlink(missing_ok=True)
        # `ip netns add` mounts the directory on itself, for good.
        if not before["netns_mounted"] and _NETNS.exists() and not any(_NETNS.iterdir()):
            files.unmount_below(_NETNS)
        for path in _DIRECTORIES:
            if path not in existed:
                _remove_empty(path)
        _RECORD.unlink()
        # Unless a new bed is being made right now.
        with contextlib.suppress(OSError):
            STATE_ROOT.rmdir()


def _parameter(name: str) -> Path:
    return Path("/proc/sys") / name


def _remove_empty(path: Path) -> None:
    """Delete empty directories from the leaves up; what holds a file stays."""
    for directory, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(directory)
