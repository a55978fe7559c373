# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.tether.fleet.plugins.module_utils import accounts, dscl, shadow_utils
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal, Step

NOLOGIN = "/usr/sbin/nologin"


def entry(name, groups=(), state="present", comment="tether.fleet"):
    return {"name": name, "groups": list(groups), "state": state, "comment": comment}


def found(uid=998, login=NOLOGIN, comment="tether.fleet", locked=True):
    return {"uid": uid, "gid": uid, "shell": login, "comment": comment, "locked": locked}


def plan_of(entries, there=None, groups=None, members=None):
    there = there or {}
    observed = {
        "first_person": 1000,
        "shell": NOLOGIN,
        "accounts": {item["name"]: there.get(item["name"]) for item in entries},
        "groups": {**{name: item["gid"] for name, item in there.items()}, **(groups or {})},
        "members": members or {},
    }
    return [
        tuple(step.summary().values())
        for step in accounts.plan({"accounts": entries}, observed).steps
    ]


def test_a_fresh_host():
    entries = [entry("tether-team-a", ["tether-ingress", "video"]), entry("tether-ingress")]
    assert plan_of(entries, groups={"video": 44}) == [
        ("create", "group", "tether-team-a"),
        ("create", "group", "tether-ingress"),
        ("create", "account", "tether-team-a"),
        ("create", "account", "tether-ingress"),
        ("add", "membership", "tether-team-a in tether-ingress"),
        ("add", "membership", "tether-team-a in video"),
    ]


def test_a_converged_host():
    entries = [entry("tether-x", ["video"])]
    there = {"tether-x": found()}
    members = {"tether-x": ["video", "audio"]}
    assert plan_of(entries, there, {"video": 44}, members) == []


def test_a_run_that_was_killed_between_group_and_account():
    assert plan_of([entry("tether-x")], groups={"tether-x": 990}) == [
        ("create", "account", "tether-x")
    ]


def test_only_our_own_groups_are_taken_away():
    members = {"tether-x": ["audio", "tether-old"]}
    assert plan_of([entry("tether-x")], {"tether-x": found()}, members=members) == [
        ("remove", "membership", "tether-x in tether-old")
    ]


@pytest.mark.parametrize("change", [{"comment": "other"}, {"locked": False}])
def test_drift_is_mended(change):
    assert plan_of([entry("tether-x")], {"tether-x": found(**change)}) == [
        ("update", "account", "tether-x")
    ]


@pytest.mark.parametrize(
    ("there", "groups", "message"),
    [
        ({"tether-x": found(uid=1000)}, {}, "uid 1000"),
        ({"tether-x": found(uid=0)}, {}, "uid 0"),
        ({"tether-x": found(login="/bin/bash")}, {}, "login shell /bin/bash"),
        ({"tether-x": found(login="")}, {}, "login shell /bin/sh"),
        ({}, {"tether-x": 1001}, "gid 1001"),
    ],
)
@pytest.mark.parametrize("state", ["present", "absent"])
def test_people_are_never_adopted_nor_removed(there, groups, message, state):
    with pytest.raises(Refusal, match=message):
        plan_of([entry("tether-x", state=state)], there, groups)


def test_a_group_that_nobody_makes():
    with pytest.raises(Refusal, match="no group render"):
        plan_of([entry("tether-x", ["render"])])


def test_removal():
    entries = [entry("tether-x", state="absent")]
    assert plan_of(entries) == []
    assert plan_of(entries, {"tether-x": found()}) == [
        ("remove", "account", "tether-x"),
        ("remove", "group", "tether-x"),
    ]


@pytest.mark.parametrize(
    "name", ["root", "tether-", "tether-" + "x" * 26, "tether-X", "tether-a:b", "tether-a\n"]
)
def test_names_that_are_not_ours(name):
    with pytest.raises(Refusal, match="tether- and then"):
        accounts.check_entries([entry(name)])


def test_observe_reads_this_machine():
    seen = accounts.observe({"accounts": [entry("tether-not-there")]})
    assert seen["accounts"] == {"tether-not-there": None}
    assert seen["groups"]["root"] == 0


STEPS = {
    "group": Step("create", "group", "tether-x"),
    "no group": Step("remove", "group", "tether-x"),
    "account": Step("create", "account", "tether-x", data={"comment": "c", "shell": "/s"}),
    "no account": Step("remove", "account", "tether-x"),
    "comment": Step("update", "account", "tether-x", data={"comment": "c"}),
    "member": Step("add", "membership", "", data={"account": "tether-x", "group": "g"}),
    "no member": Step("remove", "membership", "", data={"account": "tether-x", "group": "g"}),
}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("group", "groupadd --system tether-x"),
        ("no group", "groupdel tether-x"),
        (
            "account",
            "useradd --system --no-create-home --home-dir /nonexistent --shell /s --gid tether-x"
            " --comment c tether-x",
        ),
        ("no account", "userdel tether-x"),
        ("comment", "usermod --comment c tether-x"),
        ("member", "usermod --append --groups g tether-x"),
        ("no member", "gpasswd --delete tether-x g"),
    ],
)
def test_commands_on_linux(name, words):
    assert [" ".join(argv) for argv in shadow_utils.commands(STEPS[name])] == [words]


def test_a_password_is_locked():
    step = Step("update", "account", "tether-x", data={"lock": True})
    assert shadow_utils.commands(step) == [["usermod", "--lock", "tether-x"]]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no group", "-delete /Groups/tether-x"),
        ("no account", "-delete /Users/tether-x"),
        ("comment", "-create /Users/tether-x RealName c"),
        ("member", "-append /Groups/g GroupMembership tether-x"),
        ("no member", "-delete /Groups/g GroupMembership tether-x"),
    ],
)
def test_commands_on_a_mac(name, words):
    found = [" ".join(argv) for argv in dscl.commands(STEPS[name])]
    assert found == ["dscl /Local/Default " + words]


def test_ids_on_a_mac():
    assert dscl.free_id({401, 402, 404}) == 403
    with pytest.raises(Refusal, match="every id from 401 to 499"):
        dscl.free_id(set(range(401, 500)))
