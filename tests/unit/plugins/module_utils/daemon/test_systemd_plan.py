# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.tether.fleet.plugins.module_utils.daemon import (
    base,
    systemd,
    unit_file,
    watched,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

SPEC = {"daemons": {"type": "list", "elements": "dict", "options": base.ENTRY_SPEC}}
UNIT = "tether-x.service"


def entry(**keys):
    wanted = {"name": "tether-x", "argv": ["/bin/true"], **keys}
    checked = ArgumentSpecValidator(SPEC).validate({"daemons": [wanted]})
    return checked.validated_parameters["daemons"][0]


def item(one, **keys):
    """The unit and process of a converged daemon, with what differs."""
    digest = unit_file.wanted_digest(one)
    seen = {
        "LoadState": "loaded",
        "ActiveState": "active",
        "SubState": "running",
        "MainPID": "42",
        "InvocationID": "a" * 32,
        "UnitFileState": "enabled",
        "FragmentPath": "/etc/systemd/system/" + UNIT,
        "DropInPaths": "",
        "NeedDaemonReload": "no",
        "text": unit_file.unit_text(one, digest),
        "mode_ok": True,
        "masked": False,
        "digest": digest,
        "record": {
            "invocation_id": "a" * 32,
            "digest": digest,
            "loaded": watched.reload_digest(one),
        },
        "started": 1000.0,
    }
    seen.update(keys)
    return seen


ABSENT = {
    "LoadState": "not-found",
    "ActiveState": "inactive",
    "SubState": "dead",
    "MainPID": "0",
    "InvocationID": "",
    "UnitFileState": "",
    "FragmentPath": "",
    "DropInPaths": "",
    "text": None,
    "mode_ok": False,
    "digest": None,
    "record": {},
    "started": None,
}
RELOADS = {
    "reload_files": [{"path": "/etc/x", "sha256": "1" * 64}],
    "reload_argv": ["/bin/true"],
}


def steps(one, newest=None, prune=(), **keys):
    observed = {
        "units": {one["name"]: item(one, **keys)},
        "digests": {one["name"]: (unit_file.wanted_digest(one), watched.reload_digest(one))},
        "newest": {one["name"]: newest},
        "prune": [],
    }
    plan = systemd.plan({"daemons": [one]}, observed)
    return [(step.action, step.kind) for step in plan.steps]


CASES = [
    ("converged", {}, {}, []),
    ("fresh", {}, ABSENT, [("create", "unit"), ("enable", "unit"), ("start", "process")]),
    ("stopped on a fresh host", {"state": "stopped"}, ABSENT, [("create", "unit")]),
    (
        "to be stopped",
        {"state": "stopped"},
        {},
        [("disable", "unit"), ("stop", "process")],
    ),
    ("killed before the restart", {}, {"digest": "old"}, [("restart", "process")]),
    ("killed before daemon-reload", {}, {"NeedDaemonReload": "yes"}, [("reload", "unit")]),
    ("another's edit", {}, {"text": unit_file.MARK + "x"}, [("update", "unit")]),
    ("wrong mode", {}, {"mode_ok": False}, [("update", "unit")]),
    ("died", {}, {"ActiveState": "failed", "MainPID": "0"}, [("start", "process")]),
    (
        "waits for its next try",
        {},
        {"ActiveState": "activating", "SubState": "auto-restart", "MainPID": "0"},
        [("start", "process")],
    ),
    ("somebody disabled it", {}, {"UnitFileState": "disabled"}, [("enable", "unit")]),
    # setproctitle may overwrite the environment of a process: the record then speaks.
    ("no digest but a record", {}, {"digest": None}, []),
    (
        "no digest and another's record",
        {},
        {"digest": None, "record": {"invocation_id": "b" * 32, "digest": "x"}},
        [("restart", "process")],
    ),
    ("nothing to reload", RELOADS, {}, []),
    (
        "another content was loaded",
        RELOADS,
        {"record": {"invocation_id": "a" * 32, "loaded": "old"}},
        [("reload", "process")],
    ),
    ("absent and gone", {"state": "absent"}, ABSENT, []),
    ("absent", {"state": "absent"}, {}, [("stop", "process"), ("remove", "unit")]),
    (
        "absent after a kill between removal and daemon-reload",
        {"state": "absent"},
        {**ABSENT, "LoadState": "loaded"},
        [("remove", "unit")],
    ),
]


@pytest.mark.parametrize(
    ("keys", "seen", "wanted"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_plan(keys, seen, wanted):
    assert steps(entry(**keys), **seen) == wanted


@pytest.mark.parametrize(
    ("newest", "wanted"),
    [
        (900.0, []),  # systemd restarted it after the last change
        (999.5, [("reload", "process")]),  # too close to tell
        (2000.0, [("reload", "process")]),
        (float("inf"), [("reload", "process")]),
    ],
)
def test_without_a_record_of_this_invocation_times_decide(newest, wanted):
    other = {"invocation_id": "b" * 32, "loaded": "old"}
    assert steps(entry(**RELOADS), newest, record=other) == wanted


def test_a_oneshot_is_known_by_its_record():
    one = entry(type="oneshot")
    seen = {"SubState": "exited", "MainPID": "0", "digest": None}
    assert steps(one, **seen) == []
    assert steps(one, **seen, record={}) == [("restart", "process")]


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ({"masked": True}, "systemctl unmask"),
        ({"text": "[Service]\n"}, "written by somebody else"),
        ({"text": None, "FragmentPath": "/usr/lib/systemd/system/" + UNIT}, "/usr/lib"),
    ],
)
def test_units_of_others_are_refused(seen, message):
    with pytest.raises(Refusal, match=message):
        steps(entry(), **seen)


def test_what_is_no_longer_listed_goes():
    one = entry()
    gone = dict(item(one), text=unit_file.MARK)
    observed = {
        "units": {"tether-x": item(one), "tether-y": dict(gone, FragmentPath="")},
        "digests": {"tether-x": (unit_file.wanted_digest(one), None)},
        "newest": {"tether-x": None},
        "prune": ["tether-y"],
    }
    plan = systemd.plan({"daemons": [one]}, observed)
    assert [step.summary() for step in plan.steps] == [
        {"action": "stop", "kind": "process", "name": "tether-y.service"},
        {"action": "remove", "kind": "unit", "name": "tether-y.service"},
    ]
    assert plan.facts["daemons"]["tether-y"]["action"] == "remove"
    assert plan.facts["daemons"]["tether-x"]["changed"] is False


def test_one_unit_file_for_many_units_is_read_by_name():
    daemons = [entry(name="tether-a"), entry(name="tether-b")]
    observed = {
        "units": {name: dict(item(daemons[0]), **ABSENT) for name in ("tether-a", "tether-b")},
        "digests": {d["name"]: (unit_file.wanted_digest(d), None) for d in daemons},
        "newest": {"tether-a": None, "tether-b": None},
        "prune": [],
    }
    plan = systemd.plan({"daemons": daemons}, observed)
    assert [step.action for step in plan.steps] == ["create", "enable"] * 2 + ["start"] * 2
