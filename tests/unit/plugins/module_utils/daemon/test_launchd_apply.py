# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The order of what is asked of launchd, and what is done with each answer.

launchctl is a fake here, which says what a test wants: what is looked at is when it is called, with
answers that a launchd gives only in a moment of its own (37, then 5, then 0). The emulated launchd
of the test bed runs the same functions against something that supervises processes.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess

import pytest
from launchd_entries import NOTHING, digests, entry, job, observed, state, wish

from ansible_collections.tether.fleet.plugins.module_utils.daemon import (
    commands,
    host_lock,
    launchd,
    launchd_apply,
    launchd_job,
    launchd_state,
    log_file,
    logins,
    plist,
    plist_place,
    runtime_directories,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal


class Clock:
    """Time that passes only where somebody waits."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Launchctl:
    """Says of each label what it was told to.

    :ivar jobs: label -> Job
    :ivar lingers: label -> how many looks it is still there for after its bootout
    :ivar answers: label -> statuses of its next bootstraps; 0 once there are none
    :ivar told: what was changed: (verb, label)
    """

    def __init__(self, folder):
        self.folder = folder
        self.jobs, self.lingers, self.answers, self.disabled = {}, {}, {}, set()
        self.leaving = {}
        self.told = []
        self.session = True

    def run(self, argv, timeout, **environment):
        if argv[0] == "ps":
            return subprocess.CompletedProcess(argv, 0, "Thu Jan  1 00:00:10 1970\n", "")
        code, out = getattr(self, argv[1].replace("-", "_"))(*argv[2:])
        return subprocess.CompletedProcess(argv, code, out, "Failed: %d: words" % code)

    def print(self, target):
        label = target.rpartition("/")[2]
        if not self.session:
            return 125, ""
        if label in self.leaving:
            self.leaving[label] -= 1
            if self.leaving[label] < 0:
                del self.leaving[label], self.jobs[label]
        if label not in self.jobs:
            return 113, ""
        return 0, text_of(label, self.jobs[label])

    def print_disabled(self, domain):
        lines = ['\t"%s" => disabled' % label for label in sorted(self.disabled)]
        return 0, "\n".join(["disabled services = {", *lines, "}", ""])

    def bootout(self, target):
        label = target.rpartition("/")[2]
        self.told.append(("bootout", label))
        if label in self.leaving:
            return 36, ""
        if label not in self.jobs:
            return 3, ""
        self.leaving[label] = self.lingers.get(label, 0)
        return 0, ""

    def bootstrap(self, domain, path):
        label = os.path.basename(path)[: -len(".plist")]
        self.told.append(("bootstrap", label))
        code = self.answers.get(label, []).pop(0) if self.answers.get(label) else 0
        if callable(code):
            code = code()
        if code == 0 and label in self.disabled:
            code = 119
        if code == 0:
            assert label not in self.jobs, "bootstrap before the label was gone"
            with open(path, "rb") as stream:
                made = plist.parse(stream.read())
            self.jobs[label] = loaded(made, path)
        return code, ""

    def enable(self, target):
        self.told.append(("enable", target.rpartition("/")[2]))
        self.disabled.discard(target.rpartition("/")[2])
        return 0, ""

    def disable(self, target):
        self.told.append(("disable", target.rpartition("/")[2]))
        self.disabled.add(target.rpartition("/")[2])
        return 0, ""


def loaded(made, path):
    variables = ["%s => %s" % item for item in made["EnvironmentVariables"].items()]
    keys = {"path": path, "state": "running", "pid": "77", "runs": "1", "exit timeout": "30"}
    blocks = {"arguments": made["ProgramArguments"], "environment": variables}
    return launchd_job.Job(keys, blocks)


def text_of(label, found):
    lines = ["system/%s = {" % label, *("\t%s = %s" % item for item in found.keys.items())]
    for name, block in found.blocks.items():
        lines += ["\t%s = {" % name, *("\t\t" + line for line in block), "\t}"]
    return "\n".join([*lines, "}", ""])


@pytest.fixture
def mac(tmp_path, monkeypatch):
    folder = tmp_path / "LaunchDaemons"
    folder.mkdir()
    (tmp_path / "run").mkdir()
    fake = Launchctl(folder)
    fake.place = plist_place.Place("system", str(folder))
    fake.clock = Clock()
    monkeypatch.setattr(commands, "run", fake.run)
    monkeypatch.setattr(launchd_apply, "time", fake.clock)
    monkeypatch.setattr(host_lock, "time", fake.clock)
    monkeypatch.setattr(launchd_apply, "LOCK", str(tmp_path / "run" / "tether" / "lock"))
    monkeypatch.setattr(launchd_state, "RECORD_DIR", str(tmp_path / "run" / "tether" / "loaded"))
    monkeypatch.setattr(log_file, "FOLDER", str(tmp_path / "log"))
    monkeypatch.setattr(logins, "FOLDER", str(tmp_path / "tether" / "logins"))
    monkeypatch.setattr(plist_place.files, "is_roots", lambda path, mode: True)
    # Whoever runs the tests may not be root.
    monkeypatch.setattr(os, "fchown", lambda *_: None)
    return fake


def carry_out(mac, *pairs, gone=()):
    """Plan and apply.

    :param pairs: (entry, what differs from a daemon that runs as it should)
    """
    units = []
    for one, seen in pairs:
        found = state(one, mac.place, **seen)
        units.append((one, found))
        if found.job is not None:
            mac.jobs[one["name"]] = found.job
        if found.text is not None:
            (mac.folder / (one["name"] + ".plist")).write_text(found.text)
    plan = launchd.plan({"daemons": [one for one, _seen in pairs]}, observed(units, gone))
    launchd.apply(plan)
    return plan


def before(one, mac):
    """What there is when it still runs from what was wanted before."""
    old = dict(one, version="before")
    return {"text": plist.text(wish(old, mac.place)), "job": job(old, mac.place)}


ONE = entry()


def test_a_fresh_daemon_is_written_and_loaded(mac):
    plan = carry_out(mac, (ONE, NOTHING))
    assert mac.told == [("bootstrap", "tether-x")]
    assert plist.parse((mac.folder / "tether-x.plist").read_bytes()) == wish(ONE, mac.place)
    assert os.path.isfile(log_file.path("tether-x"))
    assert plan.facts["daemons"]["tether-x"]["failed"] is False


def test_a_restart_waits_until_the_label_is_gone(mac):
    mac.lingers["tether-x"] = 20
    carry_out(mac, (ONE, before(ONE, mac)))
    assert mac.told == [("bootout", "tether-x"), ("bootstrap", "tether-x")]
    assert mac.clock.now > 1003
    assert mac.jobs["tether-x"].environment[plist.DIGEST] == digests(ONE, mac.place)[0]


def test_who_ends_slowly_holds_nobody_up(mac):
    slow, quick = entry(name="tether-a"), entry(name="tether-b")
    mac.lingers["tether-a"] = 20
    carry_out(mac, (slow, before(slow, mac)), (quick, before(quick, mac)))
    assert mac.told == [
        ("bootout", "tether-a"),
        ("bootout", "tether-b"),
        ("bootstrap", "tether-b"),
        ("bootstrap", "tether-a"),
    ]


def test_a_process_that_never_ends_is_told_and_not_started_beside_itself(mac):
    mac.lingers["tether-x"] = 10**6
    other = entry(name="tether-y")
    plan = carry_out(mac, (ONE, before(ONE, mac)), (other, before(other, mac)))
    fact = plan.facts["daemons"]["tether-x"]
    assert "it was booted out and has not ended (state = running)" in fact["reason"]
    assert ("bootstrap", "tether-x") not in mac.told
    assert plan.facts["daemons"]["tether-y"]["failed"] is False
    # As long as launchd itself would give it (5 s without an ExitTimeOut), and some more.
    assert 1015 < mac.clock.now < 1030


@pytest.mark.parametrize("codes", [[37], [5, 36, 37, 5], [37, 5] * 8])
def test_a_bootstrap_that_comes_too_early_is_tried_again(mac, codes):
    mac.answers["tether-x"] = list(codes)
    plan = carry_out(mac, (ONE, NOTHING))
    assert plan.facts["daemons"]["tether-x"]["failed"] is False
    assert len(mac.told) == len(codes) + 1


def test_but_not_for_ever(mac):
    mac.answers["tether-x"] = [5] * 1000
    plan = carry_out(mac, (ONE, NOTHING))
    fact = plan.facts["daemons"]["tether-x"]
    assert "status 5, launchd's answer to everything" in fact["reason"]
    assert "log show" in fact["reason"]
    assert 1015 <= mac.clock.now < 1020


@pytest.mark.parametrize("code", [3, 64, 112, 122, 125, 134, 155, 161])
def test_what_waiting_does_not_mend_is_told_at_once(mac, code):
    mac.answers["tether-x"] = [code]
    other = entry(name="tether-y")
    plan = carry_out(mac, (ONE, NOTHING), (other, NOTHING))
    assert "status %d" % code in plan.facts["daemons"]["tether-x"]["reason"]
    assert mac.told == [("bootstrap", "tether-x"), ("bootstrap", "tether-y")]
    assert plan.facts["daemons"]["tether-y"]["failed"] is False


def test_an_override_goes_before_the_bootstrap(mac):
    mac.disabled = {"tether-x"}
    carry_out(mac, (ONE, {**before(ONE, mac), "disabled": True}))
    assert mac.told == [
        ("enable", "tether-x"),
        ("bootout", "tether-x"),
        ("bootstrap", "tether-x"),
    ]


def test_somebody_disables_it_meanwhile(mac):
    def disabled():
        mac.disabled.add("tether-x")
        return 119

    mac.answers["tether-x"] = [disabled]
    carry_out(mac, (ONE, NOTHING))
    assert mac.told == [
        ("bootstrap", "tether-x"),
        ("enable", "tether-x"),
        ("bootstrap", "tether-x"),
    ]


def test_somebody_loads_it_meanwhile(mac):
    """37 because it is there, and from this very plist: that is what was wanted."""

    def first():
        mac.jobs["tether-x"] = job(ONE, mac.place)
        return 37

    mac.answers["tether-x"] = [first]
    plan = carry_out(mac, (ONE, NOTHING))
    assert plan.facts["daemons"]["tether-x"]["failed"] is False
    assert mac.told == [("bootstrap", "tether-x")]


def test_another_run_was_first(mac, monkeypatch):
    """It did everything between this run's plan and its turn: nothing is left to do."""
    real = launchd_apply._carry_out

    def while_this_one_waits(step):
        real(step)
        mac.jobs["tether-x"] = job(ONE, mac.place)

    monkeypatch.setattr(launchd_apply, "_carry_out", while_this_one_waits)
    plan = carry_out(mac, (ONE, before(ONE, mac)))
    assert mac.told == []
    assert plan.data["begun"] == {}


def test_one_run_at_a_time(mac, tmp_path):
    os.mkdir(tmp_path / "run" / "tether")
    held = os.open(launchd_apply.LOCK, os.O_RDWR | os.O_CREAT)
    try:
        assert host_lock._lock(held)
        with pytest.raises(Refusal, match="another run that has been changing this"):
            carry_out(mac, (ONE, NOTHING))
        assert not (mac.folder / "tether-x.plist").exists()
    finally:
        os.close(held)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"argv": ["/nowhere/x"]}, "there is no program /nowhere/x"),
        ({"user": "tether-nobody-here"}, "there is no account tether-nobody-here"),
        ({"restart_files": [{"path": "/etc/passwd", "sha256": "0" * 64}]}, "is expected"),
        ({"working_directory": "/nowhere"}, "there is no working directory"),
    ],
)
def test_what_cannot_start_leaves_the_running_one_alone(mac, keys, message):
    one = entry(**keys)
    plan = carry_out(mac, (one, before(one, mac)))
    assert message in plan.facts["daemons"]["tether-x"]["reason"]
    assert mac.told == []


