# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Model files on a host: ``<store>/<namespace>/<sha256>/<file name>``.

Each namespace has a copy of its own that its engine account alone can read: owner and mode belong
to the inode, so one shared copy would have to be readable by both. A file is read whole when it
arrives; a manifest beside it then remembers size and time, so that a later look costs no reading.
"""

from __future__ import annotations

import errno
import grp
import json
import os
import re
import tempfile
from typing import Any, Dict, List, Optional, Set

from ansible_collections.tether.fleet.plugins.module_utils import archive, delivery, disk, files
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal, Step

STORE = "/var/lib/tether/models"
NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]{0,199}\Z")
DIGEST = re.compile(r"[0-9a-f]{64}\Z")

ENTRY_SPEC: Dict[str, Any] = {
    "namespace": {"type": "str", "required": True},
    "name": {"type": "str", "required": True},
    "sha256": {"type": "str", "required": True},
    "size": {"type": "int"},
    "group": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}
ARGUMENT_SPEC: Dict[str, Any] = {
    "models": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": ENTRY_SPEC,
    },
    "store": {"type": "path", "default": STORE},
    "incoming": {"type": "path", "default": delivery.INCOMING},
    "prune": {"type": "bool", "default": False},
    "verify": {"type": "bool", "default": False},
    "deliver": delivery.DELIVER_SPEC,
}


def check_entries(entries: List[Dict[str, Any]]) -> None:
    """Refuse entries that cannot be meant.

    :raises Refusal: naming the model file and the key
    """
    seen: Dict[Any, str] = {}
    for entry in entries:
        what = "model file %s of %s" % (entry["name"], entry["namespace"])
        for key, pattern, expected in (
            ("namespace", NAMESPACE, "a Kubernetes namespace's name"),
            ("name", NAME, "a file name without folders"),
            ("sha256", DIGEST, "64 lower-case hex digits"),
        ):
            if not pattern.match(entry[key]):
                raise Refusal(what, "%s %r" % (key, entry[key]), expected, "Mend that entry")
        place = (entry["namespace"], entry["sha256"], entry["name"])
        text = json.dumps([entry.get("group"), entry["state"], entry.get("size")])
        if seen.setdefault(place, text) != text:
            raise Refusal(
                what, "it twice, with other keys", "each file once a namespace", "Remove one"
            )


def observe(desired: Dict[str, Any]) -> Dict[str, Any]:
    """Look at the files of the store and at what has arrived.

    :param desired: ``{"models": [entry], "store", "incoming", "prune": bool, "verify": bool}``
    :return: ``{"files": {path: None or {"mode", "gid", "ours", "fresh", "right"}}, "groups":
        {name: gid or None}, "folders": {path: {"mode", "gid"} or None}, "stored": {path: digest},
        "leftovers": [path], "arrived": {digest: bytes}, "free": bytes}``; ``right``:
        the content is the wanted one; ``fresh``: the manifest says so without reading
    """
    store, entries = desired["store"], desired["models"]
    disk.check_folder(store)
    present = [entry for entry in entries if entry["state"] == "present"]
    folders: Set[str] = set()
    found: Dict[str, Any] = {}
    for entry in entries:
        path = path_of(store, entry)
        folders.update((os.path.dirname(path), os.path.dirname(os.path.dirname(path))))
        found[path] = _look(path, entry["sha256"], desired["verify"])
    return {
        "files": found,
        "folders": {path: _look_folder(path) for path in folders},
        "groups": {entry["group"]: _gid(entry["group"]) for entry in entries if entry.get("group")},
        "stored": _stored(store),
        "leftovers": _leftovers(store),
        "arrived": delivery.have(desired["incoming"], [entry["sha256"] for entry in present]),
        "free": disk.free_bytes(desired["incoming"]),
    }


def plan(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """What killed runs left goes first, then files are added or mended, then files removed.

    The plan's facts: ``models`` (per entry its path) and ``needs`` (what has to be delivered). A
    digest that another namespace holds already is copied on the host, not sent again.
    """
    result = Plan(facts={"models": [], "needs": []})
    result.steps += disk.removals(observed["leftovers"], store=desired["store"])
    wanted: Dict[str, Dict[str, Any]] = {}
    planned: Set[str] = set()
    for entry in desired["models"]:
        path = path_of(desired["store"], entry)
        if path in planned:
            continue
        planned.add(path)
        found = observed["files"][path]
        if entry["state"] == "absent":
            if found is not None:
                result.steps.append(_removal(desired["store"], path))
            continue
        result.facts["models"].append(
            {
                "namespace": entry["namespace"],
                "name": entry["name"],
                "sha256": entry["sha256"],
                "path": path,
            }
        )
        step = _plan_file(desired, entry, path, observed)
        if step is None:
            continue
        result.steps.append(step)
        if step.data["content"]:
            copies = [p for p, digest in observed["stored"].items() if digest == entry["sha256"]]
            step.data["copies"] = sorted(p for p in copies if p != path)
            if not step.data["copies"]:
                wanted[entry["sha256"]] = {"what": title(entry), "size": entry.get("size")}
    if desired["prune"]:
        spare = sorted(set(observed["stored"]) - planned)
        result.steps += [_removal(desired["store"], path) for path in spare]
    result.facts["needs"] = delivery.needs(wanted, observed["arrived"])
    delivery.check_space(result.facts["needs"], desired["incoming"], observed["free"])
    return result


def apply(plan: Plan) -> Dict[str, Any]:
    """Carry the plan out, or change nothing while files are missing."""
    if plan.facts.get("needs"):
        return {"changed": False}
    # The last that needs a digest takes the file itself, the others copy.
    waiting: Dict[str, int] = {}
    for step in plan.steps:
        if step.data.get("content"):
            waiting[step.data["entry"]["sha256"]] = waiting.get(step.data["entry"]["sha256"], 0) + 1
    for step in plan.steps:
        store = step.data["store"]
        disk.make_folder(store)
        with disk.locked(os.path.join(store, ".lock")):
            if step.action == "remove":
                _remove(store, step.data["path"])
                continue
            digest = step.data["entry"]["sha256"]
            if step.data["content"]:
                waiting[digest] -= 1
            _store(step, last=not waiting.get(digest))
    return {}


def title(entry: Dict[str, Any]) -> str:
    """An entry for people."""
    return "%s of %s" % (entry["name"], entry["namespace"])


def path_of(store: str, entry: Dict[str, Any]) -> str:
    """Where an entry's file lies."""
    return os.path.join(store, entry["namespace"], entry["sha256"], entry["name"])


