# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Archives, unpacked so that nothing in them can reach outside the folder they go to.

Two halves: ``list_members`` and ``select`` decide from the names, kinds and sizes alone (pure,
tested with tables and with generated archives), ``unpack`` writes what they chose. Every refusal
of the first half comes before the first byte is written. A digest says that an archive is the one
that was pinned; this says that pinning it was no mistake.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, Any, Dict, Iterator, List, Optional, Set, Tuple, Type, Union

from ansible_collections.tether.fleet.plugins.module_utils import disk
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

FORMATS = ("wheel", "zip", "tar", "raw")
MANIFEST = ".tether-manifest.json"
# The largest pinned artifact unpacks to some 100 MB; GPU builds of engines reach a few GB.
MAX_BYTES = 16 * 1024**3
MAX_MEMBERS = 50000
MAX_LINK = 4096

_BROKEN: Tuple[Type[BaseException], ...] = (
    zipfile.BadZipFile,
    tarfile.TarError,
    EOFError,
    zlib.error,
    RuntimeError,  # an encrypted member
    NotImplementedError,  # a compression that this Python lacks
    UnicodeError,
    ValueError,
)
try:
    import lzma

    _BROKEN += (lzma.LZMAError,)
except ImportError:  # a Python that was built without it; tar.xz is then refused by tarfile
    pass


@dataclass
class Member:
    """One entry of an archive.

    :ivar name: relative, without ``.`` and ``..``, no slash at its end
    :ivar kind: ``file``, ``directory``, ``link`` or ``hardlink``
    :ivar mode: permission bits as the archive gives them
    :ivar target: where a link leads; for a hard link the name of another member
    :ivar raw: what ``zipfile`` or ``tarfile`` know it as
    """

    name: str
    kind: str
    size: int = 0
    mode: int = 0
    target: str = ""
    raw: Any = None


@dataclass
class Item:
    """One file or link to be made: ``to`` is relative to the version's folder."""

    to: str
    member: Member
    mode: int


def safe_name(name: str, what: str) -> str:
    """The name in its plain form; ``""`` for the archive's own root.

    :raises Refusal: for a name that is absolute, leads upwards, or is not plain text
    """
    found = "the member %r" % name
    parts = [part for part in name.split("/") if part not in ("", ".")]
    # A drive's letter counts in the plain form too: "./c:x" is written as "c:x".
    if name.startswith("/") or (parts and re.match(r"[A-Za-z]:", parts[0])):
        raise _unsafe(what, found + ", an absolute path")
    if "\\" in name or any(ord(char) < 32 or ord(char) == 127 for char in name):
        raise _unsafe(what, found + ", with a backslash or a control character")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise _unsafe(what, found + ", which is not UTF-8") from None
    if ".." in parts:
        raise _unsafe(what, found + ", which leads out of the archive by '..'")
    return "/".join(parts)


def check_members(members: List[Member], what: str) -> None:
    """Refuse an archive by its listing: duplicates, too much, links as parents.

    :raises Refusal: naming the member
    """
    if len(members) > MAX_MEMBERS:
        raise _unsafe(what, "%d members" % len(members), "at most %d" % MAX_MEMBERS)
    total = sum(member.size for member in members)
    if total > MAX_BYTES:
        raise _unsafe(
            what,
            "members that unpack to %s" % disk.human(total),
            "at most %s" % disk.human(MAX_BYTES),
        )
    kinds: Dict[str, str] = {}
    for member in members:
        before = kinds.get(member.name)
        if before is not None and (before, member.kind) != ("directory", "directory"):
            raise _unsafe(what, "the member %r twice" % member.name)
        kinds[member.name] = member.kind
    _check_parents(kinds, what)


def select(members: List[Member], extract: List[Dict[str, Any]], what: str) -> List[Item]:
    """What goes where.

    :param extract: entries ``{"from", "to", "mode"}``: ``from`` is a member, or with a slash at its
        end everything below it (``./`` for all); ``to`` likewise; ``mode`` is octal text or None
    :raises Refusal: for a member that is missing, two for one place, or a link that leads out
    """
    by_name = {member.name: member for member in members}
    items: Dict[str, Item] = {}
    for entry in extract:
        chosen = _choose(entry, members, by_name, what)
        for member, to in chosen:
            if member.kind == "hardlink":
                member = _follow_hardlink(member, by_name, what)
            if to in items or to == MANIFEST or not to:
                raise _unsafe(what, "two members for %r, or a reserved name" % to)
            items[to] = Item(to, member, _mode(member, entry.get("mode")))
    kinds = {to: item.member.kind for to, item in items.items()}
    _check_parents(kinds, what)
    for item in items.values():
        if item.member.kind == "link":
            _check_link(item.to, item.member.target, what)
    return list(items.values())


