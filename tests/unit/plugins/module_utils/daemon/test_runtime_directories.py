# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import grp
import os
import pwd

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.daemon import runtime_directories


def item(path, mode="2710", **keys):
    owner = {"owner": pwd.getpwuid(os.getuid()).pw_name, "group": grp.getgrgid(os.getgid()).gr_name}
    return {"path": str(path), "mode": mode, **owner, **keys}


@pytest.fixture
def umask():
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_made_and_mended_and_removed(tmp_path):
    path = tmp_path / "run" / "engines" / "a.b"
    wanted = [item(path)]
    assert runtime_directories.wrong(wanted) == [str(path)]
    assert runtime_directories.make(wanted, str(tmp_path / "run")) == ""
    assert runtime_directories.wrong(wanted) == []
    assert path.stat().st_mode & 0o7777 == 0o2710
    # Others go through, whatever the umask.
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o755
    (path / "engine.sock").write_text("")
    path.chmod(0o700)
    assert runtime_directories.wrong(wanted) == [str(path)]
    assert runtime_directories.make(wanted, str(tmp_path / "run")) == ""
    assert (path / "engine.sock").exists()  # its own process empties it
    runtime_directories.remove([str(path), str(tmp_path / "none")])
    assert not path.exists()


def test_no_link_is_followed(tmp_path):
    other, link = tmp_path / "other", tmp_path / "link"
    other.mkdir(0o700)
    (other / "keep").write_text("")
    link.symlink_to(other)
    assert (
        runtime_directories.make([item(link)], str(tmp_path))
        == "%s is no directory; move it away" % link
    )
    assert runtime_directories.wrong([item(link)]) == [str(link)]
    runtime_directories.remove([str(link)])
    assert (other / "keep").exists()
    assert other.stat().st_mode & 0o777 == 0o700


def test_what_is_above_must_be_roots(tmp_path):
    """Who may write there can put a link in the place of a directory."""
    top = tmp_path / "run"
    inner = top / "a" / "in"
    wanted = [item(top / "a", "0770")]
    assert runtime_directories.make(wanted, str(top)) == ""
    said = runtime_directories.make([item(inner)], str(top))
    assert said.startswith("%s is a directory that others may write (mode 0770)" % (top / "a"))
    assert not inner.exists()
    inner.mkdir()
    runtime_directories.remove([str(inner)])
    assert inner.exists()
    (top / "a").chmod(0o700)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (top / "b").symlink_to(elsewhere)
    said = runtime_directories.make([item(top / "b" / "in")], str(top))
    assert said.startswith("%s is no directory" % (top / "b"))
    assert list(elsewhere.iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_what_is_above_must_be_no_accounts(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    said = runtime_directories.make([item(folder / "in")], str(folder))
    assert "is a directory of the account with the number 65534" in said


def test_an_account_that_is_still_to_be_made(tmp_path):
    tmp_path.chmod(0o710)
    assert runtime_directories.wrong([item(tmp_path, "0710", owner="tether-nobody")]) != []
