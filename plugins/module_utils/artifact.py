# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pinned programs on a host: ``<root>/<name>/<version>/`` and the links ``current``, ``previous``.

A version is unpacked beside its final name and gets that name by one rename; a switch is one rename
of a link, and so is the way back. Each version's folder holds a manifest of what was unpacked, by
which a later run notices a swapped, added or missing file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import tempfile
from typing import Any, Dict, List, Optional

from ansible_collections.tether.fleet.plugins.module_utils import archive, delivery, disk
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal, Step

ROOT = "/opt/tether"
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,127}\Z")
DIGEST = re.compile(r"[0-9a-f]{64}\Z")
RESERVED = ("current", "previous")

ENTRY_SPEC: Dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "version": {"type": "str"},
    "sha256": {"type": "str"},
    "size": {"type": "int"},
    "format": {"type": "str", "choices": list(archive.FORMATS)},
    "binary": {"type": "str"},
    "extract": {
        "type": "list",
        "elements": "dict",
        "options": {
            "from": {"type": "str", "required": True},
            "to": {"type": "str", "required": True},
            "mode": {"type": "str"},
        },
    },
}
ARGUMENT_SPEC: Dict[str, Any] = {
    "artifacts": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": ENTRY_SPEC,
    },
    "root": {"type": "path", "default": ROOT},
    "incoming": {"type": "path", "default": delivery.INCOMING},
    "keep": {"type": "int", "default": 0},
    "verify": {"type": "bool", "default": False},
    "deliver": delivery.DELIVER_SPEC,
}


def check_entries(entries: List[Dict[str, Any]]) -> None:
    """Refuse entries that cannot be meant.

    :raises Refusal: naming the artifact and the key
    """
    seen = set()
    for entry in entries:
        what = "artifact %s" % entry["name"]
        if not NAME.match(entry["name"]) or entry["name"] in seen:
            raise _bad(what, "this name, or it twice", "each artifact once, in [a-z0-9_-]")
        seen.add(entry["name"])
        if entry["state"] == "absent":
            continue
        if not VERSION.match(entry.get("version") or "") or entry["version"] in RESERVED:
            raise _bad(
                what, "version %r" % entry.get("version"), "a version that can name a folder"
            )
        if not DIGEST.match(entry.get("sha256") or ""):
            raise _bad(what, "sha256 %r" % entry.get("sha256"), "64 lower-case hex digits")
        for key in ("size", "format", "extract"):
            if not entry.get(key):
                raise _bad(what, "no %s" % key, "it, as in the lock")


def observe(desired: Dict[str, Any]) -> Dict[str, Any]:
    """Look at the versions that are there and at what has arrived for those that are not.

    :param desired: ``{"artifacts": [entry], "root", "incoming", "keep": int, "verify": bool}``
    :return: ``{"artifacts": {name: {"exists", "current", "previous", "leftovers": [path],
        "versions": {version: {"manifest": dict or None, "drift": [text], "age": mtime}}}},
        "arrived": {digest: bytes}, "free": bytes, "leftovers": [path]}``
    """
    root, incoming = desired["root"], desired["incoming"]
    present = [entry for entry in desired["artifacts"] if entry["state"] == "present"]
    disk.check_folder(root)
    return {
        "artifacts": {
            entry["name"]: _look(os.path.join(root, entry["name"]), desired["verify"])
            for entry in desired["artifacts"]
        },
        "arrived": delivery.have(incoming, [entry["sha256"] for entry in present]),
        "free": disk.free_bytes(incoming),
        "leftovers": disk.leftovers(root),
    }


