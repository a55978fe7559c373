# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Carries a plan out on a Mac.

launchd reads a plist at ``bootstrap`` and never again, so a restart takes the label out and loads
it anew: ``bootout``, ``print`` until it answers 113, ``enable`` where an override is in the way,
``bootstrap``. Two runs at once would take each other's labels out between these, so one of them
waits, and looks again before it starts anything.

What an account can keep from being done in its own login session fails that daemon alone.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.daemon import (
    host_lock,
    launchctl,
    launchd_job,
    launchd_plan,
    launchd_reload,
    launchd_state,
    log_file,
    logins,
    obstacles,
    outcome,
    plist,
    plist_place,
    records,
    runtime_directories,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal, Step

LOCK = "/var/run/tether/daemons.lock"
# Beyond the time that launchd gives a process before SIGKILL.
_MARGIN = 15
# For a process without such a time.
_NO_TIMEOUT = 600
# The longest for a process in a login session of which root has no record.
_LOGIN_TIMEOUT = 60
# Issues say: a bootstrap fails with 5 or 37 for about 5 s after a bootout.
_BOOTSTRAP_PATIENCE = 15
_POLL = 0.2

Target = Tuple[plist_place.Place, str]


def apply(plan: Plan) -> Dict[str, Any]:
    """Write and begin everything; ``verify`` then waits for all of it together."""
    plan.data["begun"] = {}
    if not plan.steps:
        return {}
    facts = plan.facts["daemons"]
    processes = [step for step in plan.steps if step.kind == "process"]
    things = [step for step in plan.steps if step.kind != "process"]
    with host_lock.held(LOCK, "daemons"):
        _ask_before_moves(plan)
        for step in things:
            if "gone" not in step.data:
                _attempt(_carry_out, step, facts)
        _stop([step for step in processes if step.action == "stop"], facts)
        for step in things:
            if "gone" in step.data:
                _attempt(_remove, step, facts)
        _start([step for step in processes if step.action != "stop"], plan)
    return {}


def _ask_before_moves(plan: Plan) -> None:
    """What cannot start at its new place is left running at its old one."""
    facts, units = plan.facts["daemons"], plan.data["units"]
    moved = {step.data["label"] for step in plan.steps if step.data.get("gone") is False}
    for entry in plan.data["entries"]:
        name = entry["name"]
        if name in moved and entry["state"] != "stopped":
            problem = _obstacle(entry, units[name])
            if problem:
                outcome.fail(facts[name], problem, [])


def _attempt(do: Callable[[Step], None], step: Step, facts: outcome.Facts) -> None:
    """Carry a step out, unless its daemon has failed already."""
    place, label = _target(step)
    if facts[label]["failed"]:
        return
    try:
        do(step)
    except Refusal as refusal:
        if not place.account:
            raise
        outcome.fail(facts[label], str(refusal), [])


def _stop(steps: List[Step], facts: outcome.Facts) -> None:
    steps = [step for step in steps if not facts[step.data["label"]]["failed"]]
    patience = {_target(step): step.data["patience"] for step in steps}
    for (place, label), problem in _boot_out(patience):
        if problem and place.account:
            outcome.fail(facts[label], problem, [])
        elif problem:
            raise Refusal(
                "process %s" % place.shown(label),
                problem,
                "it to end when it is asked to",
                "Look what it waits for (sudo sample its process), then run again",
            )


def _target(step: Step) -> Target:
    return step.data["place"], step.data["label"]


def _carry_out(step: Step) -> None:
    place, label = _target(step)
    if step.kind == "record":
        logins.add(label, step.data["login"])
    elif step.kind == "plist" and step.action == "remove":
        place.remove(label)
    elif step.kind == "plist":
        place.write(label, step.data["text"])
    elif step.kind == "label":
        launchctl.must(step.action, place.target(label))
    else:
        entry = step.data["entry"]
        with contextlib.suppress(KeyError):  # no such account: its start says so
            account = pwd.getpwnam(entry.get("user") or "root")
            log_file.make(label, account.pw_uid, account.pw_gid)


def _remove(step: Step) -> None:
    """The log stays: it may be what somebody looks for."""
    place, label = _target(step)
    if step.action == "enable":
        launchctl.must("enable", place.target(label))
        return
    if step.data["gone"]:
        # First: a run that is killed here finds them again by the plist, or the record.
        records.remove(launchd_state.RECORD_DIR, label)
        runtime_directories.remove(step.data["directories"])
    if step.kind == "record":
        logins.remove(label, place)
    else:
        place.remove(label)


def _start(steps: List[Step], plan: Plan) -> None:
    entries = {entry["name"]: entry for entry in plan.data["entries"]}
    facts, begun = plan.facts["daemons"], plan.data["begun"]
    loads: Dict[Target, Dict[str, Any]] = {}
    for step in steps:
        name = step.data["daemon"]
        if facts[name]["failed"]:
            continue
        entry, old = entries[name], plan.data["units"][name]
        state = launchd_state.look(name, old.place, old.disabled, entry)
        digests, newest = plan.data["digests"][name], plan.data["newest"][name]
        if not launchd_plan.plan_process(entry, state, digests, newest):
            continue  # another run was first
        problem = _obstacle(entry, state)
        since, lines = log_file.position(name), []
        if not problem and step.action == "reload":
            problem = launchd_reload.run(entry, state.place.home)
            lines = log_file.last_lines(name, since) if problem else []
            begun[name] = state.record.get("log") or since
        if problem:
            begun.pop(name, None)
            outcome.fail(facts[name], problem, lines)
        elif step.action != "reload":
            loads[(state.place, name)] = entry
    patience = {target: plan.data["units"][target[1]].patience for target in loads}
    for target, problem in _boot_out(patience):
        place, name = target
        since = log_file.position(name)
        problem = problem or _load(place, loads[target], plan.data["digests"][name][0])
        if problem:
            outcome.fail(facts[name], problem, log_file.last_lines(name, since))
        else:
            begun[name] = since


def _obstacle(entry: Dict[str, Any], state: launchd_state.State) -> str:
    """Why a process cannot be started as meant, or ""; a running one is then left alone."""
    problem = obstacles.obstacle(entry, plist.RUNTIME_ROOT) or state.trouble
    if problem:
        return problem
    if not state.session:
        return (
            "nobody of the account %s is logged in at the screen, so there is no session for it"
            " (launchctl answers 125 or 112 then, over ssh always); log in, or use session=system"
            % state.place.account
        )
    if entry.get("user"):
        account = pwd.getpwnam(entry["user"])
        missing = obstacles.not_in(account, entry["supplementary_groups"])
        if missing:
            return (
                "the account %s is not in the group %s, and launchd gives a process no other groups"
                " than its account's; run the role baseline first" % (entry["user"], missing)
            )
    top = os.path.dirname(plist.RUNTIME_ROOT.rstrip("/"))
    return runtime_directories.make(entry["runtime_directories"], top)


def _boot_out(patience: Dict[Target, Optional[int]]) -> Iterator[Tuple[Target, str]]:
    """Take labels out; yields each as soon as it is gone, or with why it is not.

    :param patience: of each, what root's record says of the time that it may take
    """
    ends: Dict[Target, float] = {}
    for target, recorded in patience.items():
        place, label = target
        job = _loaded(target)
        if job is None:
            yield target, ""
            continue
        done = launchctl.call("bootout", place.target(label))
        fine = (0, launchctl.ABSENT, launchctl.NOT_FOUND, *launchctl.PASSING)
        if done.returncode not in fine:
            yield target, launchctl.in_words(done)
            continue
        ends[target] = time.monotonic() + _longest(place, job, recorded) + _MARGIN
    while ends:
        for target, end in list(ends.items()):
            job = _loaded(target)
            if job is None:
                del ends[target]
                yield target, ""
            elif time.monotonic() > end:
                del ends[target]
                yield target, "it was booted out and has not ended (state = %s)" % job.state
        if ends:
            time.sleep(_POLL)


def _longest(place: plist_place.Place, job: launchd_job.Job, recorded: Optional[int]) -> int:
    """How many seconds a process may take to end."""
    found = job.exit_timeout or _NO_TIMEOUT
    if not place.account:
        return found
    # What launchd has of a login session, its account may have loaded.
    return min(found, _LOGIN_TIMEOUT if recorded is None else recorded or _NO_TIMEOUT)


def _loaded(target: Target) -> Optional[launchd_job.Job]:
    """A label that is loaded; one of which launchctl says nothing for once counts as such."""
    place, label = target
    try:
        return launchctl.look(place.target(label))
    except launchctl.NoSessionError:
        return None
    except Refusal:
        return launchd_job.Job()


def _load(place: plist_place.Place, entry: Dict[str, Any], digest: str) -> str:
    """Load a label that is gone; returns why that did not work, or ""."""
    label = entry["name"]
    wish = launchd_plan.wanted(entry, place, digest)
    end = time.monotonic() + _BOOTSTRAP_PATIENCE
    while True:
        with contextlib.suppress(Refusal):  # the bootstrap says it better
            if launchctl.disabled(place.domain).get(label):
                launchctl.must("enable", place.target(label))
        done = launchctl.call("bootstrap", place.domain, place.path(label))
        if done.returncode == 0:
            return ""
        job = _loaded((place, label))
        # Loaded already, and from this very plist: all is as it should be.
        if job is not None and not launchd_plan.differs(job, place.path(label), wish):
            return ""
        if done.returncode not in (*launchctl.PASSING, launchctl.DISABLED):
            return launchctl.in_words(done)
        if time.monotonic() > end:
            return launchctl.in_words(done)
        time.sleep(0.5)
