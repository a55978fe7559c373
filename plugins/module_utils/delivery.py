# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files that arrive on a host by digest, in chunks, so that an interrupted transfer goes on.

The controller puts chunks into the connection's temporary folder; ``ingest`` appends each to
``<incoming>/<sha256>/data``. A file is used only after ``verified`` has read all of it: what lies
in ``incoming`` proves nothing, not even when its size is right.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import time
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils import disk
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

INCOMING = "/var/lib/tether/incoming"
STALE_SECONDS = 14 * 24 * 3600

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

# Set by the action plugins, never by people.
DELIVER_SPEC: Dict[str, Any] = {
    "type": "dict",
    "options": {
        "only": {"type": "bool", "default": False},
        "chunks": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "file": {"type": "str", "required": True},
                "total": {"type": "int", "required": True},
                "offset": {"type": "int", "required": True},
                "size": {"type": "int", "required": True},
                "sha256": {"type": "str", "required": True},
                "path": {"type": "path", "required": True},
            },
        },
    },
}


def have(incoming: str, digests: Iterable[str]) -> Dict[str, int]:
    """Bytes of each file that are there already."""
    found: Dict[str, int] = {}
    for digest in digests:
        try:
            found[digest] = os.lstat(_data(incoming, digest)).st_size
        except (FileNotFoundError, NotADirectoryError):
            found[digest] = 0
    return found


def needs(wanted: Dict[str, Dict[str, Any]], arrived: Dict[str, int]) -> List[Dict[str, Any]]:
    """What the controller still has to send.

    :param wanted: per digest ``{"what": text, "size": bytes or None}``
    :param arrived: what ``have`` said
    """
    missing = []
    for digest, entry in sorted(wanted.items()):
        size, there = entry.get("size"), arrived.get(digest, 0)
        if size is not None and there > size:
            there = 0
        if size is None or there < size:
            missing.append({"sha256": digest, "size": size, "have": there, "what": entry["what"]})
    return missing


def check_space(missing: List[Dict[str, Any]], folder: str, free: int) -> None:
    """Refuse before the first byte when what is to come does not fit.

    :raises Refusal: naming what is free and what is needed
    """
    need = sum(item["size"] - item["have"] for item in missing if item["size"] is not None)
    if need > free:
        what = ", ".join(item["what"] for item in missing)
        raise disk.no_space(what, folder, need, free)


def ingest(incoming: str, chunks: List[Dict[str, Any]]) -> Dict[str, int]:
    """Append chunks to their files; each chunk is removed from where it was put.

    A chunk that does not start where the file ends is left out: another run was faster, or the file
    was removed. The answer says where to go on.

    :param chunks: ``{"file": digest of the whole, "total": its size, "offset", "size", "sha256" of
        the chunk, "path": where it was put}``
    :return: per file the bytes that are there now
    """
    disk.make_folder(os.path.dirname(incoming))
    disk.make_folder(incoming, 0o700)
    _drop_stale(incoming, {chunk["file"] for chunk in chunks})
    for chunk in chunks:
        disk.make_folder(os.path.join(incoming, chunk["file"]), 0o700)
        try:
            _append(_data(incoming, chunk["file"]), chunk)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(chunk["path"])
    return have(incoming, [chunk["file"] for chunk in chunks])


def verified(incoming: str, digest: str, size: Optional[int], what: str) -> str:
    """The path of a whole file, read to its end and found right; a wrong one is removed.

    :raises Refusal: naming the digest that was found and the one that was expected
    """
    path = _data(incoming, digest)
    try:
        length, found = os.lstat(path).st_size, disk.hash_file(path)
    except FileNotFoundError:
        raise Refusal(
            what, "no file in %s" % path, "it to have arrived", "Run the playbook once more"
        ) from None
    if found != digest or (size is not None and length != size):
        discard(incoming, digest)
        raise Refusal(
            what,
            "sha256 %s (%d bytes) on the host" % (found, length),
            "sha256 %s%s" % (digest, "" if size is None else " (%d bytes)" % size),
            "Run the playbook once more; if it happens again, the disk or the link damages data",
        )
    return path


def discard(incoming: str, digest: str) -> None:
    """Forget a file that was used or was wrong."""
    shutil.rmtree(os.path.join(incoming, digest), ignore_errors=True)


def take(module: AnsibleModule) -> None:
    """Take the chunks that the module was called with; exits it when that is all it is to do."""
    deliver = module.params["deliver"]
    if deliver is None or module.check_mode:
        return
    there = ingest(module.params["incoming"], deliver["chunks"])
    if deliver["only"]:
        module.exit_json(changed=False, have=there)


def _data(incoming: str, digest: str) -> str:
    return os.path.join(incoming, digest, "data")


def _append(path: str, chunk: Dict[str, Any]) -> None:
    output = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(output, fcntl.LOCK_EX)
        offset = chunk["offset"]
        end = os.fstat(output).st_size
        if end > chunk["total"]:  # longer than the whole file is: of no use
            os.ftruncate(output, 0)
            end = 0
        if end != offset:
            return
        os.lseek(output, offset, os.SEEK_SET)
        try:
            count, digest = _copy_chunk(chunk, output)
        except OSError as error:
            os.ftruncate(output, offset)
            if error.errno == errno.ENOSPC:
                raise disk.no_space(path, path, chunk["size"], disk.free_bytes(path)) from error
            raise
        if count != chunk["size"] or digest != chunk["sha256"]:
            os.ftruncate(output, offset)
            raise Refusal(
                "chunk at %d of %s" % (offset, chunk["file"]),
                "%d bytes with sha256 %s" % (count, digest),
                "%d bytes with sha256 %s" % (chunk["size"], chunk["sha256"]),
                "Run the playbook once more: it goes on where this one stopped",
            )
    finally:
        os.close(output)


def _copy_chunk(chunk: Dict[str, Any], output: int) -> Tuple[int, str]:
    def write(block: bytes) -> None:
        view = memoryview(block)
        while view:
            view = view[os.write(output, view) :]

    # Copied, never renamed: the account that put the chunk may still hold it open.
    source = os.open(chunk["path"], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(source, "rb") as stream:
        copied = disk.copy_stream(stream.read, write, chunk["size"])
    os.fsync(output)
    return copied


def _drop_stale(incoming: str, wanted: Iterable[str]) -> None:
    """Remove transfers that nobody went on with for two weeks."""
    keep = set(wanted)
    for name in os.listdir(incoming):
        path = os.path.join(incoming, name)
        with contextlib.suppress(OSError):
            newest = max(os.lstat(p).st_mtime for p in (path, os.path.join(path, "data")))
            if name not in keep and newest < time.time() - STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
