# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.daemon import (
    launchd_job,
    launchd_watch,
    processes,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

NEVER = {"last exit code": "(never exited)"}
LOADED = {"state": "not running", "runs": "0", **NEVER}
RUNNING = {"state": "running", "runs": "1", "pid": "7", **NEVER}
AGAIN = {"state": "running", "runs": "2", "pid": "8", "last exit code": "1"}


def entry(**keys):
    return {"name": "tether-x", "type": "exec", "health": None, **keys}


def follow(looks, fresh=True, young=False, **keys):
    """The verdict after a series of (seconds, keys of print; None when the label is gone)."""
    one = launchd_watch.Watch(entry(**keys), "system/tether-x", fresh, young)
    for seconds, found in looks:
        one.look(None if found is None else launchd_job.Job(found), one._began + seconds)
        if one.verdict is not None:
            break
    one.stop()
    return one.verdict


def test_without_a_probe_it_must_stay_a_second():
    assert follow([(0.1, LOADED), (0.2, RUNNING), (0.9, RUNNING)]) is None
    assert follow([(0.1, LOADED), (0.2, RUNNING), (1.3, RUNNING)]) == ""


def test_a_running_one_that_nothing_was_done_to_needs_no_waiting():
    assert follow([(0.0, {**RUNNING, "runs": "9", "last exit code": "1"})], fresh=False) == ""


def test_one_that_launchd_has_just_started_again_must_stay_too():
    assert follow([(0.1, AGAIN), (0.9, AGAIN)], fresh=False, young=True) is None
    assert follow([(0.1, AGAIN), (1.2, AGAIN)], fresh=False, young=True) == ""
    again = {**AGAIN, "pid": "9", "runs": "3"}
    assert "started it 3 times" in follow([(0.1, AGAIN), (0.9, again)], fresh=False, young=True)


SCHEDULED = {"state": "spawn scheduled", "runs": "1", "last exit code": "3"}


@pytest.mark.parametrize(
    ("looks", "fresh", "message"),
    [
        ([SCHEDULED], True, "it ended with status 3"),
        ([RUNNING, SCHEDULED], True, "it ended with status 3"),
        ([RUNNING, AGAIN], True, "it ended with status 1; launchd has started it 2 times"),
        # It ended and came back between two looks: a label that was just loaded had no end before.
        ([AGAIN], True, "it ended with status 1; launchd has started it 2 times"),
        ([RUNNING, {**RUNNING, "pid": "8"}], True, "another run has loaded it anew"),
        ([RUNNING, {"state": "exited"}], True, "it ended (exited)"),
        ([{**LOADED, "runs": "4", "last exit code": "1"}], False, "it ended with status 1"),
        (
            [RUNNING, {"state": "not running", "last terminating signal": "Killed: 9"}],
            True,
            "it was ended by SIGKILL",
        ),
        ([{**SCHEDULED, "last exit code": "78: EX_CONFIG"}], True, "could not start the program"),
        ([RUNNING, None], True, "somebody took it out"),
        ([None], False, "somebody took it out"),
    ],
)
def test_a_death_is_seen_at_the_next_look(looks, fresh, message):
    verdict = follow([(0.1 * n, found) for n, found in enumerate(looks, 1)], fresh)
    assert verdict is not None
    assert message in verdict


def test_a_label_that_starts_nothing():
    looks = [(1, LOADED), (14, LOADED), (16, LOADED)]
    assert follow(looks[:2]) is None
    assert "loaded it and starts nothing (state = not running)" in follow(looks)
    assert "launchctl kickstart system/tether-x" in follow(looks)


def test_a_oneshot_is_waited_for():
    done = {"state": "not running", "runs": "1", "last exit code": "0"}
    assert follow([(0.1, RUNNING), (300, RUNNING)], type="oneshot") is None
    assert follow([(0.1, RUNNING), (9, done)], type="oneshot") == ""
    assert follow([(0.1, LOADED), (0.2, done)], type="oneshot") == ""
    assert "did not end within 600 s" in follow([(0, RUNNING), (601, RUNNING)], type="oneshot")
    failed = {**done, "last exit code": "2"}
    assert "status 2" in follow([(0.1, RUNNING), (9, failed)], type="oneshot")


def listener(**keys):
    return {"pid": 9, "name": "x", "unit": "", "address": "127.0.0.1", **keys}


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ([], "it cannot be told who answers in its place: port 1: found nobody"),
        ([listener(unit="tether-x")], ""),
        ([listener(lineage=[9, 8, 7])], ""),  # a worker of the process
        ([listener(lineage=[9, 8])], "another process answers in its place: process 9 (x)"),
        ([listener(unit="tether-y")], "process 9 (x) of unit tether-y"),
        ([listener(pid=0)], ""),  # nothing can be said of it
    ],
)
def test_who_answers(monkeypatch, found, wrong):
    monkeypatch.setattr(processes, "listeners", lambda port: found)
    one = launchd_watch.Watch(entry(health={"port": 1}), "system/tether-x", fresh=False)
    one.pid = 7
    assert wrong in one.stranger()
    assert bool(wrong) == bool(one.stranger())


def test_what_cannot_be_told_is_no_health_of_a_port(monkeypatch):
    def refuse(_where):
        raise Refusal("who listens", "no lsof", "one", "Mend it")

    monkeypatch.setattr(processes, "listeners", refuse)
    monkeypatch.setattr(processes, "unix_listeners", refuse)
    one = launchd_watch.Watch(entry(health={"port": 1}), "system/tether-x", fresh=False)
    said = "it cannot be told who answers in its place: who listens: found no lsof"
    assert one.stranger().startswith(said)
    assert one.taken() == ""
    # Its directory lets nobody else put a socket there.
    one = launchd_watch.Watch(entry(health={"unix": "/x"}), "system/tether-x", fresh=False)
    assert (one.stranger(), one.taken()) == ("", "")


@pytest.mark.parametrize(
    ("job", "keys", "wanted"),
    [
        (None, {}, "it is not loaded"),
        (RUNNING, {}, ""),
        (SCHEDULED, {}, "it ended with status 3"),
        (LOADED, {}, "it does not run (state = not running)"),
        ({**SCHEDULED, "last exit code": "0"}, {"type": "oneshot"}, ""),
        (SCHEDULED, {"type": "oneshot"}, "it ended with status 3"),
    ],
)
def test_a_glance(job, keys, wanted):
    seen = None if job is None else launchd_job.Job(job)
    assert launchd_watch.glance(entry(**keys), "system/tether-x", seen) == wanted
