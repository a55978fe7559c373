# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A set of files, directories and links on a host, planned and written in one go.

One call takes a whole configuration, where ``copy``, ``file`` and ``template`` would each cost a
round trip an item. Files are replaced by rename, so a reader sees the old text or the new one and a
kill in between leaves the old one. Owner and mode are set before the rename: a secret is never
readable under its final name by anybody it is not meant for.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import os
import pwd
import re
import stat
import tempfile
from typing import Any, Dict, List, Optional, Set

from ansible_collections.tether.fleet.plugins.module_utils.plan import MASK, Plan, Refusal, Step

# Larger files are artifacts or models and have modules of their own; a "configuration" of this
# size is a mistake, and reading it for a diff would be one too.
MAX_CONTENT = 4 * 1024 * 1024

ENTRY_SPEC: Dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "state": {
        "type": "str",
        "choices": ["file", "directory", "link", "absent"],
        "default": "file",
    },
    "content": {"type": "str"},
    "secret_content": {"type": "str", "no_log": True},
    "target": {"type": "path"},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str"},
    "mode": {"type": "str"},
}
# A survey gets no secrets: it compares digests, and never writes.
SURVEY_SPEC: Dict[str, Any] = {
    "files": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": dict(ENTRY_SPEC, content_sha256={"type": "str"}),
    },
}
ARGUMENT_SPEC: Dict[str, Any] = {
    "files": {"type": "list", "elements": "dict", "required": True, "options": ENTRY_SPEC},
}

_MODE = re.compile(r"0?[0-7]{3}|[0-7]{4}")
_DEFAULT_MODE = {"file": "0644", "directory": "0755"}


def observe(desired: Dict[str, Any]) -> Dict[str, Any]:
    """Read each path once, never following a link at its end.

    :param desired: ``{"files": [entry, ...]}``, entries as in ``ENTRY_SPEC``
    :return: ``{"paths": {path: None | {"type", "mode", "uid", "gid", "content", "target",
        "names"}}, "owners": {name: uid | None}, "groups": {name: gid | None},
        "primary": {owner: gid | None}}``
    :raises Refusal: when an entry contradicts itself, or its path leads through a stranger's link
    """
    entries = desired["files"]
    check_entries(entries)
    for entry in entries:
        _refuse_links(entry["path"])
    owners = {entry["owner"] for entry in entries if entry["state"] != "absent"}
    groups = {entry["group"] for entry in entries if entry.get("group")}
    passwd = {name: _passwd(name) for name in owners}
    return {
        "paths": {entry["path"]: _look(entry["path"]) for entry in entries},
        "owners": {name: None if item is None else item.pw_uid for name, item in passwd.items()},
        "primary": {name: None if item is None else item.pw_gid for name, item in passwd.items()},
        "groups": {name: _gid(name) for name in groups},
    }


