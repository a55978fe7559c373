# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a daemon on a Mac needs, as steps: pure functions of what is wanted and what there is.

What counts is what launchd has loaded, which it shows with its environment, so with the digest of
what it was loaded from: a plist changed by a run that was killed before the bootstrap, or while
nothing was loaded, or a label that was loaded from another file, all differ from what is wanted.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Sequence

from ansible_collections.tether.fleet.plugins.module_utils.daemon import (
    base,
    launchd_job,
    launchd_state,
    log_file,
    logins,
    outcome,
    plist,
    plist_place,
    watched,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal, Step

# Words that print shows as they are: seen of published output. Of others it is not known.
_PLAIN = re.compile(r"[A-Za-z0-9/._:=,@%+-]+")


def plan(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """Plists, logs and overrides first, then processes; removals last.

    :param observed: as ``launchd.observe`` gives it
    :raises Refusal: when a plist or label of that name is somebody else's; in a login session that
        fails its daemon alone
    """
    facts: Dict[str, Dict[str, Any]] = {}
    things: List[Step] = []
    processes: List[Step] = []
    removals: List[Step] = []
    foreign = {}
    for state in [*observed["units"].values(), *observed["gone"]]:
        problem = _foreign(state)
        if problem and not state.place.account:
            raise problem
        foreign[(state.name, state.place)] = problem
    for entry in desired["daemons"]:
        name = entry["name"]
        if entry["state"] == "absent":
            facts[name] = base.facts_of(name, None)
            continue
        state = observed["units"][name]
        problem = foreign[(name, state.place)]
        if problem:
            # What an account does in its own session is to keep no other daemon from anything.
            facts[name] = base.facts_of(name, None)
            outcome.fail(facts[name], str(problem), [])
            continue
        wish = wanted(entry, state.place, observed["digests"][name][0])
        mine = _plan_things(entry, state, plist.text(wish))
        process = plan_process(entry, state, observed["digests"][name], observed["newest"][name])
        things += mine
        processes += process
        facts[name] = base.facts_of(name, process[-1].action if process else None)
        facts[name]["changed"] = bool(mine or process)
    for state in observed["gone"]:
        if facts.get(state.name, {}).get("failed"):
            continue  # it cannot go on elsewhere
        steps = _plan_removal(state, moved=state.name in observed["units"])
        removals += steps
        fact = facts.setdefault(state.name, base.facts_of(state.name, None))
        if steps:
            actions = [step.action for step in steps]
            done = "remove" if "remove" in actions else actions[-1]
            fact.update(changed=True, action=fact["action"] or done)
    return Plan(
        things + processes + removals,
        {"daemons": facts},
        {
            "entries": desired["daemons"],
            "digests": observed["digests"],
            "newest": observed["newest"],
            "units": observed["units"],
        },
    )


def wanted(entry: Dict[str, Any], place: plist_place.Place, digest: str) -> plist.Plist:
    """The plist of a daemon as it is to be on disk and in launchd."""
    return plist.with_digest(plist.wanted(entry, place.home), digest)


def differs(
    job: launchd_job.Job, path: str, wish: plist.Plist, recorded: Optional[str] = None
) -> bool:
    """Whether a label was loaded from something else than what is wanted.

    :param path: of its plist
    :param recorded: the digest that is recorded of this very process, should launchd hide it
    """
    variables = wish["EnvironmentVariables"]
    found = job.environment or {**variables, plist.DIGEST: recorded or ""}
    if job.path != path or found.get(plist.DIGEST) != variables[plist.DIGEST]:
        return True
    # The digest says it all, unless somebody loaded a plist that was edited by hand.
    if any(_PLAIN.fullmatch(v) and found.get(k) != v for k, v in variables.items()):
        return True
    return not _shows(job.arguments, wish["ProgramArguments"])


def _shows(lines: Sequence[str], words: Sequence[str]) -> bool:
    if len(lines) != len(words):
        return not all(_PLAIN.fullmatch(word) for word in words)
    pairs = zip(lines, words)
    return all(line == word for line, word in pairs if _PLAIN.fullmatch(word))


def plan_process(
    entry: Dict[str, Any],
    state: launchd_state.State,
    digests: Sequence[Optional[str]],
    newest: Optional[float],
) -> List[Step]:
    """What its process needs: one step or none."""
    start, loaded = digests
    job, name = state.job, entry["name"]
    shown = state.place.shown(name)
    data = {"daemon": name}
    if entry["state"] == "stopped":
        # Loaded is as good as running: launchd may start it at any moment.
        stop = {"place": state.place, "label": name, "patience": state.patience}
        return [Step("stop", "process", shown, data=stop)] if job else []
    if job is None or not _runs(job, entry["type"]):
        return [Step("start", "process", shown, data=data)]
    record = state.record if state.record.get("process") == state.process else {}
    wish = wanted(entry, state.place, start or "")
    other = differs(job, state.place.path(name), wish, record.get("digest"))
    if other or state.wrong_directories:
        return [Step("restart", "process", shown, data=data)]
    if watched.must_reload(record, loaded, newest, state.started):
        return [Step("reload", "process", shown, data=data)]
    return []


def _runs(job: launchd_job.Job, kind: str) -> bool:
    if kind == "oneshot" and not job.pid:
        return job.exit_status == 0
    # What has been asked to end is none that runs.
    return job.pid != 0 and not job.state.startswith("SIG")


def _plan_things(entry: Dict[str, Any], state: launchd_state.State, text: str) -> List[Step]:
    name, place = entry["name"], state.place
    data = {"place": place, "label": name, "text": text, "entry": entry}
    steps: List[Step] = []
    path = place.path(name)
    stopped = entry["state"] == "stopped"
    if stopped and not state.session:
        # Nothing can be disabled without a session. Without a plist no login starts it.
        if state.text is None:
            return []
        return [Step("remove", "plist", path, before=state.text, data=data)]
    if state.login_needs:
        login = logins.of(entry, place)
        steps.append(
            Step(state.login_needs, "record", logins.path(name), data=dict(data, login=login))
        )
    if state.text is None:
        steps.append(Step("create", "plist", path, after=text, data=data))
    elif state.text != text or not state.trusted:
        steps.append(Step("update", "plist", path, before=state.text, after=text, data=data))
    if not stopped and state.log_needs:
        steps.append(Step(state.log_needs, "log", log_file.path(name), data=data))
    if state.session and state.disabled != stopped:
        verb = "disable" if stopped else "enable"
        step = Step(verb, "label", place.shown(name), data=data)
        # Before there is a plist that a boot would load.
        steps.insert(0 if stopped else len(steps), step)
    return steps


def _plan_removal(state: launchd_state.State, moved: bool) -> List[Step]:
    """The steps that take a daemon away from a place.

    :param moved: it goes on at another one, whose are the record and the runtime directories
    """
    place, name = state.place, state.name
    data = {
        "place": place,
        "label": name,
        "gone": not moved,
        "directories": state.directories,
        "patience": state.patience,
    }
    steps: List[Step] = []
    # In an account's own session there may be something of that name that is its own.
    if (state.job or state.trouble) and not _foreign_job(state):
        steps.append(Step("stop", "process", place.shown(name), data=data))
    if state.text is not None and state.ours:
        steps.append(Step("remove", "plist", place.path(name), before=state.text, data=data))
    if state.disabled and state.session:
        # An override would keep the next daemon of that name from starting, whoever's it is.
        steps.append(Step("enable", "label", place.shown(name), data=data))
    if state.recorded:
        # Last: what was not removed yet is found by it.
        steps.append(Step("remove", "record", logins.path(name), data=data))
    return steps


def _foreign(state: launchd_state.State) -> Optional[Refusal]:
    path = state.place.path(state.name)
    if not state.ours:
        return Refusal(
            "plist %s" % path,
            "a file that somebody else wrote",
            "none, or one that tether.fleet wrote",
            "Move that file away",
        )
    if state.job and _foreign_job(state):
        return Refusal(
            "label %s" % state.place.target(state.name),
            "that somebody else loaded it from %s" % (state.job.path or "an unknown file"),
            "a label that is not loaded, or that tether.fleet loaded",
            "Take it out (sudo launchctl bootout %s) and remove what brought it"
            % state.place.target(state.name),
        )
    return None


def _foreign_job(state: launchd_state.State) -> bool:
    job = state.job
    if job is None or plist.DIGEST in job.environment:
        return False
    return not state.ours or job.path != state.place.path(state.name)
