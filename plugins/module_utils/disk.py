# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Small, careful file-system steps that the artifact and model stores share on hosts."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils import os_trouble
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal, Step

BLOCK = 1024 * 1024
# How names begin of what is not finished yet. They are made under the store's lock alone: whoever
# holds it and finds such a name finds what a killed run left.
TEMPORARY = ".tmp-"


def hash_file(path: str) -> str:
    """The file's sha256 as hex digits; a link at the end of the path is not followed."""
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        for block in iter(lambda: stream.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def copy_stream(
    read: Callable[[int], bytes], write: Callable[[bytes], Any], limit: Optional[int] = None
) -> Tuple[int, str]:
    """Copy until the end, but never much more than ``limit`` bytes.

    :return: bytes copied (more than ``limit`` when the source holds more) and their sha256
    """
    digest, count = hashlib.sha256(), 0
    while True:
        block = read(BLOCK)
        if not block:
            break
        count += len(block)
        if limit is not None and count > limit:
            break
        digest.update(block)
        write(block)
    return count, digest.hexdigest()


def own(target: Any, gid: int = 0) -> None:
    """Give a path or descriptor to root; without root's rights (in tests) it stays as it is."""
    if os.geteuid() == 0:
        if isinstance(target, int):
            os.fchown(target, 0, gid)
        else:
            os.chown(target, 0, gid, follow_symlinks=False)


def is_ours(status: os.stat_result) -> bool:
    """Owned by whoever runs this (root, outside tests) and writable by nobody else."""
    loose = 0 if stat.S_ISLNK(status.st_mode) else status.st_mode & 0o022
    return status.st_uid == os.geteuid() and not loose


def make_folder(path: str, mode: int = 0o755) -> None:
    """Make a folder and its missing parents (0755), whatever the umask is.

    What exists is not changed, but must be a folder that nobody else could fill.

    :raises Refusal: for a link, a file, or a folder that belongs to somebody else
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        parent = os.path.dirname(path)
        if not os.path.isdir(parent):
            make_folder(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
            own(path)
            os.chmod(path, mode)
            sync_folder(parent)
        status = os.lstat(path)
    check_folder(path, status)


def check_folder(path: str, status: Optional[os.stat_result] = None) -> bool:
    """Whether the folder exists; raises Refusal when it is no folder of ours."""
    if status is None:
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
    if not stat.S_ISDIR(status.st_mode) or not is_ours(status):
        kind = "directory" if stat.S_ISDIR(status.st_mode) else "file or link"
        raise Refusal(
            path,
            "a %s of uid %d with mode %04o" % (kind, status.st_uid, stat.S_IMODE(status.st_mode)),
            "nothing, or root's own directory that nobody else can write",
            "Find out who made it, then move it away",
        )
    return True


def sync_folder(path: str) -> None:
    """Make what was renamed in this folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_link(path: str) -> Optional[str]:
    """The target of a link, None when there is none, Refusal when it is something else."""
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    raise Refusal(
        path, "something that is no link", "a link of the collection, or nothing", "Move it away"
    )


def switch_link(path: str, target: str) -> None:
    """Point a link elsewhere by one rename: a reader finds the old target or the new one."""
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, TEMPORARY + "link-%d" % os.getpid())
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    os.symlink(target, temporary)
    own(temporary)
    os.replace(temporary, path)
    sync_folder(folder)


def drop_tree(path: str) -> None:
    """Remove a tree; its name is free at once, also when the removal is then interrupted."""
    folder = os.path.dirname(path)
    doomed = tempfile.mkdtemp(prefix=TEMPORARY + "gone-", dir=folder)
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, os.path.join(doomed, "tree"))
    sync_folder(folder)
    shutil.rmtree(doomed)


def remove(path: str) -> None:
    """Remove a file, a link or a tree where it lies: unlike ``drop_tree`` it needs no room."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def leftovers(folder: str) -> List[str]:
    """What killed runs left in a folder; nothing of a folder that others can write."""
    try:
        if not is_ours(os.lstat(folder)):
            return []
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(os.path.join(folder, name) for name in names if name.startswith(TEMPORARY))


def removals(paths: List[str], **data: Any) -> List[Step]:
    """Steps that remove leftovers: the first of a plan, since they make room."""
    return [Step("remove", "leftover", path, data=dict(data, path=path)) for path in paths]


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold an exclusive lock on a file: two runs against one host take turns."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def free_bytes(path: str) -> int:
    """Free space where ``path`` is or will be."""
    status = os.statvfs(os_trouble.existing(path))
    return status.f_bavail * status.f_frsize


def human(count: float) -> str:
    """A size for people: ``17.9 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return "%.0f %s" % (count, unit) if unit == "B" else "%.1f %s" % (count, unit)
        count /= 1000
    return "%.1f TB" % count


def no_space(what: str, path: str, need: int, free: int) -> Refusal:
    """The refusal for what does not fit; the same whether that was foreseen or happened."""
    mount = os_trouble.mount_of(path)
    lack = os_trouble.shortage(path)
    if lack and "inodes" in lack:
        expected = "inodes for all of its files"
    else:
        expected = "%s (%d bytes) free there" % (human(need), need)
    return Refusal(
        what,
        "%s on the file system at %s" % (lack or "%s free" % human(free), mount),
        expected,
        "Make room there (df -h %s; df -i %s), for example by removing models or versions that"
        " nothing uses, then run again" % (mount, mount),
    )


def facts_of(status: os.stat_result) -> Dict[str, Any]:
    """What a quick look compares: size, change time and mode."""
    return {
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "mode": "%04o" % stat.S_IMODE(status.st_mode),
    }