def test_no_session_is_said_in_words(mac):
    mac.session = False
    mac.place = plist_place.Place("gui/501", str(mac.folder))
    plan = carry_out(mac, (ONE, NOTHING))
    assert "is logged in at the screen" in plan.facts["daemons"]["tether-x"]["reason"]
    assert mac.told == []


def test_what_stops_is_disabled_before_it_could_be_loaded_at_a_boot(mac):
    mac.lingers["tether-x"] = 3
    carry_out(mac, (entry(state="stopped"), {"text": None, "job": job(ONE)}))
    assert mac.told == [("disable", "tether-x"), ("bootout", "tether-x")]
    assert "tether-x" not in mac.jobs


def test_a_stop_that_does_not_end_is_a_failure(mac):
    mac.lingers["tether-x"] = 10**6
    with pytest.raises(Refusal, match="has not ended"):
        carry_out(mac, (entry(state="stopped"), {}))


def test_a_removal_leaves_the_log_alone(mac):
    path = mac.folder / "tether-x.plist"
    path.write_text(plist.text(wish(ONE, mac.place)))
    mac.jobs["tether-x"], mac.disabled = job(ONE, mac.place), {"tether-x"}
    log_file.make("tether-x", 0, 0)
    one = entry(state="absent")
    found = state(ONE, mac.place, disabled=True)
    launchd.apply(launchd.plan({"daemons": [one]}, observed(gone=[found])))
    assert mac.told == [("bootout", "tether-x"), ("enable", "tether-x")]
    assert not path.exists()
    assert os.path.isfile(log_file.path("tether-x"))