def plan(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """What differs, as steps: directories from the top down, then files and links, then removals.

    An owner that does not exist yet is taken as one that an earlier task will make, so that check
    mode works on a fresh host; ``apply`` refuses if it is still missing.
    """
    result = Plan()
    order = {"directory": 0, "file": 1, "link": 1, "absent": 2}
    entries = sorted(
        desired["files"],
        key=lambda e: (
            order[e["state"]],
            e["path"] if e["state"] == "directory" else "",
            -len(e["path"]) if e["state"] == "absent" else 0,
        ),
    )
    absent = {entry["path"] for entry in entries if entry["state"] == "absent"}
    for entry in entries:
        step = _plan_entry(entry, observed, absent)
        if step is not None:
            result.steps.append(step)
    return result


def apply(plan: Plan) -> Dict[str, Any]:
    """Carry the steps out, in order."""
    for step in plan.steps:
        if step.action == "remove":
            _remove(step.name, step.kind)
        else:
            _write(step.data["entry"])
    return {}


def check_entries(entries: List[Dict[str, Any]]) -> None:
    """Refuse entries that contradict themselves or each other.

    :raises Refusal: naming the path and the key
    """
    seen = set()
    for entry in entries:
        path = entry["path"]
        what = "files entry %s" % path
        keys = ("content", "secret_content", "content_sha256")
        given = [k for k in keys if entry.get(k) is not None]
        # A slash at the end would make lstat follow a link; ".." would hide a parent from the
        # check of parents.
        if not os.path.isabs(path) or os.path.normpath(path) != path or path in ("/", "//"):
            raise Refusal(
                what,
                "a path that is relative or not in its shortest form",
                "an absolute path without ., .., // or a slash at the end",
                "Give the whole path: %s" % os.path.normpath(os.path.join("/", path)),
            )
        if path in seen:
            raise Refusal(what, "two entries for it", "one", "Merge them")
        seen.add(path)
        if entry.get("mode") is not None and not _MODE.fullmatch(entry["mode"]):
            raise Refusal(
                what,
                "mode %r" % entry["mode"],
                "three or four octal digits, for example '0640'",
                "Write the mode in quotes, as octal digits",
            )
        if given and "content_sha256" not in given and len(_content(entry)) > MAX_CONTENT:
            raise Refusal(
                what,
                "%d bytes of text" % len(_content(entry)),
                "at most %d" % MAX_CONTENT,
                "Install large files as an artifact or a model",
            )
        if entry["state"] == "file" and len(given) != 1:
            raise Refusal(
                what,
                "%s of content and secret_content" % (given or "neither"),
                "exactly one of them",
                "Give the file's text once",
            )
        if entry["state"] != "file" and given:
            raise Refusal(
                what, given[0], "no content for state=%s" % entry["state"], "Remove that key"
            )
        if (entry["state"] == "link") != bool(entry.get("target")):
            raise Refusal(
                what,
                "target=%r with state=%s" % (entry.get("target"), entry["state"]),
                "a target for a link and for nothing else",
                "Mend that entry",
            )


def write_file(
    path: str, data: bytes, mode: int, uid: Optional[int] = None, gid: Optional[int] = None
) -> None:
    """Replace ``path`` by rename with ``data``; owner and mode are set before it has that name."""
    folder = os.path.dirname(path)
    handle, temporary = tempfile.mkstemp(prefix=".tether-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchown(stream.fileno(), -1 if uid is None else uid, -1 if gid is None else gid)
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def text(path: str) -> Optional[str]:
    """A file's text, with a mark for what is none; None where there is no file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_roots(path: str, mode: int) -> bool:
    """Whether there is a plain file of root's with this mode, for others to do no more with it."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    found = (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
    return stat.S_ISREG(status.st_mode) and found == (mode, 0, 0)


def _look(path: str) -> Optional[Dict[str, Any]]:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    found: Dict[str, Any] = {
        "mode": "%04o" % stat.S_IMODE(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
    }
    if stat.S_ISLNK(status.st_mode):
        found.update(type="link", target=os.readlink(path))
    elif stat.S_ISDIR(status.st_mode):
        found.update(type="directory", names=sorted(os.listdir(path)))
    elif stat.S_ISREG(status.st_mode):
        found.update(type="file", content=_read(path) if status.st_size <= MAX_CONTENT else None)
    else:
        found.update(type="special")
    return found


def _read(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()


def _passwd(name: str) -> Optional[pwd.struct_passwd]:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _gid(name: str) -> Optional[int]:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def _content(entry: Dict[str, Any]) -> bytes:
    text = entry["secret_content"] if entry.get("secret_content") is not None else entry["content"]
    data: bytes = text.encode("utf-8")
    return data


def _plan_entry(
    entry: Dict[str, Any], observed: Dict[str, Any], absent: Set[str]
) -> Optional[Step]:
    path, state = entry["path"], entry["state"]
    found = observed["paths"].get(path)
    if state == "absent":
        if found is None:
            return None
        left = [n for n in found.get("names", []) if os.path.join(path, n) not in absent]
        if left:
            raise Refusal(
                "directory %s" % path,
                "%d more in it, for example %s" % (len(left), left[0]),
                "an empty directory",
                "List what is in it as state=absent too, or move it away",
            )
        return Step("remove", found["type"], path, before=_describe(found, True))
    if found is not None and found["type"] == "directory" and state != "directory":
        raise Refusal(
            "%s %s" % (state, path),
            "a directory of that name",
            "nothing, or a file or link to replace",
            "Move that directory away",
        )
    if found is not None and state == "directory" and found["type"] != "directory":
        raise Refusal(
            "directory %s" % path,
            "a %s of that name" % found["type"],
            "nothing, or a directory",
            "Move that %s away" % found["type"],
        )
    secret = any(entry.get(key) is not None for key in ("secret_content", "content_sha256"))
    wanted: Dict[str, Any] = {"type": state}
    if state == "link":
        wanted["target"] = entry["target"]
    else:
        wanted["mode"] = "%04o" % int(entry.get("mode") or _DEFAULT_MODE[state], 8)
        wanted["uid"] = observed["owners"][entry["owner"]]
        group = entry.get("group")
        wanted["gid"] = observed["groups"][group] if group else observed["primary"][entry["owner"]]
    if state == "file":
        wanted["sha256"] = entry.get("content_sha256") or _sha256(_content(entry))
        if found is not None and found.get("content") is not None:
            found = dict(found, sha256=_sha256(found["content"]))
    if found is not None and all(found.get(key) == value for key, value in wanted.items()):
        return None
    return Step(
        "create" if found is None else "update",
        state,
        path,
        before=None if found is None else _describe(found, secret),
        after=_describe(dict(wanted, content=_shown(entry, secret)), secret, entry)
        + _hint(found, wanted, secret),
        data={"entry": entry},
    )


def _shown(entry: Dict[str, Any], secret: bool) -> Optional[bytes]:
    """A file's text for the diff; of a secret only that there is one."""
    if entry["state"] != "file":
        return None
    return b"" if secret else _content(entry)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _hint(found: Optional[Dict[str, Any]], wanted: Dict[str, Any], secret: bool) -> str:
    """For a masked file, whether it is the content that changes: the mask looks the same."""
    same = found is not None and found.get("sha256") == wanted.get("sha256")
    return "" if same or not secret else "(its content changes)\n"


def _describe(item: Dict[str, Any], secret: bool, entry: Optional[Dict[str, Any]] = None) -> str:
    """A text for the diff: owner and mode on a line of their own, then the content or a mask."""
    if item["type"] == "link":
        return "link to %s\n" % item["target"]
    if entry is not None:
        owner = "%s:%s" % (entry["owner"], entry.get("group") or "(primary group)")
    else:
        owner = "%s:%s" % (item["uid"], item["gid"])
    head = "# mode %s, owner %s\n" % (item.get("mode"), owner)
    content: Optional[bytes] = item.get("content")
    if content is None:
        return head
    if secret:
        return head + MASK + "\n"
    return head + content.decode("utf-8", "replace")


def _write(entry: Dict[str, Any]) -> None:
    path, state = entry["path"], entry["state"]
    _check_parents(path)
    if state == "link":
        temporary = "%s/.tether-link-%d" % (os.path.dirname(path), os.getpid())
        if os.path.lexists(temporary):  # of a killed run that had the same process id
            os.unlink(temporary)
        os.symlink(entry["target"], temporary)
        os.rename(temporary, path)
        return
    account = _passwd(entry["owner"])
    gid = _gid(entry["group"]) if entry.get("group") else (account.pw_gid if account else None)
    if account is None or gid is None:
        raise Refusal(
            "%s %s" % (state, path),
            "no account %s or no group %s on this host" % (entry["owner"], entry.get("group")),
            "both to exist",
            "Run the roles that come before this one, in particular baseline",
        )
    mode = int(entry.get("mode") or _DEFAULT_MODE[state], 8)
    if state == "directory":
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        os.chown(path, account.pw_uid, gid)
        os.chmod(path, mode)
    else:
        write_file(path, _content(entry), mode, account.pw_uid, gid)


def _check_parents(path: str) -> None:
    """Refuse a path whose directory is missing or reached through a stranger's link."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise Refusal(
            path,
            "no directory %s" % folder,
            "it to exist",
            "List that directory as an entry of its own",
        )
    _refuse_links(path)


def _refuse_links(path: str) -> None:
    """Refuse a path that leads through a link which somebody other than root made.

    A folder that an engine's account may write must not be able to send root's write elsewhere.
    """
    folder = os.path.dirname(path)
    while folder not in ("", "/"):
        try:
            status = os.lstat(folder)
        except (FileNotFoundError, NotADirectoryError):
            folder = os.path.dirname(folder)
            continue
        if stat.S_ISLNK(status.st_mode) and status.st_uid != 0:
            raise Refusal(
                path,
                "the link %s, made by uid %d" % (folder, status.st_uid),
                "directories, or links made by root",
                "Find out who made that link, then remove it",
            )
        folder = os.path.dirname(folder)


def _remove(path: str, kind: str) -> None:
    _check_parents(path)
    if kind == "directory":
        try:
            os.rmdir(path)
        except OSError as error:
            raise Refusal(
                "directory %s" % path,
                "it is not empty or is in use (%s)" % error.strerror,
                "an empty directory",
                "List what is in it as state=absent too, or move it away",
            ) from error
    else:
        os.unlink(path)
