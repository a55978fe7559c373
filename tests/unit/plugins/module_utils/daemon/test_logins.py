# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import json
import os

import pytest
from launchd_entries import entry

from ansible_collections.tether.fleet.plugins.module_utils.daemon import logins, plist_place
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

ME = plist_place.session("me", "/Users/me", 501, 20)
OTHER = plist_place.session("other", "/Users/other", 502, 20)
DIRECTORY = {"path": "/var/lib/tether/run/a", "owner": "me", "group": "me", "mode": "0700"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(logins, "FOLDER", str(tmp_path / "tether" / "logins"))
    return tmp_path / "tether" / "logins"


def login(place=ME, **keys):
    return logins.of(entry(session="login", user=place.account, **keys), place)


def test_what_was_noted_is_read_again(folder):
    assert (logins.read("tether-x"), logins.labels("tether-")) == ([], [])
    first = login(stop_timeout=7, runtime_directories=[DIRECTORY])
    logins.add("tether-x", first)
    logins.add("tether-x", login(OTHER))
    logins.add("tether-y", login())
    assert logins.read("tether-x") == [first, login(OTHER)]
    assert logins.find("tether-x", ME).directories == (DIRECTORY["path"],)
    assert logins.labels("tether-") == ["tether-x", "tether-y"]
    assert logins.labels("tether-y") == ["tether-y"]
    assert os.stat(logins.path("tether-x")).st_mode & 0o777 == 0o600
    # A later one of the same place takes its place.
    logins.add("tether-x", login(stop_timeout=8))
    assert [one.stop_timeout for one in logins.read("tether-x")] == [30, 8]
    logins.remove("tether-x", ME)
    assert logins.read("tether-x") == [login(OTHER)]
    logins.remove("tether-x", OTHER)
    logins.remove("tether-x", OTHER)
    assert os.listdir(folder) == ["tether-y.json"]


@pytest.mark.parametrize("text", ["", "{}x", "7", "[7]", '[{"account": "me"}]', "[null]"])
def test_a_damaged_record_is_none(text):
    logins.add("tether-x", login())
    with open(logins.path("tether-x"), "w") as stream:
        stream.write(text)
    assert logins.read("tether-x") == []


def test_directories_are_of_ours_alone():
    logins.add("tether-x", login(runtime_directories=[DIRECTORY]))
    with open(logins.path("tether-x")) as stream:
        items = json.load(stream)
    items[0]["directories"] += ["/etc", "/var/lib/tether/run/", "/var/lib/tether/run/../x", 7]
    with open(logins.path("tether-x"), "w") as stream:
        json.dump(items, stream)
    assert logins.read("tether-x") == [login(runtime_directories=[DIRECTORY])]


def test_what_root_did_not_write_is_no_record(folder, tmp_path):
    logins.add("tether-x", login())
    os.rename(logins.path("tether-x"), tmp_path / "x.json")
    os.symlink(tmp_path / "x.json", logins.path("tether-x"))
    assert logins.read("tether-x") == []
    os.unlink(logins.path("tether-x"))
    os.rename(tmp_path / "x.json", logins.path("tether-x"))
    assert logins.read("tether-x") == [login()]
    folder.chmod(0o777)
    assert logins.read("tether-x") == []
    with pytest.raises(Refusal, match="that others may write"):
        logins.add("tether-x", login())


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_an_accounts_file_is_no_record():
    logins.add("tether-x", login())
    os.chown(logins.path("tether-x"), 65534, 65534)
    assert logins.read("tether-x") == []