def _gid(name: str) -> Optional[int]:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def _look(path: str, digest: str, verify: bool) -> Optional[Dict[str, Any]]:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    facts = disk.facts_of(status)
    manifest = _read_manifest(path)
    remembered = manifest.get("files", {}).get(os.path.basename(path), {})
    fresh = disk.is_ours(status) and all(
        remembered.get(key) == facts[key] for key in ("size", "mtime_ns")
    )
    if os.path.islink(path):
        right = fresh = False
    else:
        right = (fresh and not verify) or disk.hash_file(path) == digest
    return {
        "mode": facts["mode"],
        "gid": status.st_gid,
        "ours": disk.is_ours(status),
        "fresh": fresh,
        "right": right,
    }


def _look_folder(path: str) -> Optional[Dict[str, Any]]:
    if not disk.check_folder(path):
        return None
    status = os.lstat(path)
    return {"mode": disk.facts_of(status)["mode"], "gid": status.st_gid}


def _stored(store: str) -> Dict[str, str]:
    """All files of the store that have a manifest, with their digests."""
    stored: Dict[str, str] = {}
    for base in _digest_folders(store):
        for name in _read_manifest(os.path.join(base, "x")).get("files", {}):
            path = os.path.join(base, name)
            if os.path.lexists(path):
                stored[path] = os.path.basename(base)
    return stored


def _leftovers(store: str) -> List[str]:
    """What killed runs left anywhere in the store: half a copy can be gigabytes."""
    folders = [store, *_folders(store), *_digest_folders(store)]
    return [path for folder in folders for path in disk.leftovers(folder)]


def _digest_folders(store: str) -> List[str]:
    found = [path for namespace in _folders(store) for path in _folders(namespace)]
    return [path for path in found if DIGEST.match(os.path.basename(path))]


def _folders(path: str) -> List[str]:
    """The folders in a folder, as paths."""
    try:
        with os.scandir(path) as entries:
            return sorted(
                entry.path
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
            )
    except (FileNotFoundError, NotADirectoryError):
        return []


def _read_manifest(path: str) -> Dict[str, Any]:
    """The manifest beside a file; an empty one when there is none that can be read."""
    try:
        name = os.path.join(os.path.dirname(path), archive.MANIFEST)
        with open(name, encoding="utf-8") as stream:
            manifest = json.load(stream)
        if isinstance(manifest["files"], dict):
            return dict(manifest)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return {}


def _plan_file(
    desired: Dict[str, Any], entry: Dict[str, Any], path: str, observed: Dict[str, Any]
) -> Optional[Step]:
    found = observed["files"][path]
    # A group that does not exist yet is one that an earlier task will make.
    gid = observed["groups"].get(entry.get("group"), None) if entry.get("group") else 0
    folders = [os.path.dirname(os.path.dirname(path)), os.path.dirname(path)]
    reasons = []
    if found is not None:
        if not found["right"]:
            reasons.append("other content than its digest says")
        elif not found["fresh"]:
            reasons.append("no manifest that fits the file")
        if (found["mode"], found["ours"]) != ("0640", True) or _other_group(found["gid"], gid):
            reasons.append("mode %s, group %d" % (found["mode"], found["gid"]))
        for folder in folders:
            there = observed["folders"][folder]
            if there is None or there["mode"] != "0750" or _other_group(there["gid"], gid):
                reasons.append("another mode or group of %s" % folder)
        if not reasons:
            return None
    return Step(
        "create" if found is None else "update",
        "model",
        path,
        before="".join("%s\n" % reason for reason in reasons) if reasons else None,
        after="sha256 %s, mode 0640, group %s\n" % (entry["sha256"], entry.get("group") or "root"),
        data={
            "entry": entry,
            "store": desired["store"],
            "incoming": desired["incoming"],
            "path": path,
            "content": found is None or not found["right"],
            "copies": [],
        },
    )