LOGIN_UID = 12345


@pytest.fixture
def login(mac, tmp_path):
    """A place of a session whose account cannot be become: nobody is so in these tests."""
    return plist_place.session("me", str(tmp_path / "home"), LOGIN_UID, LOGIN_UID)


@pytest.mark.parametrize("kind", ["write", "stop", "remove"])
def test_an_account_in_the_way_fails_its_daemon_alone(mac, login, monkeypatch, kind):
    def refuse(*_):
        raise Refusal("plist x", "that the account me cannot write it", "y", "z")

    monkeypatch.setattr(plist_place.Place, "_as_account", refuse)
    one = entry(name="tether-a", session="login", user="root")
    other = entry(name="tether-b")
    units, gone = [(other, state(other, mac.place, **NOTHING))], []
    if kind == "write":
        units.insert(0, (one, state(one, login, **NOTHING, session=False)))
    else:
        found = state(one, login, recorded=True, patience=30)
        gone.append(found)
        mac.jobs["tether-a"] = found.job
        mac.lingers["tether-a"] = 10**6 if kind == "stop" else 0
        one = entry(name="tether-a", state="absent")
    plan = launchd.plan({"daemons": [one, other]}, observed(units, gone))
    launchd.apply(plan)
    facts = plan.facts["daemons"]
    message = "has not ended" if kind == "stop" else "the account me cannot write it"
    assert message in facts["tether-a"]["reason"]
    assert not facts["tether-b"]["failed"]
    assert ("bootstrap", "tether-b") in mac.told


