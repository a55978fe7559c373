# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files that are whole or absent, and trees that go away without taking others along."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import BedError


def write(path: Path, text: str, mode: int = 0o644) -> bool:
    """Write a file by rename; return whether its text changed."""
    if path.exists() and path.read_text() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    temporary.chmod(mode)
    temporary.rename(path)
    return True


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock; the kernel frees it however this process ends.

    Programs that are run meanwhile inherit it: when this process is killed, its
    debootstrap may go on, and nobody shall work in the same place until it ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        os.set_inheritable(stream.fileno(), True)
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def mounts_below(path: Path) -> list[Path]:
    """Mount points at or below a path, the innermost first."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = Path(line.split()[4].encode().decode("unicode_escape"))
        if point == path or path in point.parents:
            found.append(point)
    return found[::-1]


def unmount_below(path: Path) -> None:
    """Unmount everything at or below a path."""
    for point in mounts_below(path):
        # Lazily: a process that is just dying may still hold the mount.
        subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)


def remove_tree(path: Path) -> None:
    """Delete a tree, after unmounting what is mounted in it.

    Deleting through a mount would delete somebody else's files (/proc of an
    interrupted debootstrap, the shared template below a host's overlay).
    """
    if not path.exists():
        return
    unmount_below(path)
    left = mounts_below(path)
    if left:
        raise BedError(f"not deleting {path}: still mounted: {', '.join(map(str, left))}")
    shutil.rmtree(path)
