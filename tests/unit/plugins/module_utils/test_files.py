# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import grp
import os
import pwd
import stat

import pytest

from ansible_collections.tether.fleet.plugins.module_utils import files
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

ME = pwd.getpwuid(os.geteuid()).pw_name
MY_GROUP = grp.getgrgid(os.getegid()).gr_name


def entry(path, **keys):
    full = {
        "path": str(path),
        "state": "file",
        "content": None,
        "secret_content": None,
        "target": None,
        "owner": ME,
        "group": None,
        "mode": None,
    }
    full.update(keys)
    return full


def plan_of(*entries):
    desired = {"files": list(entries)}
    return files.plan(desired, files.observe(desired))


def run(*entries):
    plan = plan_of(*entries)
    files.apply(plan)
    return [tuple(step.summary().values()) for step in plan.steps]


def test_a_whole_tree_in_one_call_and_nothing_the_second_time(tmp_path):
    entries = [
        entry(tmp_path / "a/b/file", content="text\n", mode="0640", group=MY_GROUP),
        entry(tmp_path / "a/link", state="link", target="b/file"),
        entry(tmp_path / "a/b", state="directory", mode="2750"),
        entry(tmp_path / "a", state="directory"),
    ]
    assert run(*entries) == [
        ("create", "directory", str(tmp_path / "a")),
        ("create", "directory", str(tmp_path / "a/b")),
        ("create", "file", str(tmp_path / "a/b/file")),
        ("create", "link", str(tmp_path / "a/link")),
    ]
    assert stat.S_IMODE(os.stat(tmp_path / "a/b").st_mode) == 0o2750
    assert stat.S_IMODE(os.stat(tmp_path / "a/b/file").st_mode) == 0o640
    assert (tmp_path / "a/link").read_text() == "text\n"
    assert run(*entries) == []


def test_removal_from_the_bottom_up(tmp_path):
    run(entry(tmp_path / "d", state="directory"), entry(tmp_path / "d/f", content=""))
    gone = [entry(tmp_path / "d", state="absent"), entry(tmp_path / "d/f", state="absent")]
    assert [name for _action, _kind, name in run(*gone)] == [
        str(tmp_path / "d/f"),
        str(tmp_path / "d"),
    ]
    assert run(*gone) == []


def test_a_directory_with_more_in_it_is_refused_before_any_change(tmp_path):
    run(entry(tmp_path / "d", state="directory"), entry(tmp_path / "d/mine", content="x"))
    with pytest.raises(Refusal, match="1 more in it, for example mine"):
        plan_of(entry(tmp_path / "d", state="absent"))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"path": "relative", "content": "x"}, "relative"),
        ({"path": "/a/../b", "content": "x"}, "shortest form"),
        ({"path": "/a/", "content": "x"}, "Give the whole path: /a"),
        ({"path": "/a"}, "neither of content"),
        ({"path": "/a", "content": "x", "secret_content": "y"}, "exactly one"),
        ({"path": "/a", "state": "directory", "content": "x"}, "no content"),
        ({"path": "/a", "state": "link"}, "a target for a link"),
        ({"path": "/a", "content": "x", "mode": "rw"}, "octal"),
        ({"path": "/a", "content": "x", "mode": "0888"}, "octal"),
        ({"path": "/a", "content": "x" * (files.MAX_CONTENT + 1)}, "artifact"),
    ],
)
def test_entries_that_make_no_sense(keys, message):
    with pytest.raises(Refusal, match=message):
        plan_of(entry(**keys))


def test_two_entries_for_one_path(tmp_path):
    with pytest.raises(Refusal, match="two entries"):
        plan_of(entry(tmp_path / "a", content="x"), entry(tmp_path / "a", content="y"))


@pytest.mark.parametrize("state", ["file", "link"])
def test_a_directory_in_the_way_is_not_replaced(tmp_path, state):
    (tmp_path / "x").mkdir()
    keys = {"content": "x"} if state == "file" else {"target": "y"}
    with pytest.raises(Refusal, match="Move that directory away"):
        plan_of(entry(tmp_path / "x", state=state, **keys))


def test_secrets_never_show(tmp_path):
    path = tmp_path / "token"
    run(entry(path, secret_content="hunter2", mode="0400"))
    for changed in ({"secret_content": "hunter3"}, {"state": "absent"}):
        plan = plan_of(entry(path, **changed))
        shown = str(plan.result())
        assert "hunter" not in shown
        assert plan.changed
    assert "its content changes" in str(plan_of(entry(path, secret_content="hunter3")).result())
    assert "its content changes" not in str(
        plan_of(entry(path, secret_content="hunter2", mode="0440")).result()
    )


def test_a_file_is_never_under_its_name_with_the_wrong_mode(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")
    before = os.stat(path).st_ino
    run(entry(path, content="new", mode="0600"))
    assert os.stat(path).st_ino != before  # a rename, not a rewrite
    assert os.listdir(tmp_path) == ["x"]


def test_owners_that_do_not_exist_yet_are_planned_and_refused_only_by_the_run(tmp_path):
    wanted = entry(tmp_path / "x", content="x", owner="tether-nobody-there")
    plan = plan_of(wanted)
    assert plan.changed
    with pytest.raises(Refusal, match="no account tether-nobody-there"):
        files.apply(plan)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a stranger's link")
def test_a_path_through_a_link_of_a_stranger_is_refused_before_any_change(tmp_path):
    (tmp_path / "real").mkdir()
    os.symlink("real", tmp_path / "link")
    assert plan_of(entry(tmp_path / "link/x", content="x")).changed
    os.lchown(tmp_path / "link", 65534, 65534)
    with pytest.raises(Refusal, match="made by uid 65534"):
        plan_of(entry(tmp_path / "link/x", content="x"))


def test_a_link_in_place_of_a_file_is_replaced_not_followed(tmp_path):
    (tmp_path / "target").write_text("keep")
    os.symlink("target", tmp_path / "x")
    run(entry(tmp_path / "x", content="new"))
    assert (tmp_path / "target").read_text() == "keep"
    assert (tmp_path / "x").read_text() == "new"
    assert not (tmp_path / "x").is_symlink()
