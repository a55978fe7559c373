# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os
import pwd
import time

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.daemon import plist_place
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

ME = pwd.getpwuid(os.getuid())


@pytest.fixture
def agents(tmp_path):
    """The place of a login session of whoever runs the tests."""
    folder = tmp_path / "Library" / "LaunchAgents"
    folder.mkdir(parents=True)
    domain = "gui/%d" % ME.pw_uid
    return plist_place.Place(domain, str(folder), "me", str(tmp_path), ME.pw_uid, ME.pw_gid)


def test_names():
    system = plist_place.SYSTEM
    assert system.path("tether-x") == "/Library/LaunchDaemons/tether-x.plist"
    assert (system.target("tether-x"), system.shown("tether-x")) == ("system/tether-x", "tether-x")
    login = plist_place.of_login(ME.pw_name)
    assert login.path("x") == ME.pw_dir + "/Library/LaunchAgents/x.plist"
    assert login.target("x") == "gui/%d/x" % ME.pw_uid
    assert login.shown("x") == "x (session of %s)" % ME.pw_name


def test_a_session_needs_an_account():
    with pytest.raises(Refusal, match="login session of tether-nobody: found no such account"):
        plist_place.of_login("tether-nobody")


def test_reading_an_accounts_folder_follows_no_link(agents, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("for root alone")
    path = agents.path("tether-x")
    assert agents.read("tether-x") is None
    os.symlink(secret, path)
    assert agents.read("tether-x") is None
    os.unlink(path)
    os.mkfifo(path)
    assert agents.read("tether-x") is None
    os.unlink(path)
    os.mkdir(path)
    assert agents.read("tether-x") is None
    os.rmdir(path)
    secret.rename(path)
    assert agents.read("tether-x") == b"for root alone"
    os.chmod(path, 0o644)
    assert agents.is_trusted("tether-x")
    os.chmod(path, 0o666)
    assert not agents.is_trusted("tether-x")


def test_an_accounts_file_has_an_end(agents):
    with open(agents.path("tether-x"), "wb") as stream:
        stream.write(b"x" * 128 * 1024)
    assert len(agents.read("tether-x")) == 128 * 1024
    with open(agents.path("tether-x"), "ab") as stream:
        stream.write(b"x")
    assert agents.read("tether-x") == b""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_the_accounts_command_gets_nothing_of_roots_and_has_an_end(agents, tmp_path, monkeypatch):
    monkeypatch.setenv("TETHER_SECRET", "x")
    agents._as_account('/usr/bin/env > "$1/seen"', "tether-x")
    seen = (tmp_path / "Library/LaunchAgents/seen").read_text().splitlines()
    assert "PATH=/usr/bin:/bin" in seen
    assert {line.partition("=")[0] for line in seen} <= {"PATH", "PWD", "SHLVL", "_", "OLDPWD"}
    monkeypatch.setattr(plist_place, "_PATIENCE", 0.2)
    began = time.monotonic()
    with pytest.raises(Refusal, match="the account me cannot write it: no answer within"):
        agents._as_account("exec sleep 60", "tether-x")
    assert time.monotonic() - began < 30
    with pytest.raises(Refusal, match="cannot write it: no room"):
        agents._as_account("echo no room >&2; exit 1", "tether-x")


def test_what_is_another_accounts_is_none_of_that_session(agents):
    with open(agents.path("tether-x"), "w") as stream:
        stream.write("x")
    other = plist_place.Place(agents.domain, agents.folder, "other", uid=ME.pw_uid + 1)
    assert other.read("tether-x") is None


def test_labels_by_prefix(agents):
    for name in ("tether-a", "tether-b.c", "other", "tether-[x]"):
        with open(agents.path(name), "w"):
            pass
    with open(os.path.join(agents.folder, "tether-no"), "w"):
        pass
    assert plist_place.labels(agents, "tether-") == ["tether-[x]", "tether-a", "tether-b.c"]
    assert plist_place.labels(agents, "tether-[") == ["tether-[x]"]
    assert plist_place.labels(agents, "x") == []