def unpack(
    path: str, form: str, extract: List[Dict[str, Any]], folder: str, what: str
) -> Dict[str, Dict[str, Any]]:
    """Unpack the chosen members into an empty folder, each synced to the disk.

    :return: per path in ``folder`` ``{"sha256", "size", "mode", "mtime_ns"}`` or ``{"link"}``
    :raises Refusal: for everything that is wrong with the archive, and for a full disk
    """
    try:
        if form == "raw":
            return _unpack_raw(path, extract, folder, what)
        with _opened(path, form) as archive:
            members = archive.members(what)
            check_members(members, what)
            items = select(members, extract, what)
            need = sum(item.member.size for item in items)
            if need > disk.free_bytes(folder):
                raise disk.no_space(what, folder, need, disk.free_bytes(folder))
            return _write_items(archive, items, folder, what)
    except _BROKEN as error:
        raise _broken(what, str(error) or type(error).__name__) from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            need = os.stat(path).st_size
            raise disk.no_space(what, folder, need, disk.free_bytes(folder)) from error
        if error.errno is None:  # how bz2 and gzip say that the stream is damaged
            raise _broken(what, str(error)) from error
        raise


class _Zip:
    """A zip file, or a wheel, which is one."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive

    def members(self, what: str) -> List[Member]:
        found = [_zip_member(self.archive, info, what) for info in self.archive.infolist()]
        return _without_root(found)

    def open(self, member: Member) -> IO[bytes]:
        return self.archive.open(member.raw)

    def order(self, items: List[Item]) -> List[Item]:
        return items


class _Tar:
    """A tar file, compressed or not."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self.archive = archive

    def members(self, what: str) -> List[Member]:
        return _without_root([_tar_member(info, what) for info in self.archive.getmembers()])

    def open(self, member: Member) -> IO[bytes]:
        stream = self.archive.extractfile(member.raw)
        if stream is None:
            raise tarfile.ReadError("no data for %s" % member.name)
        return stream

    def order(self, items: List[Item]) -> List[Item]:
        # As they lie in the archive: a compressed one is read once from front to back.
        return sorted(items, key=lambda item: int(item.member.raw.offset_data))


@contextlib.contextmanager
def _opened(path: str, form: str) -> Iterator[Union[_Zip, _Tar]]:
    if form in ("zip", "wheel"):
        with zipfile.ZipFile(path) as packed:
            yield _Zip(packed)
    else:
        with tarfile.open(path, "r:*") as tape:
            yield _Tar(tape)


def _without_root(members: List[Member]) -> List[Member]:
    return [member for member in members if member.name or member.kind != "directory"]


def _zip_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, what: str) -> Member:
    # zipfile cuts a name at its first NUL; the whole one tells.
    name = safe_name(info.orig_filename, what)
    mode = info.external_attr >> 16
    kind = stat.S_IFMT(mode)
    if info.orig_filename.endswith("/") or kind == stat.S_IFDIR:
        return Member(name, "directory", raw=info)
    if kind == stat.S_IFLNK:
        if info.file_size > MAX_LINK:
            raise _unsafe(what, "the link %r with a target of %d bytes" % (name, info.file_size))
        return Member(name, "link", target=archive.read(info).decode("utf-8"), raw=info)
    if kind not in (0, stat.S_IFREG):
        raise _unsafe(what, "the special file %r" % name)
    return Member(_not_root(name, what), "file", info.file_size, stat.S_IMODE(mode), raw=info)


def _tar_member(info: tarfile.TarInfo, what: str) -> Member:
    name = safe_name(info.name, what)
    if info.isdir():
        return Member(name, "directory", raw=info)
    _not_root(name, what)
    if info.issym():
        return Member(name, "link", target=info.linkname, raw=info)
    if info.islnk():
        target = safe_name(info.linkname, what)
        return Member(name, "hardlink", target=target, mode=info.mode, raw=info)
    if not info.isreg():
        raise _unsafe(what, "the special file %r" % name)
    return Member(name, "file", info.size, stat.S_IMODE(info.mode), raw=info)


def _not_root(name: str, what: str) -> str:
    if not name:
        raise _unsafe(what, "a member without a name")
    return name


def _choose(
    entry: Dict[str, Any], members: List[Member], by_name: Dict[str, Member], what: str
) -> List[Tuple[Member, str]]:
    """The members that an extract entry means, each with its place."""
    source, to = entry["from"], entry["to"]
    target = safe_name(to, what)
    if not source.endswith("/"):
        member = by_name.get(safe_name(source, what))
        if member is None or member.kind == "directory":
            raise _missing(what, source)
        if to.endswith("/"):
            target = (target + "/" if target else "") + member.name.rsplit("/", 1)[-1]
        return [(member, target)]
    prefix = safe_name(source, what)
    prefix = prefix + "/" if prefix else ""
    base = target + "/" if target else ""
    chosen = [
        (member, base + member.name[len(prefix) :])
        for member in members
        if member.name.startswith(prefix) and member.kind != "directory"
    ]
    if not chosen:
        raise _missing(what, source)
    return chosen


