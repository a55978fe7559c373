# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The depot: files on the controller by their digest, ``<depot>/sha256/<ab>/<digest>``.

A file gets its name only after it was read whole and found right, so a name is a promise. Beside it
lies ``<digest>.json`` with the size and time it had then: a later run compares those and reads the
file again only when they differ, or when asked to. Runs that share a depot take turns per file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
import urllib.parse
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional

from ansible_collections.tether.fleet.plugins.module_utils import disk
from ansible_collections.tether.fleet.plugins.module_utils.plan import (
    Plan,
    Refusal,
    Step,
    as_refusal,
)
from ansible_collections.tether.fleet.plugins.plugin_utils import fetch, lock

DIGEST = re.compile(r"[0-9a-f]{64}\Z")


@dataclass
class Want:
    """One file that the depot is to hold.

    :ivar kind: ``artifact`` or ``model``
    :ivar name: for people: ``caddy 2.11.7 linux-x86_64`` or a file name
    :ivar source: ``{"index": {...}}``, ``{"url": ...}`` or ``{"file": absolute path}``
    :ivar file: the file's name at its source
    """

    kind: str
    name: str
    sha256: str
    size: Optional[int]
    source: Dict[str, Any]
    file: str

    @property
    def title(self) -> str:
        return "%s %s" % (self.kind, self.name)


def default_folder() -> str:
    """The user's cache folder, as the XDG base directory specification has it."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "tether.fleet", "depot")


def without_source(model: Mapping[str, Any]) -> Dict[str, Any]:
    """A model's entry for a host: its source is the controller's business, and may hold secrets."""
    return {key: value for key, value in model.items() if key != "source"}


def path_of(folder: str, digest: str) -> str:
    """Where the depot keeps a file, whether it is there or not."""
    return os.path.join(folder, "sha256", digest[:2], digest)


def wants(
    the_lock: Optional[Dict[str, Any]],
    artifacts: List[Dict[str, Any]],
    models: List[Dict[str, Any]],
    base: str,
) -> List[Want]:
    """What a task asks for, each digest once.

    :param artifacts: ``{"name", "platform"}``
    :param models: ``{"name", "sha256", "source", "size"}``
    :param base: folder that relative sources of models start from
    :raises Refusal: for an unknown artifact, a model without a digest or with an unusable source
    """
    found: Dict[str, Want] = {}
    for item in artifacts:
        pin = lock.pick(the_lock or {"artifacts": {}}, item["name"], item["platform"])
        source = dict(pin["source"])
        if "file" in source:
            source["file"] = os.path.expanduser(source["file"])
        name = "%s %s %s" % (pin["name"], pin["version"], pin["platform"])
        want = Want("artifact", name, pin["sha256"], pin["size"], source, pin["file"])
        found.setdefault(want.sha256, want)
    for item in models:
        what = "model file %s" % item["name"]
        if not DIGEST.match(item.get("sha256") or ""):
            raise Refusal(
                what,
                "sha256 %r" % item.get("sha256"),
                "64 lower-case hex digits",
                "Pin the file: sha256sum prints its digest",
            )
        source = model_source(item.get("source") or "", base, what)
        # Several models may have a file of one name.
        name = "%s (%s)" % (item["name"], item["sha256"][:12])
        want = Want("model", name, item["sha256"], item.get("size"), source, item["name"])
        found.setdefault(want.sha256, want)
    return list(found.values())


def model_source(text: str, base: str, what: str) -> Dict[str, str]:
    """A model's source as the depot takes it."""
    parts = urllib.parse.urlsplit(text)
    if parts.scheme in ("http", "https") and parts.netloc:
        return {"url": text}
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return {"file": urllib.parse.unquote(parts.path)}
    if not text or parts.scheme:
        raise Refusal(
            what,
            "source %r" % fetch.public_url(text),
            "a path on the controller or an https URL",
            "Mend 'source' of that file",
        )
    return {"file": os.path.join(base, os.path.expanduser(text))}


def _each(plan: Plan, work: Callable[[Want], None]) -> List[Refusal]:
    """Do something for each file of a plan; what is refused is removed from it and returned."""
    failures: List[Refusal] = []
    for step in list(plan.steps):
        try:
            work(step.data["want"])
        except (Refusal, OSError) as error:
            failures.append(as_refusal(error))
            plan.steps.remove(step)
    return failures


def all_of(failures: List[Refusal]) -> str:
    """Everything that is wrong, as one message."""
    if len(failures) == 1:
        return str(failures[0])
    return "%d files cannot be had, and no host is changed for now:\n- %s" % (
        len(failures),
        "\n- ".join(map(str, failures)),
    )