def plan(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """Remove what killed runs left, install or mend versions, switch links, then prune.

    The plan's facts: ``artifacts`` (per name what will hold) and ``needs`` (files that have yet to
    be delivered; while there are any, ``apply`` changes nothing).
    """
    result = Plan(facts={"artifacts": {}, "needs": []})
    for path in observed["leftovers"]:
        result.steps += disk.removals([path], folder=path)
    wanted: Dict[str, Dict[str, Any]] = {}
    for entry in desired["artifacts"]:
        found = observed["artifacts"][entry["name"]]
        if entry["state"] == "absent":
            result.steps += _plan_absent(desired, entry, found)
            continue
        folder = os.path.join(desired["root"], entry["name"])
        result.steps += disk.removals(found["leftovers"], folder=folder)
        install = _plan_install(desired, entry, found)
        if install is not None:
            result.steps.append(install)
            wanted[entry["sha256"]] = {"what": title(entry), "size": entry["size"]}
        result.steps += _plan_links(desired, entry, found)
        result.facts["artifacts"][entry["name"]] = _facts(desired, entry)
    result.facts["needs"] = delivery.needs(wanted, observed["arrived"])
    delivery.check_space(result.facts["needs"], desired["incoming"], observed["free"])
    return result


def apply(plan: Plan) -> Dict[str, Any]:
    """Carry the plan out, or change nothing while files are missing."""
    if plan.facts.get("needs"):
        return {"changed": False}
    used = set()
    for step in plan.steps:
        folder = step.data["folder"]
        disk.make_folder(os.path.dirname(folder))
        with disk.locked(os.path.join(os.path.dirname(folder), ".lock")):
            if step.kind == "artifact" and step.action != "remove":
                _install(step)
                used.add((step.data["incoming"], step.data["entry"]["sha256"]))
            elif step.kind == "link":
                disk.switch_link(step.name, step.data["target"])
            elif step.kind == "leftover":
                disk.remove(step.data["path"])
            elif os.path.lexists(step.data["path"]):
                disk.drop_tree(step.data["path"])
    for incoming, digest in used:
        delivery.discard(incoming, digest)
    return {}


def drift_of(folder: str, manifest: Optional[Dict[str, Any]], verify: bool) -> List[str]:
    """What differs between a version's folder and its manifest, as texts; empty when all is well.

    Size, time and mode are compared; a file is read only when its time differs, or for ``verify``.
    """
    if manifest is None:
        return ["no readable manifest"]
    drift: List[str] = []
    seen = set()
    expected = manifest["files"]
    for base, folders, files in os.walk(folder, onerror=_walk_error):
        if not disk.is_ours(os.lstat(base)):
            drift.append("%s belongs to, or can be written by, others" % base)
        links = [name for name in folders if os.path.islink(os.path.join(base, name))]
        for name in files + links:
            path = os.path.join(base, name)
            relative = os.path.relpath(path, folder)
            if relative == archive.MANIFEST:
                continue
            seen.add(relative)
            text = _file_drift(path, expected.get(relative), verify)
            if text:
                drift.append("%s %s" % (relative, text))
    return drift + ["%s is missing" % name for name in sorted(set(expected) - seen)]


def _walk_error(error: OSError) -> None:
    raise error


def _file_drift(path: str, expected: Optional[Dict[str, Any]], verify: bool) -> Optional[str]:
    if expected is None:
        return "is not part of it"
    status = os.lstat(path)
    if not disk.is_ours(status):
        return "belongs to, or can be written by, others"
    if "link" in expected or stat.S_ISLNK(status.st_mode):
        same = stat.S_ISLNK(status.st_mode) and os.readlink(path) == expected.get("link")
        return None if same else "is another link"
    facts = disk.facts_of(status)
    if not stat.S_ISREG(status.st_mode) or facts["size"] != expected["size"]:
        return "has %d bytes instead of %d" % (facts["size"], expected["size"])
    if facts["mode"] != expected["mode"]:
        return "has mode %s instead of %s" % (facts["mode"], expected["mode"])
    if verify or facts["mtime_ns"] != expected["mtime_ns"]:
        if disk.hash_file(path) != expected["sha256"]:
            return "has other content"
    return None


def _look(folder: str, verify: bool) -> Dict[str, Any]:
    found: Dict[str, Any] = {
        "exists": disk.check_folder(folder),
        "current": None,
        "previous": None,
        "versions": {},
        "leftovers": disk.leftovers(folder),
    }
    if not found["exists"]:
        return found
    for link in RESERVED:
        found[link] = disk.read_link(os.path.join(folder, link))
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if path not in found["leftovers"] and not os.path.islink(path) and os.path.isdir(path):
            manifest = read_manifest(path)
            found["versions"][name] = {
                "manifest": manifest,
                "drift": drift_of(path, manifest, verify),
                "age": os.lstat(path).st_mtime,
            }
    return found


def read_manifest(folder: str) -> Optional[Dict[str, Any]]:
    """The manifest of a version's folder, None when there is none that can be read."""
    try:
        with open(os.path.join(folder, archive.MANIFEST), encoding="utf-8") as stream:
            manifest = json.load(stream)
        if manifest["schema"] == 1 and isinstance(manifest["files"], dict):
            return dict(manifest)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _plan_install(
    desired: Dict[str, Any], entry: Dict[str, Any], found: Dict[str, Any]
) -> Optional[Step]:
    there = found["versions"].get(entry["version"])
    before, action = None, "create"
    if there is not None:
        manifest, reasons = there["manifest"], list(there["drift"])
        if manifest is not None and manifest["sha256"] != entry["sha256"]:
            reasons.append("it was unpacked from sha256 %s" % manifest["sha256"])
        if manifest is not None and manifest["extract"] != _extract(entry):
            reasons.append("it was unpacked by another 'extract'")
        if not reasons:
            return None
        before, action = "".join("%s\n" % reason for reason in reasons), "update"
    return Step(
        action,
        "artifact",
        title(entry),
        before=before,
        after="sha256 %s\n" % entry["sha256"],
        data={
            "entry": entry,
            "incoming": desired["incoming"],
            "folder": os.path.join(desired["root"], entry["name"]),
        },
    )


def _plan_links(
    desired: Dict[str, Any], entry: Dict[str, Any], found: Dict[str, Any]
) -> List[Step]:
    """Links, and versions that nothing points to any more."""
    folder = os.path.join(desired["root"], entry["name"])
    current, previous = entry["version"], found["previous"]
    if found["current"] not in (None, current):
        previous = found["current"]
    steps = []
    for link, target in (("previous", previous), ("current", current)):
        if target is not None and found[link] != target:
            steps.append(
                Step(
                    "create" if found[link] is None else "update",
                    "link",
                    os.path.join(folder, link),
                    before=found[link],
                    after=target,
                    data={"folder": folder, "target": target},
                )
            )
    # A folder without a manifest was put there by somebody else, and stays.
    spare = sorted(
        (
            version
            for version, there in found["versions"].items()
            if version not in (current, previous) and there["manifest"] is not None
        ),
        key=lambda version: -found["versions"][version]["age"],
    )
    for version in spare[desired["keep"] :]:
        name, path = "%s %s" % (entry["name"], version), os.path.join(folder, version)
        steps.append(Step("remove", "artifact", name, data={"folder": folder, "path": path}))
    return steps


def _plan_absent(
    desired: Dict[str, Any], entry: Dict[str, Any], found: Dict[str, Any]
) -> List[Step]:
    if not found["exists"]:
        return []
    path = os.path.join(desired["root"], entry["name"])
    before = "".join("%s\n" % version for version in sorted(found["versions"]))
    data = {"folder": path, "path": path}
    return [Step("remove", "artifact", entry["name"], before=before, data=data)]


def _facts(desired: Dict[str, Any], entry: Dict[str, Any]) -> Dict[str, Any]:
    base = os.path.join(desired["root"], entry["name"])
    path = os.path.join(base, entry["version"])
    facts = {
        "version": entry["version"],
        "sha256": entry["sha256"],
        "path": path,
        "current": os.path.join(base, "current"),
    }
    if entry.get("binary"):
        facts["binary"] = os.path.join(path, entry["binary"])
    return facts


def _extract(entry: Dict[str, Any]) -> List[Dict[str, Any]]:
    return [
        {"from": item["from"], "to": item["to"], "mode": item.get("mode")}
        for item in entry["extract"]
    ]


def title(entry: Dict[str, Any]) -> str:
    """An entry for people."""
    return "%s %s" % (entry["name"], entry["version"])


def _install(step: Step) -> None:
    entry, folder = step.data["entry"], step.data["folder"]
    final = os.path.join(folder, entry["version"])
    what = "artifact " + step.name
    if _is_installed(final, entry):
        return  # another run was faster while this one waited for the lock
    source = delivery.verified(step.data["incoming"], entry["sha256"], entry["size"], what)
    disk.make_folder(folder)
    unpacked = tempfile.mkdtemp(prefix="%s%s-" % (disk.TEMPORARY, entry["version"]), dir=folder)
    try:
        files = archive.unpack(source, entry["format"], _extract(entry), unpacked, what)
        if entry.get("binary") and entry["binary"] not in files:
            raise _bad(what, "no %s in what was unpacked" % entry["binary"], "its main program")
        _write_manifest(unpacked, entry, files)
        disk.own(unpacked)
        os.chmod(unpacked, 0o755)  # noqa: S103 # programs are for everybody
        disk.sync_folder(unpacked)
        if os.path.lexists(final):
            disk.drop_tree(final)
        os.rename(unpacked, final)
        disk.sync_folder(folder)
    except BaseException:
        shutil.rmtree(unpacked, ignore_errors=True)
        raise


def _is_installed(folder: str, entry: Dict[str, Any]) -> bool:
    manifest = read_manifest(folder)
    return (
        manifest is not None
        and manifest["sha256"] == entry["sha256"]
        and manifest["extract"] == _extract(entry)
        and not drift_of(folder, manifest, verify=True)
    )


def _write_manifest(folder: str, entry: Dict[str, Any], files: Dict[str, Any]) -> None:
    manifest = {
        "schema": 1,
        "name": entry["name"],
        "version": entry["version"],
        "sha256": entry["sha256"],
        "extract": _extract(entry),
        "files": files,
    }
    with open(os.path.join(folder, archive.MANIFEST), "w", encoding="utf-8") as stream:
        json.dump(manifest, stream, indent=1, sort_keys=True)
        stream.flush()
        os.fchmod(stream.fileno(), 0o644)
        os.fsync(stream.fileno())


def _bad(what: str, found: str, expected: str) -> Refusal:
    return Refusal(what, found, expected, "Mend that entry of the lock or of the task")
