# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from ansible_collections.tether.fleet.plugins.module_utils import artifact
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal


class Host:
    """A host's two folders, and archives that arrive there."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.root, self.incoming = base / "opt", base / "incoming"
        self.archives = base / "archives"
        self.archives.mkdir()

    def entry(self, version: str, content: bytes = b"", **keys: Any) -> Dict[str, Any]:
        path = self.archives / version
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr("x/program", content or version.encode())
            packed.writestr("x/lib/one", b"1")
        data = path.read_bytes()
        entry = {
            "name": "prog",
            "state": "present",
            "version": version,
            "sha256": hashlib.sha256(data).hexdigest(),
            "size": len(data),
            "format": "zip",
            "binary": "bin/program",
            "extract": [
                {"from": "x/program", "to": "bin/program", "mode": "0755"},
                {"from": "x/lib/", "to": "lib/", "mode": None},
            ],
        }
        entry.update(keys)
        return entry

    def arrive(self, entry: Dict[str, Any]) -> None:
        folder = self.incoming / entry["sha256"]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "data").write_bytes((self.archives / entry["version"]).read_bytes())

    def plan(self, *entries: Dict[str, Any], **options: Any) -> Plan:
        desired = {
            "artifacts": list(entries),
            "root": str(self.root),
            "incoming": str(self.incoming),
            "keep": 0,
            "verify": False,
        }
        desired.update(options)
        artifact.check_entries(desired["artifacts"])
        return artifact.plan(desired, artifact.observe(desired))

    def run(self, *entries: Dict[str, Any], **options: Any) -> List[str]:
        plan = self.plan(*entries, **options)
        assert artifact.apply(plan) == {}
        return steps(plan)


def steps(plan: Plan) -> List[str]:
    return ["%s %s %s" % (s.action, s.kind, os.path.basename(s.name)) for s in plan.steps]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_from_nothing(host: Host) -> None:
    entry = host.entry("1")
    plan = host.plan(entry)
    predicted = plan.result()["changes"]
    assert [need["sha256"] for need in plan.facts["needs"]] == [entry["sha256"]]
    assert artifact.apply(plan) == {"changed": False}
    assert not host.root.exists()

    host.arrive(entry)
    plan = host.plan(entry)
    assert plan.result()["changes"] == predicted
    assert steps(plan) == ["create artifact prog 1", "create link current"]
    assert artifact.apply(plan) == {}
    facts = plan.facts["artifacts"]["prog"]
    assert Path(facts["binary"]).read_bytes() == b"1"
    assert facts["path"] == str(host.root / "prog" / "1")
    assert os.readlink(facts["current"]) == "1"
    assert os.listdir(host.incoming) == []
    assert not host.plan(entry).changed


def test_upgrade_and_the_way_back(host: Host) -> None:
    one, two, three = (host.entry(version) for version in "123")
    for entry in (one, two, three):
        host.arrive(entry)
    host.run(one)
    assert host.run(two) == [
        "create artifact prog 2",
        "create link previous",
        "update link current",
    ]
    # Back again needs no file and costs two renames.
    assert host.run(one) == ["update link previous", "update link current"]
    assert host.run(one) == []
    assert host.run(three) == [
        "create artifact prog 3",
        "update link previous",
        "update link current",
        "remove artifact prog 2",
    ]
    folder = host.root / "prog"
    assert sorted(os.listdir(folder)) == ["1", "3", "current", "previous"]
    assert os.readlink(folder / "previous") == "1"


def test_more_versions_are_kept_when_asked(host: Host) -> None:
    for version in "1234":
        entry = host.entry(version)
        host.arrive(entry)
        host.run(entry, keep=1)
    assert sorted(os.listdir(host.root / "prog")) == ["2", "3", "4", "current", "previous"]


def swap(folder: Path) -> None:
    (folder / "bin/program").write_bytes(b"2")


def swap_quietly(folder: Path) -> None:
    path = folder / "bin/program"
    times = path.stat()
    path.write_bytes(b"2")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def swap_for_link(folder: Path) -> None:
    (folder / "lib/one").unlink()
    (folder / "lib/one").symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    ("damage", "reason", "verify"),
    [
        (swap, "bin/program has other content", False),
        (swap_quietly, "bin/program has other content", True),
        (swap_for_link, "lib/one is another link", False),
        (lambda f: (f / "bin/program").unlink(), "bin/program is missing", False),
        (lambda f: (f / "bin/program").chmod(0o700), "mode 0700 instead of 0755", False),
        (lambda f: (f / "bin/program").chmod(0o777), "by, others", False),
        (lambda f: (f / "bin/program").write_bytes(b"longer"), "6 bytes instead of 1", False),
        (lambda f: (f / "lib/new").write_bytes(b"x"), "lib/new is not part of it", False),
        (lambda f: (f / "lib").chmod(0o777), "by, others", False),
        (lambda f: (f / ".tether-manifest.json").write_text("{"), "no readable manifest", False),
        (lambda f: (f / ".tether-manifest.json").unlink(), "no readable manifest", False),
    ],
)
def test_drift_is_found_and_mended(
    host: Host, damage: Callable[[Path], Any], reason: str, verify: bool
) -> None:
    entry = host.entry("1")
    host.arrive(entry)
    host.run(entry)
    damage(host.root / "prog/1")
    plan = host.plan(entry, verify=verify)
    assert steps(plan) == ["update artifact prog 1"]
    assert reason in (plan.steps[0].before or "")
    assert plan.facts["needs"]
    host.arrive(entry)
    host.run(entry, verify=verify)
    assert not host.plan(entry, verify=True).changed
    assert (host.root / "prog/1/bin/program").read_bytes() == b"1"
    assert sorted(os.listdir(host.root / "prog")) == ["1", "current"]


def test_a_touched_file_is_no_drift(host: Host) -> None:
    entry = host.entry("1")
    host.arrive(entry)
    host.run(entry)
    os.utime(host.root / "prog/1/bin/program")
    assert not host.plan(entry).changed


def test_another_archive_or_extract_of_the_same_version(host: Host) -> None:
    first = host.entry("1")
    host.arrive(first)
    host.run(first)
    other = host.entry("1", b"rebuilt")
    assert steps(host.plan(other)) == ["update artifact prog 1"]
    moved = dict(first, extract=[{"from": "x/program", "to": "bin/program", "mode": None}])
    assert steps(host.plan(moved)) == ["update artifact prog 1"]


def test_a_wrong_archive_changes_nothing(host: Host) -> None:
    entry = host.entry("1")
    host.arrive(entry)
    data = host.incoming / entry["sha256"] / "data"
    data.write_bytes(b"x" * entry["size"])
    with pytest.raises(Refusal, match="expected sha256 %s" % entry["sha256"]):
        host.run(entry)
    assert sorted(os.listdir(host.root)) in ([], [".lock"])
    assert not data.exists()


def test_an_unsafe_archive_changes_nothing(host: Host) -> None:
    entry = host.entry("1")
    with zipfile.ZipFile(host.archives / "1", "a") as packed:
        packed.writestr("../../escape", b"x")
    data = (host.archives / "1").read_bytes()
    entry.update(sha256=hashlib.sha256(data).hexdigest(), size=len(data))
    host.arrive(entry)
    with pytest.raises(Refusal, match=r"'\.\.'"):
        host.run(entry)
    assert os.listdir(host.root / "prog") == []
    assert not (host.base / "escape").exists()


def test_a_missing_main_program(host: Host) -> None:
    entry = host.entry("1", binary="bin/other")
    host.arrive(entry)
    with pytest.raises(Refusal, match="no bin/other"):
        host.run(entry)
    assert os.listdir(host.root / "prog") == []


def test_what_a_killed_run_left_is_removed(host: Host) -> None:
    entry = host.entry("1")
    host.arrive(entry)
    host.run(entry)
    (host.root / "prog/.tmp-1-abc/x").mkdir(parents=True)
    (host.root / "prog/.tmp-link-7").symlink_to("1")
    (host.root / ".tmp-gone-abc").mkdir()
    left = [".tmp-gone-abc", ".tmp-1-abc", ".tmp-link-7"]
    assert host.run(entry) == ["remove leftover " + name for name in left]
    assert host.run(entry) == []
    assert sorted(os.listdir(host.root / "prog")) == ["1", "current"]


def test_removal(host: Host) -> None:
    entry = host.entry("1")
    host.arrive(entry)
    host.run(entry)
    gone = {"name": "prog", "state": "absent"}
    assert host.run(gone) == ["remove artifact prog"]
    assert host.run(gone) == []
    assert os.listdir(host.root) == [".lock"]


def test_folders_of_others_are_left_alone(host: Host) -> None:
    (host.root / "prog/custom").mkdir(parents=True)
    entry = host.entry("1")
    host.arrive(entry)
    host.run(entry)
    assert (host.root / "prog/custom").is_dir()


@pytest.mark.parametrize("place", ["opt", "opt/prog"])
def test_a_link_instead_of_a_folder(host: Host, place: str) -> None:
    path = host.base / place
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(host.archives)
    with pytest.raises(Refusal, match="file or link"):
        host.plan(host.entry("1"))


def test_a_file_instead_of_the_link(host: Host) -> None:
    (host.root / "prog/current").mkdir(parents=True)
    with pytest.raises(Refusal, match="no link"):
        host.plan(host.entry("1"))


def test_another_run_was_faster(host: Host) -> None:
    entry = host.entry("1")
    host.arrive(entry)
    late = host.plan(entry)
    host.run(entry)
    assert artifact.apply(late) == {}
    assert not host.plan(entry).changed


@pytest.mark.parametrize(
    "keys",
    [
        {"name": "../x"},
        {"name": "A"},
        {"version": "a/b"},
        {"version": ".."},
        {"version": "current"},
        {"version": None},
        {"sha256": None},
        {"sha256": "abc"},
        {"sha256": "A" * 64},
        {"size": None},
        {"extract": []},
        {"format": None},
    ],
)
def test_entries_that_are_refused(host: Host, keys: Dict[str, Any]) -> None:
    with pytest.raises(Refusal):
        artifact.check_entries([dict(host.entry("1"), **keys)])


def test_an_artifact_given_twice(host: Host) -> None:
    with pytest.raises(Refusal, match="twice"):
        artifact.check_entries([host.entry("1"), host.entry("2")])


def test_no_room(host: Host) -> None:
    entry = host.entry("1", size=2**62)
    with pytest.raises(Refusal, match="free on the file system at"):
        host.plan(entry)