class Depot:
    """A depot in one folder.

    :param say: takes lines for people (progress)
    """

    def __init__(self, folder: str, say: fetch.Say) -> None:
        self.folder, self.say = folder, say

    def observe(self, desired: List[Want], verify: bool = False) -> Dict[str, Dict[str, Any]]:
        """Per digest ``{"size"}`` of what is there, or ``{"reason"}`` for why it has to come."""
        return {want.sha256: self._look(want, verify) for want in desired}

    @staticmethod
    def plan(desired: List[Want], observed: Dict[str, Dict[str, Any]]) -> Plan:
        """One step a file that is missing or damaged."""
        plan = Plan()
        for want in desired:
            there = observed[want.sha256]
            if "reason" in there:
                action = "update" if there.get("exists") else "create"
                plan.steps.append(
                    Step(
                        action,
                        want.kind,
                        want.name,
                        before=there["reason"] if there.get("exists") else None,
                        after="sha256 %s" % want.sha256,
                        data={"want": want},
                    )
                )
        return plan

    def check_sources(self, plan: Plan) -> List[Refusal]:
        """What can be seen to fail, all of it, before the first download.

        :raises Refusal: when there is no room for it all
        """
        failures = _each(plan, self._check_source)
        need = sum(step.data["want"].size or 0 for step in plan.steps)
        free = disk.free_bytes(self.folder)
        if need > free:
            raise disk.no_space("depot", self.folder, need, free)
        return failures

    @staticmethod
    def _check_source(want: Want) -> None:
        if "file" in want.source:
            fetch.check_file(want.source["file"], want.size, want.title)

    def apply(self, plan: Plan) -> List[Refusal]:
        """Fetch what the plan names, one after the other.

        :return: what could not be fetched; one that fails does not keep the next from being tried
        """
        return _each(plan, self.fetch)

    def facts(self, desired: List[Want]) -> List[Dict[str, Any]]:
        """Per file where it is, or will be."""
        facts = []
        for want in desired:
            path = path_of(self.folder, want.sha256)
            size = os.path.getsize(path) if os.path.exists(path) else want.size
            facts.append(
                {
                    "kind": want.kind,
                    "name": want.name,
                    "sha256": want.sha256,
                    "size": size,
                    "path": path,
                }
            )
        return facts

    def locate(self, digest: str, what: str) -> str:
        """The path of a file that is there and was found right.

        :raises Refusal: when it is not there
        """
        path = path_of(self.folder, digest)
        if not self._trusted(path) and not self._confirm(path, digest):
            raise Refusal(
                what,
                "no file with sha256 %s in the depot %s" % (digest, self.folder),
                "it to have been fetched",
                "Run the depot task first, with the same depot_dir",
            )
        return path

    def fetch(self, want: Want) -> None:
        """Bring one file into the depot.

        :raises Refusal: naming what came and what was expected
        """
        final = path_of(self.folder, want.sha256)
        partial = os.path.join(self.folder, "partial", want.sha256)
        os.makedirs(os.path.dirname(final), exist_ok=True)
        os.makedirs(os.path.dirname(partial), exist_ok=True)
        with self._turn(want):
            if "reason" not in self._look(want, verify=True):
                return  # another run was faster
            resumed = os.path.exists(partial) and "url" in want.source
            self._fill(want, partial)
            found = self._digest(partial, want)
            if found != want.sha256 and resumed:
                # The first part may be from another file of the same name: once more from nothing.
                os.unlink(partial)
                self._fill(want, partial)
                found = self._digest(partial, want)
            size = os.path.getsize(partial)
            if found != want.sha256 or (want.size is not None and size != want.size):
                os.unlink(partial)
                raise Refusal(
                    want.title,
                    "sha256 %s (%d bytes)" % (found, size),
                    "sha256 %s%s"
                    % (want.sha256, "" if want.size is None else " (%d bytes)" % want.size),
                    "Do not use that file. If its publisher replaced it on purpose, review the "
                    "change and pin the new digest; if the pin has a slip, correct it",
                )
            os.chmod(partial, 0o444)
            os.replace(partial, final)
            self._mark(final)

    def _fill(self, want: Want, partial: str) -> None:
        if "url" in want.source:
            fetch.from_url(want.source["url"], partial, want.size, want.title, self.say)
        elif "index" in want.source:
            index = want.source["index"]
            fetch.from_index(index, want.file, partial, want.size, want.title, self.say)
        else:
            fetch.from_file(want.source["file"], partial, want.size, want.title, self.say)

    def _digest(self, path: str, want: Want) -> str:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if os.path.getsize(path) > 4 * 1024**3:
            self.say("%s: verifying %s" % (want.title, disk.human(os.path.getsize(path))))
        return disk.hash_file(path)

    def _look(self, want: Want, verify: bool) -> Dict[str, Any]:
        path = path_of(self.folder, want.sha256)
        try:
            size = os.lstat(path).st_size
        except FileNotFoundError:
            return {"reason": "not there"}
        if want.size is not None and size != want.size:
            # Its digest decides: a wrong size in the inventory must not replace a right file.
            if self._confirm(path, want.sha256):
                raise Refusal(
                    want.title,
                    "size %d, though its digest is right" % size,
                    "size %d" % want.size,
                    "Mend 'size' of that file",
                )
            return {"reason": "%d bytes instead of %d" % (size, want.size), "exists": True}
        if (not verify and self._trusted(path)) or self._confirm(path, want.sha256):
            return {"size": size}
        return {"reason": "other content than its digest says", "exists": True}

    @staticmethod
    def _trusted(path: str) -> bool:
        try:
            with open(path + ".json", encoding="utf-8") as stream:
                mark = json.load(stream)
            status = os.lstat(path)
            return bool(mark["size"] == status.st_size and mark["mtime_ns"] == status.st_mtime_ns)
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def _confirm(self, path: str, digest: str) -> bool:
        try:
            right = disk.hash_file(path) == digest
        except OSError:
            return False
        if right:
            with contextlib.suppress(OSError):  # a depot that only root may write, read by others
                self._mark(path)
        return right

    @staticmethod
    def _mark(path: str) -> None:
        status = os.lstat(path)
        temporary = "%s.json.%d" % (path, os.getpid())
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump({"size": status.st_size, "mtime_ns": status.st_mtime_ns}, stream)
        os.replace(temporary, path + ".json")

    @contextlib.contextmanager
    def _turn(self, want: Want) -> Iterator[None]:
        """Only one run at a time fetches a file; the others wait and then find it there."""
        path = os.path.join(self.folder, "partial", want.sha256 + ".lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            said = 0.0
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() - said > 30:
                        said = time.monotonic()
                        self.say("%s: another run is fetching it, waiting" % want.title)
                    time.sleep(0.2)
            yield
        finally:
            os.close(descriptor)
