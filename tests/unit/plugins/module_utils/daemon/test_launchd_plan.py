# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import dataclasses
import plistlib

import pytest
from launchd_entries import NOTHING, SYSTEM, digests, entry, job, observed, state, wish

from ansible_collections.tether.fleet.plugins.module_utils.daemon import (
    launchd,
    launchd_plan,
    plist,
    plist_place,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

LOGIN = plist_place.Place(
    "gui/501", "/Users/me/Library/LaunchAgents", "me", "/Users/me", uid=501, gid=20
)
RELOADS = {
    "reload_files": [{"path": "/etc/x", "sha256": "1" * 64}],
    "reload_argv": ["/bin/true"],
}
PLIST = "/Library/LaunchDaemons/tether-x.plist"


def steps(one, newest=None, place=SYSTEM, **keys):
    seen = observed([(one, state(one, place, **keys))], newest=newest)
    plan = launchd.plan({"daemons": [one]}, seen)
    return [step.words() for step in plan.steps]


def words(*actions, log=False):
    """The steps of tether-x."""
    names = {
        "plist": PLIST,
        "log": "/var/log/tether/tether-x.log",
        "label": "tether-x",
        "process": "tether-x",
    }
    return ["%s %s %s" % (verb, kind, names[kind]) for verb, kind in actions]


FRESH = words(("create", "plist"), ("create", "log"), ("start", "process"))
BASE = entry()


def seen_job(**keys):
    return {"job": job(BASE, keys=keys)}


CASES = [
    ("converged", {}, {}, []),
    ("fresh", {}, NOTHING, FRESH),
    (
        "fresh, and disabled before",
        {},
        {**NOTHING, "disabled": True},
        words(("create", "plist"), ("create", "log"), ("enable", "label"), ("start", "process")),
    ),
    (
        "stopped on a fresh host",
        {"state": "stopped"},
        NOTHING,
        words(("disable", "label"), ("create", "plist")),
    ),
    (
        "to be stopped",
        {"state": "stopped"},
        {},
        words(("disable", "label"), ("stop", "process")),
    ),
    ("stopped", {"state": "stopped"}, {"job": None, "disabled": True}, []),
    (
        "started after it was stopped",
        {},
        {"job": None, "disabled": True},
        words(("enable", "label"), ("start", "process")),
    ),
    ("disabled by somebody while it runs", {}, {"disabled": True}, words(("enable", "label"))),
    ("killed between write and bootstrap", {}, {"job": None}, words(("start", "process"))),
    (
        "its plist lost its owner",
        {},
        {"trusted": False},
        words(("update", "plist")),
    ),
    (
        "its plist was edited and not loaded",
        {},
        {"text": plist.text(dict(wish(BASE), Umask=0))},
        words(("update", "plist")),
    ),
    (
        "its plist was edited while it was stopped",
        {},
        {"text": plist.text(dict(wish(BASE), Umask=0)), "job": None},
        words(("update", "plist"), ("start", "process")),
    ),
    (
        "its plist was edited and loaded",
        {},
        {
            "text": plist.text(dict(wish(BASE), ProgramArguments=["/bin/false"])),
            "job": job(BASE, arguments=["/bin/false"]),
        },
        words(("update", "plist"), ("restart", "process")),
    ),
    (
        "its plist was damaged",
        {},
        {"text": "<!-- %s --> <dict>" % plist.MARK},
        words(("update", "plist")),
    ),
    (
        "its plist is gone, its label is not",
        {},
        {"text": None},
        words(("create", "plist")),
    ),
    (
        "loaded from another path",
        {},
        seen_job(path="/tmp/tether-x.plist"),
        words(("restart", "process")),
    ),
    (
        "loaded from an older plist",
        {},
        {"job": job(entry(version="1"))},
        words(("restart", "process")),
    ),
    (
        "its environment was changed in launchd",
        {},
        {"job": job(BASE, environment=["HOME => /x", "TETHER_DIGEST => " + digests(BASE)[0]])},
        words(("restart", "process")),
    ),
    ("died", {}, seen_job(pid=None, state="not running"), words(("start", "process"))),
    (
        "waits for its next try",
        {},
        seen_job(pid=None, state="spawn scheduled", runs="7"),
        words(("start", "process")),
    ),
    ("being booted out", {}, seen_job(state="SIGTERMed"), words(("start", "process"))),
    ("no log", {}, {"log_needs": "create"}, words(("create", "log"))),
    ("somebody else's log", {}, {"log_needs": "update"}, words(("update", "log"))),
    (
        "its runtime directory is gone",
        {},
        {"wrong_directories": ["/var/lib/tether/run/x"]},
        words(("restart", "process")),
    ),
    ("nothing to reload", RELOADS, {}, []),
    (
        "another content was loaded",
        RELOADS,
        {"record": {"process": "42 then", "loaded": "old"}},
        words(("reload", "process")),
    ),
    (
        "launchd hides environments: the record speaks",
        {},
        {"job": dataclasses.replace(job(BASE), blocks={"arguments": ["/bin/true"]})},
        [],
    ),
    (
        "launchd hides environments, and the record is another process's",
        {},
        {
            "job": dataclasses.replace(job(BASE), blocks={"arguments": ["/bin/true"]}),
            "process": "43 now",
        },
        words(("restart", "process")),
    ),
]


@pytest.mark.parametrize(
    ("keys", "seen", "wanted"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_plan(keys, seen, wanted):
    assert steps(entry(**keys), **seen) == wanted


def test_a_changed_argument_updates_and_restarts():
    one = entry(argv=["/bin/true", "new"])
    before = {"text": plist.text(wish(BASE)), "job": job(BASE)}
    assert steps(one, **before) == words(("update", "plist"), ("restart", "process"))


def test_what_print_may_show_differently_restarts_nothing():
    """Of these words nobody knows how print writes them: the digest alone decides."""
    one = entry(argv=["/bin/x", "ü", "", "two  words", "a\tb"], environment={"A": "ü ü"})
    assert steps(one) == []
    lines = ["/bin/x", "\\u00fc", "(null)", "two words", "a b"]
    found = job(one, arguments=lines)
    assert steps(one, job=found) == []
    # With words that are shown as they are, a difference is one.
    assert steps(one, job=job(one, arguments=["/bin/y", *lines[1:]])) != []


@pytest.mark.parametrize(
    ("newest", "wanted"),
    [
        (900.0, []),  # launchd started it again after the last change
        (999.5, words(("reload", "process"))),  # too close to tell
        (2000.0, words(("reload", "process"))),
        (float("inf"), words(("reload", "process"))),
    ],
)
def test_without_a_record_of_this_process_times_decide(newest, wanted):
    other = {"process": "7 before", "loaded": "old"}
    assert steps(entry(**RELOADS), newest, record=other) == wanted


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({"pid": None, "state": "not running", "last exit code": "0"}, []),
        ({"last exit code": "(never exited)"}, []),  # at work
        (
            {"pid": None, "state": "not running", "last exit code": "1"},
            words(("start", "process")),
        ),
        (
            {"pid": None, "state": "not running", "runs": "0"},
            words(("start", "process")),
        ),
    ],
)
def test_a_oneshot_has_done_its_work_or_not(keys, wanted):
    one = entry(type="oneshot")
    assert steps(one, job=job(one, keys=keys)) == wanted


def test_a_login_session():
    one = entry(session="login", user="me")
    assert steps(one, place=LOGIN) == []
    path = "/Users/me/Library/LaunchAgents/tether-x.plist"
    assert steps(one, place=LOGIN, **{**NOTHING, "session": False}) == [
        "create plist " + path,
        "create log /var/log/tether/tether-x.log",
        "start process tether-x (session of me)",
    ]


RECORD = "/var/lib/tether/logins/tether-x.json"


@pytest.mark.parametrize(
    ("keys", "seen", "wanted"),
    [
        ({}, {**NOTHING, "login_needs": "create"}, "create record"),
        ({}, {"login_needs": "update", "recorded": True}, "update record"),
        # What nobody is logged in for cannot be disabled, so nothing may be there to be loaded.
        ({"state": "stopped"}, {**NOTHING, "session": False, "login_needs": "create"}, ""),
        ({"state": "stopped"}, {"session": False, "job": None}, "remove plist"),
    ],
)
def test_a_login_session_is_recorded_first(keys, seen, wanted):
    one = entry(session="login", user="me", **keys)
    found = steps(one, place=LOGIN, **seen)
    assert (found[0] if found else "").startswith(wanted)
    assert not any("label" in step for step in found)
    if "record" in wanted:
        assert found[0] == "%s %s" % (wanted, RECORD)


def test_a_label_is_left_alone_where_nobody_is_logged_in():
    one = entry(session="login", user="me")
    found = steps(one, place=LOGIN, **{**NOTHING, "session": False, "disabled": True})
    assert "enable label tether-x (session of me)" not in found


def theirs(one):
    """What an account can do in its own session: a plist, or a job, of our name."""
    job_of_theirs = job(one, LOGIN, keys={"path": "/tmp/x.plist"}, environment=["A => b"])
    return [{"ours": False, "text": "theirs", "job": None}, {"job": job_of_theirs}]


@pytest.mark.parametrize("which", [0, 1])
def test_what_an_account_does_fails_its_daemon_alone(which):
    one, other = entry(session="login", user="me"), entry(name="tether-y")
    found = state(one, LOGIN, **theirs(one)[which])
    old = state(one)  # at the system's place, where it stays
    plan = launchd.plan(
        {"daemons": [one, other]},
        observed([(one, found), (other, state(other, **NOTHING))], [old]),
    )
    facts = plan.facts["daemons"]
    assert facts["tether-x"]["failed"]
    assert "somebody else" in facts["tether-x"]["reason"]
    assert not facts["tether-y"]["failed"]
    assert {step.words().split()[-1] for step in plan.steps} == {
        "/Library/LaunchDaemons/tether-y.plist",
        "/var/log/tether/tether-y.log",
        "tether-y",
    }
    assert launchd.settled(plan).startswith("tether-x: ")


@pytest.mark.parametrize("which", [0, 1])
def test_an_accounts_own_things_are_not_removed(which):
    one = entry(session="login", user="me")
    found = state(one, LOGIN, recorded=True, **theirs(one)[which])
    absent = entry(state="absent")
    plan = launchd.plan({"daemons": [absent]}, observed(gone=[found]))
    wanted = ["remove record " + RECORD]
    if which:
        wanted.insert(0, "remove plist /Users/me/Library/LaunchAgents/tether-x.plist")
    assert [step.words() for step in plan.steps] == wanted


FOREIGN = plistlib.dumps({"Label": "tether-x"})


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ({"text": "<plist/>", "ours": False}, "plist " + PLIST + ": found a file that somebody"),
        (
            {
                "job": job(BASE, keys={"path": "/opt/x.plist"}, environment=["A => b"]),
                "text": None,
            },
            "label system/tether-x: found that somebody else loaded it from /opt/x.plist",
        ),
    ],
)
@pytest.mark.parametrize("wanted", ["started", "stopped", "absent"])
def test_plists_of_others_are_refused(seen, message, wanted):
    one = entry(state=wanted)
    found = state(BASE, **seen)
    if wanted == "absent":
        everything = observed(gone=[found])
    else:
        everything = observed([(one, found)])
    with pytest.raises(Refusal) as caught:
        launchd.plan({"daemons": [one]}, everything)
    assert message in str(caught.value)