@pytest.mark.parametrize(("recorded", "longest"), [(None, 60), (20, 20)])
def test_an_account_does_not_say_how_long_root_waits(mac, login, recorded, longest):
    one = entry(session="login", user="root")
    found = state(one, login, recorded=recorded is not None, patience=recorded)
    found.job.keys["exit timeout"] = "999999999"
    mac.jobs["tether-x"], mac.lingers["tether-x"] = found.job, 10**6
    plan = launchd.plan({"daemons": [entry(state="absent")]}, observed(gone=[found]))
    launchd.apply(plan)
    assert "has not ended" in plan.facts["daemons"]["tether-x"]["reason"]
    assert longest < mac.clock.now - 1000 < longest + 30


def test_a_label_that_cannot_be_asked_for_fails_its_daemon_alone(mac, login, monkeypatch):
    real = mac.print
    monkeypatch.setattr(
        mac, "print", lambda target: (124, "") if target.startswith("gui/") else real(target)
    )
    found = launchd_state.look("tether-x", login, False)
    assert "status 124" in found.trouble
    one = entry(session="login", user="root")
    seen = launchd_state.look("tether-x", login, False, one)
    plan = launchd.plan({"daemons": [one]}, observed([(one, seen)]))
    monkeypatch.setattr(plist_place.Place, "_as_account", lambda *_: None)
    launchd.apply(plan)
    assert "status 124" in plan.facts["daemons"]["tether-x"]["reason"]


def test_what_root_believes_of_a_login_session_is_its_own_record(mac, login, tmp_path, monkeypatch):
    monkeypatch.setattr(plist, "RUNTIME_ROOT", "/var/lib/tether/run/")
    directory = {"owner": "root", "group": "root", "mode": "0700"}
    lie = entry(
        session="login",
        user="root",
        stop_timeout=999999999,
        runtime_directories=[dict(directory, path="/var/lib/tether/run/of-another")],
    )
    text = plist.text(wish(lie, login)).encode()
    monkeypatch.setattr(plist_place.Place, "read", lambda *_: text)
    found = launchd_state.look("tether-x", login, False)
    assert (found.directories, found.recorded, found.patience) == ([], False, None)
    # And without a record nobody looks there at all.
    desired = {"daemons": [entry(state="absent")], "prune": ["tether-"]}
    monkeypatch.setattr(plist_place, "SYSTEM", mac.place)
    monkeypatch.setattr(plist_place.Place, "read", lambda *_: None)
    assert [one.place for one in launchd.observe(desired)["gone"]] == [mac.place]
    logins.add("tether-x", logins.Login(login, 7, ("/var/lib/tether/run/mine",)))
    gone = launchd.observe(desired)["gone"]
    assert [one.place for one in gone] == [mac.place, login]
    assert (gone[1].directories, gone[1].patience) == (["/var/lib/tether/run/mine"], 7)
    assert [
        one.place for one in launchd.observe({"daemons": [], "prune": ["tether-"]})["gone"]
    ] == [login]