def _follow_hardlink(member: Member, by_name: Dict[str, Member], what: str) -> Member:
    # Its content is copied: a hard link is never made, so it cannot lead anywhere.
    target = by_name.get(member.target)
    if target is None or target.kind != "file":
        raise _unsafe(
            what, "the hard link %r to %r, no file of the archive" % (member.name, member.target)
        )
    return Member(member.name, "file", target.size, target.mode, raw=target.raw)


def _mode(member: Member, wanted: Optional[str]) -> int:
    if wanted:
        return int(wanted, 8) & 0o755
    # Set-user-id and write rights of others are dropped, whatever the archive says.
    return 0o755 if member.mode & 0o111 else 0o644


def _check_parents(kinds: Dict[str, str], what: str) -> None:
    """No member may lie below a file or a link: that would be written through the link."""
    for name in kinds:
        parts = name.split("/")
        for depth in range(1, len(parts)):
            kind = kinds.get("/".join(parts[:depth]), "directory")
            if kind != "directory":
                raise _unsafe(
                    what, "the member %r below %r, a %s" % (name, "/".join(parts[:depth]), kind)
                )


def _check_link(place: str, target: str, what: str) -> None:
    """Refuse a link that leads out of the folder.

    ``..`` is allowed only at the front of a target. There it is climbed from a real folder (no
    member lies below a link), so counting is exact; further back it could be climbed from wherever
    another link leads.
    """
    found = "the link %r to %r, which leads out of its folder" % (place, target)
    if not target or target.startswith("/") or "\\" in target or "\0" in target:
        raise _unsafe(what, found)
    depth = place.count("/")
    climbing = True
    for part in target.split("/"):
        if part in ("", "."):
            continue
        if part != "..":
            climbing = False
            continue
        depth -= 1
        if not climbing or depth < 0:
            raise _unsafe(what, found)


def _write_items(
    archive: Union[_Zip, _Tar], items: List[Item], folder: str, what: str
) -> Dict[str, Dict[str, Any]]:
    files: Dict[str, Dict[str, Any]] = {}
    folders: Set[str] = {folder}
    for item in archive.order(items):
        path = os.path.join(folder, item.to)
        _make_parents(folder, item.to, folders)
        if item.member.kind == "link":
            os.symlink(item.member.target, path)
            disk.own(path)
            files[item.to] = {"link": item.member.target}
        else:
            with archive.open(item.member) as stream:
                files[item.to] = _write_file(stream, path, item.mode, item.member.size, what)
    for made in folders:
        disk.sync_folder(made)
    return files


def _unpack_raw(
    path: str, extract: List[Dict[str, Any]], folder: str, what: str
) -> Dict[str, Dict[str, Any]]:
    to = safe_name(extract[0]["to"], what)
    size = os.stat(path).st_size
    if size > disk.free_bytes(folder):
        raise disk.no_space(what, folder, size, disk.free_bytes(folder))
    folders: Set[str] = {folder}
    _make_parents(folder, to, folders)
    with open(path, "rb") as stream:
        mode = int(extract[0].get("mode") or "0755", 8) & 0o755
        files = {to: _write_file(stream, os.path.join(folder, to), mode, size, what)}
    for made in folders:
        disk.sync_folder(made)
    return files


def _make_parents(folder: str, to: str, made: Set[str]) -> None:
    path = folder
    for part in to.split("/")[:-1]:
        path = os.path.join(path, part)
        if path not in made:
            os.mkdir(path, 0o700)
            disk.own(path)
            os.chmod(path, 0o755)  # noqa: S103 # programs are for everybody
            made.add(path)


def _write_file(stream: IO[bytes], path: str, mode: int, size: int, what: str) -> Dict[str, Any]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError:  # on a file system that ignores case
        raise _unsafe(what, "two members for %r on this file system" % path) from None
    with os.fdopen(descriptor, "wb") as output:
        count, digest = disk.copy_stream(stream.read, output.write, size)
        if count != size:
            raise _broken(what, "%s holds %d bytes, declared %d" % (path, count, size))
        output.flush()
        disk.own(output.fileno())
        os.fchmod(output.fileno(), mode)
        os.fsync(output.fileno())
        facts = disk.facts_of(os.fstat(output.fileno()))
    return dict(facts, sha256=digest)


def _unsafe(what: str, found: str, expected: str = "") -> Refusal:
    return Refusal(
        what,
        found,
        expected or "plain files, folders and links that stay inside, each once",
        "Do not use this archive; ask its publisher, or pin another one in the lock",
    )


def _missing(what: str, source: str) -> Refusal:
    return Refusal(
        what,
        "no member %s" % source,
        "it in the archive, as the lock's extract says",
        "Mend 'extract' of that artifact in the lock",
    )


def _broken(what: str, detail: str) -> Refusal:
    return Refusal(
        what,
        "a truncated or damaged archive (%s)" % detail,
        "one that can be read to its end",
        "Check 'format' in the lock, then pin a whole file",
    )