def removal(**keys):
    one = entry(state="absent")
    plan = launchd.plan({"daemons": [one]}, observed(gone=[state(BASE, **keys)]))
    return [step.words() for step in plan.steps], plan.facts["daemons"]["tether-x"]


@pytest.mark.parametrize(
    ("seen", "wanted", "action"),
    [
        (NOTHING, [], None),
        ({}, words(("stop", "process"), ("remove", "plist")), "remove"),
        # An override outlives plists: it would keep the next one of that name from starting.
        (
            {"job": None, "disabled": True},
            words(("remove", "plist"), ("enable", "label")),
            "remove",
        ),
        ({**NOTHING, "disabled": True}, words(("enable", "label")), "enable"),
        # A run was killed between bootout and removal, or the other way round.
        ({"job": None}, words(("remove", "plist")), "remove"),
        ({"text": None}, words(("stop", "process")), "stop"),
    ],
)
def test_absent_leaves_nothing(seen, wanted, action):
    found, fact = removal(**seen)
    assert found == wanted
    assert (fact["action"], fact["changed"]) == (action, bool(wanted))


def test_what_is_no_longer_listed_or_elsewhere_goes():
    one, other = entry(), entry(name="tether-y")
    moved, pruned = state(one, LOGIN), state(other)
    plan = launchd.plan({"daemons": [one]}, observed([(one, state(one))], [moved, pruned]))
    assert [step.words() for step in plan.steps] == [
        "stop process tether-x (session of me)",
        "remove plist /Users/me/Library/LaunchAgents/tether-x.plist",
        "stop process tether-y",
        "remove plist /Library/LaunchDaemons/tether-y.plist",
    ]
    facts = plan.facts["daemons"]
    assert (facts["tether-x"]["changed"], facts["tether-y"]["action"]) == (True, "remove")
    # What moved keeps its record and its runtime directories: it is using them.
    assert [step.data["gone"] for step in plan.steps] == [False, False, True, True]


def test_plists_are_written_before_any_process_is_touched():
    daemons = [entry(name="tether-a"), entry(name="tether-b")]
    plan = launchd.plan(
        {"daemons": daemons}, observed([(one, state(one, **NOTHING)) for one in daemons])
    )
    assert [step.action for step in plan.steps] == ["create"] * 4 + ["start"] * 2


def test_the_diff_shows_the_plist_as_text():
    one = entry(argv=["/bin/x", "a&b"])
    before = plist.text(wish(BASE))
    plan = launchd.plan({"daemons": [one]}, observed([(one, state(one, text=before))]))
    shown = plan.result()["diff"][0]
    assert shown["before_header"] == "plist " + PLIST
    assert "<string>/bin/true</string>" in shown["before"]
    assert "<string>a&amp;b</string>" in shown["after"]


def test_differs_is_about_what_launchd_has():
    found = wish(BASE)
    assert not launchd_plan.differs(job(BASE), PLIST, found)
    assert launchd_plan.differs(job(BASE), PLIST, dict(found, ProgramArguments=["/bin/true", "x"]))
    assert launchd_plan.differs(job(BASE, environment=["A => b"]), PLIST, found)
