# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Errors of the operating system in words: real ones, of real file systems where root may mount."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest

from ansible_collections.tether.fleet.plugins.module_utils import disk, os_trouble, plan
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with room for a megabyte and for few files."""
    folder = tmp_path / "small"
    folder.mkdir()
    options = "size=1m,nr_inodes=8,mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def refusal_of(folder: Path, write: Any) -> Refusal:
    with pytest.raises(OSError, match=r"No space|Read-only") as caught:
        write()
    return Refusal(*os_trouble.words(caught.value, (str(folder),)))


@needs_root
def test_a_full_disk(small: Path) -> None:
    def fill() -> None:
        with open(small / "x", "wb", buffering=0) as stream:
            while True:
                stream.write(b"x" * 65536)

    refusal = refusal_of(small, fill)
    assert refusal.found == "0 kB left on the file system at %s" % small
    assert "df -h %s" % small in refusal.remedy
    foreseen = disk.no_space("artifact x", str(small / "a" / "b"), 5_000_000, 0)
    assert refusal.found == foreseen.found


@needs_root
def test_no_inodes_is_not_said_to_be_room(small: Path) -> None:
    def fill() -> None:
        for number in range(20):
            (small / str(number)).touch()

    refusal = refusal_of(small, fill)
    assert refusal.what.startswith(str(small))
    assert (
        refusal.found == "no inodes (that is, no more files) left on the file system at %s" % small
    )
    assert "no inodes" in disk.no_space("x", str(small), 1, disk.free_bytes(str(small))).found


@needs_root
def test_a_read_only_file_system(small: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    refusal = refusal_of(small, (small / "x").touch)
    assert refusal.found == "a read-only file system, mounted at %s" % small
    assert "mount -o remount,rw %s" % small in refusal.remedy
    assert os_trouble.is_read_only(str(small / "not" / "yet"))


@needs_root
def test_a_read_only_bind_mount_is_named_and_not_what_it_is_a_part_of(tmp_path: Path) -> None:
    folder = tmp_path / "with a blank"
    folder.mkdir()
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
        refusal = refusal_of(folder, (folder / "x").touch)
        assert refusal.found == "a read-only file system, mounted at %s" % folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_what_exists_above_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert os_trouble.existing(str(tmp_path / "not" / "yet")) == str(tmp_path)
    assert os_trouble.existing("not/yet") == os_trouble.existing("") == str(tmp_path)
    assert os_trouble.existing("/") == "/"


def test_a_mac_is_not_judged_by_its_sealed_system_volume(monkeypatch: pytest.MonkeyPatch) -> None:
    """`/` of a Mac is read-only by design: no path may be looked for that leads there.

    The folders below are those that a Mac has, and `/var` as its link to `/private/var` is there.
    """
    there = {"/opt", "/var", "/var/lib", "/var/log", "/var/run", "/etc", "/tmp", "/"}
    there |= {"/Library", "/Library/LaunchDaemons"}
    monkeypatch.setattr(os.path, "exists", there.__contains__)
    above = {path: os_trouble.existing(path) for path in os_trouble.roots("Darwin")}
    assert "/" not in above.values()
    assert above["/Library/LaunchDaemons"] == "/Library/LaunchDaemons"
    assert os_trouble.existing("/run") == "/"  # what it would have been judged by


def test_where_is_written_on_linux() -> None:
    assert {"/etc/systemd/system", "/run"} <= set(os_trouble.roots("Linux"))
    assert "/Library/LaunchDaemons" not in os_trouble.roots("Linux")


def test_others_keep_the_system_s_own_words() -> None:
    refusal = Refusal(*os_trouble.words(OSError(errno.EIO, "Input/output error", "/x")))
    assert "Input/output error" in refusal.found and "dmesg" in refusal.remedy
    assert "no file" in str(Refusal(*os_trouble.words(FileNotFoundError(2, "no file", "/y"))))


class Module:
    """Takes what a module says in the end."""

    check_mode = False
    said: Dict[str, Any]

    def fail_json(self, **said: Any) -> None:
        self.said = said
        raise SystemExit(1)


class Component:
    """Stands for a part whose second step meets a full disk."""

    @staticmethod
    def observe(desired: Any) -> None:
        return None

    @staticmethod
    def plan(desired: Any, observed: Any) -> plan.Plan:
        return plan.Plan([plan.Step("create", "file", "/x")], {"promise": True})

    @staticmethod
    def apply(the_plan: plan.Plan) -> Dict[str, Any]:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_every_module_says_so_without_a_stack_trace() -> None:
    module: Any = Module()
    with pytest.raises(SystemExit):
        plan.run_module(module, Component, {})
    assert "expected room" in module.said["msg"]
    assert "promise" not in module.said
