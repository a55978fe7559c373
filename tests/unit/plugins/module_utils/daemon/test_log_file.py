# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.daemon import log_file


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(log_file, "FOLDER", str(tmp_path / "log"))
    return tmp_path / "log"


def make():
    log_file.make("x", os.getuid(), os.getgid())


def write(folder, text):
    with open(folder / "x.log", "a") as stream:
        stream.write(text)


def test_only_what_was_written_since(folder):
    make()
    write(folder, "before\n")
    since = log_file.position("x")
    assert log_file.last_lines("x", since) == []
    write(folder, "loading\n\nno such tensor\n")
    assert log_file.last_lines("x", since) == ["loading", "no such tensor"]
    write(folder, "".join("%d\n" % number for number in range(100)))
    assert log_file.last_lines("x", since, count=2) == ["98", "99"]


def test_a_file_that_was_rotated_or_emptied_is_new(folder):
    make()
    write(folder, "a long line of before\n")
    since = log_file.position("x")
    os.truncate(folder / "x.log", 0)
    write(folder, "new\n")
    assert log_file.last_lines("x", since) == ["new"]
    os.rename(folder / "x.log", folder / "x.log.0")
    make()
    write(folder, "newer, and longer than what stood there before\n")
    assert log_file.last_lines("x", since)[0].startswith("newer")


def test_a_long_log_is_read_at_its_end_alone(folder):
    make()
    write(folder, "first\n" + "x" * 200_000 + "\nlast\n")
    assert log_file.last_lines("x", (0, 0)) == ["last"]
    write(folder, "\xff\x00 odd bytes\n")
    assert len(log_file.last_lines("x", (0, 0))) == 2


def test_no_log(folder):
    assert log_file.position("x") == (0, 0)
    assert log_file.last_lines("x", (1, 5)) == []
    assert log_file.needs("x", os.getuid()) == "create"


def test_whose_it_is(folder):
    make()
    make()  # what is in it stays
    assert log_file.needs("x", os.getuid()) == ""
    assert log_file.needs("x", os.getuid() + 1) == "update"
    assert log_file.needs("x", None) == "update"
    assert (folder / "x.log").stat().st_mode & 0o777 == 0o600
    os.chmod(folder / "x.log", 0o640)  # its group is staff on macOS: everybody
    assert log_file.needs("x", os.getuid()) == "update"
    make()
    assert log_file.needs("x", os.getuid()) == ""
    os.rename(folder / "x.log", folder / "y.log")
    os.symlink("y.log", folder / "x.log")
    assert log_file.needs("x", os.getuid()) == "update"
    with pytest.raises(OSError, match="symbolic"):
        make()
