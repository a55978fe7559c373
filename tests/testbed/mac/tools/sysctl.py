# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /usr/sbin/sysctl: the keys that Ansible and the fleet read, and the one that it sets.

An issue says: what is set is lost at a reboot, and /etc/sysctl.conf is ignored on Apple silicon.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Sequence
from typing import Any

from .. import machine, places, store
from ..program import ProgramError, is_root

_DOCUMENT = "sysctl"
_SETTABLE = {"iogpu.wired_limit_mb": 0, "kern.maxfiles": 245760, "kern.maxfilesperproc": 122880}
_USAGE = "usage: sysctl [-bn] name[=value] ...   (emulated Mac: these alone)"


def main(argv: Sequence[str]) -> int:
    """Print or set what is named; a node stands for all keys below it."""
    flags = "".join(word[1:] for word in argv if word.startswith("-"))
    words = [word for word in argv if not word.startswith("-")]
    if not words or set(flags) - set("bnw"):
        raise ProgramError(1, _USAGE)
    failures = [_one(word, flags) for word in words]
    return 1 if any(failures) else 0


def _one(word: str, flags: str) -> bool:
    """Handle one argument; whether it failed."""
    key, equals, value = word.partition("=")
    keys = _keys()
    try:
        if equals:
            _set(key, value, keys)
            return False
        names = [key] if key in keys else [name for name in keys if name.startswith(f"{key}.")]
        if not names:
            raise ProgramError(1, f"sysctl: unknown oid '{key}'")
        for name in names:
            _print(name, keys[name], flags)
    except ProgramError as error:
        print(error.text, file=sys.stderr)
        return True
    return False


def _print(name: str, value: Any, flags: str) -> None:
    if "b" in flags:
        sys.stdout.buffer.write(value if isinstance(value, bytes) else str(value).encode())
        return
    if isinstance(value, bytes):
        seconds = struct.unpack("<qq", value)[0]
        value = f"{{ sec = {seconds}, usec = 0 }} {time.ctime(seconds)}"
    print(value if "n" in flags else f"{name}: {value}")


def _set(key: str, value: str, keys: dict[str, Any]) -> None:
    if key not in keys:
        raise ProgramError(1, f"sysctl: unknown oid '{key}'")
    if key not in _SETTABLE:
        raise ProgramError(1, f"sysctl: oid '{key}' is read only")
    if not value.isdigit():
        raise ProgramError(1, f"sysctl: invalid integer '{value}'")
    if not is_root():
        raise ProgramError(1, f"sysctl: {key}={value}: Operation not permitted")
    with store.changed(store.until_reboot(_DOCUMENT)) as content:
        content[key] = int(value)
    print(f"{key}: {keys[key]} -> {value}")


def _keys() -> dict[str, Any]:
    cores = machine.get("cores")
    name = places.place("/etc/hostname")
    version = f"Darwin Kernel Version {machine.KERNEL}: emulated; root:xnu/RELEASE_ARM64_T6041"
    boot = store.read(store.until_reboot(store.BOOT)).get("time", 0)
    fixed = {
        "hw.model": machine.get("model"),
        "hw.ncpu": cores,
        "hw.activecpu": cores,
        "hw.physicalcpu": cores,
        "hw.physicalcpu_max": cores,
        "hw.logicalcpu": cores,
        "hw.logicalcpu_max": cores,
        "hw.memsize": machine.get("memory"),
        "hw.pagesize": 16384,
        "hw.cputype": 16777228,
        "hw.optional.arm64": 1,
        "hw.targettype": "J773s",
        "machdep.cpu.brand_string": machine.get("processor"),
        "machdep.cpu.core_count": cores,
        "machdep.cpu.thread_count": cores,
        "kern.ostype": "Darwin",
        "kern.osrelease": machine.KERNEL,
        "kern.osrevision": 199506,
        "kern.osversion": machine.get("build"),
        "kern.osproductversion": machine.get("version"),
        "kern.version": version,
        "kern.hostname": name.read_text().strip() if name.exists() else "mac.local",
        "kern.boottime": struct.pack("<qq", boot, 0),
        "kern.hv_vmm_present": 0,
        "sysctl.proc_translated": 0,
    }
    return {**fixed, **_SETTABLE, **store.read(store.until_reboot(_DOCUMENT))}