def _other_group(found: int, wanted: Optional[int]) -> bool:
    # Only root can give a file to a group; elsewhere (in tests) there is nothing to mend.
    return os.geteuid() == 0 and found != wanted


def _removal(store: str, path: str) -> Step:
    return Step("remove", "model", path, data={"store": store, "path": path})


def _store(step: Step, last: bool) -> None:
    entry, path = step.data["entry"], step.data["path"]
    what = "model file %s of %s" % (entry["name"], entry["namespace"])
    gid = _gid(entry["group"]) if entry.get("group") else 0
    if gid is None:
        raise Refusal(
            what,
            "no group %s on this host" % entry["group"],
            "the group of the namespace's engine account",
            "Run the roles that come before this one, in particular baseline",
        )
    folder = os.path.dirname(path)
    for made in (os.path.dirname(folder), folder):
        disk.make_folder(made, 0o750)
        disk.own(made, gid)
        os.chmod(made, 0o750)  # noqa: S103 # for the engine's group
    if step.data["content"]:
        _place(step.data, gid, last, what)
    disk.own(path, gid)
    os.chmod(path, 0o640)
    _remember(path, entry["sha256"], gid)


def _place(data: Dict[str, Any], gid: int, last: bool, what: str) -> None:
    """Bring the verified file to its place: by a rename when nobody else needs it."""
    entry, path = data["entry"], data["path"]
    for copy in data["copies"]:
        # Read while it is copied: a copy that has gone bad is passed over.
        if _copy(copy, path, entry["sha256"], gid):
            return
    source = delivery.verified(data["incoming"], entry["sha256"], entry.get("size"), what)
    if last:
        try:
            disk.own(source, gid)
            os.chmod(source, 0o640)
            os.replace(source, path)
            delivery.discard(data["incoming"], entry["sha256"])
            disk.sync_folder(os.path.dirname(path))
            return
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
    if not _copy(source, path, entry["sha256"], gid):
        raise Refusal(
            what, "other content after a copy", "sha256 %s" % entry["sha256"], "Check the disk"
        )
    if last:
        delivery.discard(data["incoming"], entry["sha256"])


def _copy(source: str, path: str, digest: str, gid: int) -> bool:
    folder = os.path.dirname(path)
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    handle, temporary = tempfile.mkstemp(prefix=disk.TEMPORARY, dir=folder)
    try:
        with os.fdopen(descriptor, "rb") as stream, os.fdopen(handle, "wb") as output:
            size = os.fstat(stream.fileno()).st_size
            if size > disk.free_bytes(folder):
                raise disk.no_space(path, folder, size, disk.free_bytes(folder))
            found = disk.copy_stream(stream.read, output.write)[1]
            output.flush()
            disk.own(output.fileno(), gid)
            os.fchmod(output.fileno(), 0o640)
            os.fsync(output.fileno())
        if found != digest:
            os.unlink(temporary)
            return False
        os.replace(temporary, path)
        disk.sync_folder(folder)
        return True
    except BaseException:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        raise


def _remember(path: str, digest: str, gid: int) -> None:
    """Write down that the file is right, as it is now."""
    manifest = _read_manifest(path)
    kept = dict(manifest.get("files", {}))
    facts = disk.facts_of(os.lstat(path))
    kept[os.path.basename(path)] = {"size": facts["size"], "mtime_ns": facts["mtime_ns"]}
    text = json.dumps({"schema": 1, "sha256": digest, "files": kept}, indent=1, sort_keys=True)
    name = os.path.join(os.path.dirname(path), archive.MANIFEST)
    owner = 0 if os.geteuid() == 0 else None
    group = gid if os.geteuid() == 0 else None
    files.write_file(name, text.encode("utf-8"), 0o640, owner, group)


def _remove(store: str, path: str) -> None:
    """Remove a file, its manifest when it was the last, and folders that are empty then."""
    disk.remove(path)
    folder = os.path.dirname(path)
    # An earlier step may have taken the folder with it.
    if folder == store or not os.path.isdir(folder):
        return
    left = [name for name in os.listdir(folder) if not name.startswith(".t")]
    if not left:
        disk.drop_tree(folder)
    namespace = os.path.dirname(folder)
    if namespace != store and not os.listdir(namespace):
        os.rmdir(namespace)