def test_what_cannot_start_at_its_new_place_stays_at_the_old(mac, login, monkeypatch):
    monkeypatch.setattr(plist_place.Place, "_as_account", lambda *_: None)
    one = entry(argv=["/nowhere/x"])
    old = state(one, login, recorded=True, patience=30)
    mac.jobs["tether-x"] = old.job
    new = state(one, mac.place, **NOTHING)
    plan = launchd.plan({"daemons": [one]}, observed([(one, new)], [old]))
    assert [step.words() for step in plan.steps if step.kind == "process"] == [
        "start process tether-x",
        "stop process tether-x (session of me)",
    ]
    launchd.apply(plan)
    assert "there is no program" in plan.facts["daemons"]["tether-x"]["reason"]
    assert mac.told == []
    assert not (mac.folder / "tether-x.plist").exists()


def test_a_removal_that_is_killed_half_way_is_done_by_the_next(mac, tmp_path, monkeypatch):
    """The plist says what else there is to remove, so it goes last."""
    monkeypatch.setattr(plist, "RUNTIME_ROOT", str(tmp_path) + "/run-of/")
    folder = tmp_path / "run-of" / "a"
    folder.mkdir(parents=True)
    directory = {"path": str(folder), "owner": "root", "group": "root", "mode": "0700"}
    one = entry(runtime_directories=[directory])
    path = mac.folder / "tether-x.plist"
    path.write_text(plist.text(wish(one, mac.place)))
    found = state(one, mac.place, job=None)

    def killed(*_):
        assert path.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(runtime_directories, "remove", killed)
    with pytest.raises(KeyboardInterrupt):
        launchd.apply(launchd.plan({"daemons": []}, observed(gone=[found])))
    monkeypatch.undo()
    assert path.exists()


RELOADS = {
    "reload_files": [{"path": "/etc/passwd"}],
    "reload_argv": ["/bin/sh", "-c", 'echo "$A"; test "$A" = ok'],
    "environment": {"A": "ok"},
}
OTHER = {"record": {"process": "42 then", "loaded": "old", "log": [1, 2]}}


def test_a_reload_runs_its_command_and_nothing_else(mac):
    one = entry(**RELOADS)
    same = dict(OTHER, process="42 Thu Jan 1 00:00:10 1970")
    same["record"] = dict(OTHER["record"], process=same["process"])
    launchd_state.records.write(launchd_state.RECORD_DIR, "tether-x", same["record"])
    plan = carry_out(mac, (one, same))
    assert plan.facts["daemons"]["tether-x"]["action"] == "reload"
    assert plan.facts["daemons"]["tether-x"]["failed"] is False
    assert mac.told == []
    # Where its start's output begins is still known.
    assert plan.data["begun"] == {"tether-x": [1, 2]}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"environment": {"A": "not ok"}}, "new configuration (status 1: not ok)"),
        ({"reload_argv": ["/nowhere/reload"]}, "/nowhere/reload: No such file"),
    ],
)
def test_a_reload_that_fails_is_told(mac, keys, message):
    plan = carry_out(mac, (entry(**{**RELOADS, **keys}), OTHER))
    fact = plan.facts["daemons"]["tether-x"]
    assert message in fact["reason"]
    assert "it still runs with the old one" in fact["reason"]


def test_a_look_that_fails_once_stops_nothing_half_way(mac, monkeypatch):
    """Both are booted out; that launchctl hangs then must not leave the other one down."""
    pair = entry(name="tether-a"), entry(name="tether-b")
    real, failures = mac.print, [124, 1]

    def now_and_then(target):
        if mac.leaving and failures:
            return failures.pop(), ""
        return real(target)

    monkeypatch.setattr(mac, "print", now_and_then)
    carry_out(mac, *((one, before(one, mac)) for one in pair))
    assert [verb for verb, _label in mac.told] == ["bootout"] * 2 + ["bootstrap"] * 2


def test_nothing_to_do_asks_nothing(mac):
    assert dataclasses.asdict(carry_out(mac, (ONE, {})))["steps"] == []
    assert mac.told == []
