# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Supervised processes under launchd: the same entries and the same facts as under systemd.

What is loaded carries the digest of what it was loaded from in its environment
(``TETHER_DIGEST``), and launchd shows it: what counts is the label, not the file. What was loaded
later by a reload is recorded beside the process in /var/run. docs/macs.md says what of an entry
macOS cannot enforce, and what of all this was never run on a Mac.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.daemon import (
    base,
    launchctl,
    launchd_apply,
    launchd_plan,
    launchd_state,
    launchd_watch,
    log_file,
    logins,
    outcome,
    plist,
    plist_place,
    records,
    watch,
    watched,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal

Place = plist_place.Place

# Seconds. What ends later is no loop.
_YOUNG = 10


def observe(desired: Dict[str, Any]) -> Dict[str, Any]:
    """Read the plists, the labels, the processes and the watched files; changes nothing.

    :param desired: ``{"daemons": [entry, ...], "prune": [name prefix, ...]}``
    :return: ``{"units": {daemon: State}, "gone": [State], "digests": {daemon: (start, reload)},
        "newest": {daemon: seconds | None}}``; ``gone`` is what is to be removed
    """
    entries = desired["daemons"]
    base.check_entries(entries, plist.RUNTIME_ROOT, lambda one: plist.problems(one, entries))
    wanted = {entry["name"]: _place(entry) for entry in entries if entry["state"] != "absent"}
    gone = _gone(desired, wanted)
    domains = {place.domain for place in wanted.values()} | {place.domain for _name, place in gone}
    disabled = {domain: launchctl.disabled(domain) for domain in sorted(domains)}

    def look(name: str, place: Place, entry: Any = None) -> launchd_state.State:
        return launchd_state.look(name, place, disabled[place.domain].get(name, False), entry)

    units, digests, newest = {}, {}, {}
    for entry in entries:
        name = entry["name"]
        if name in wanted:
            made = plist.wanted(entry, wanted[name].home)
            digests[name] = plist.wanted_digest(entry, made), watched.reload_digest(entry)
            newest[name] = watched.newest(entry["reload_files"])
            units[name] = look(name, wanted[name], entry)
    return {
        "units": units,
        "gone": [look(name, place) for name, place in gone],
        "digests": digests,
        "newest": newest,
    }


def _place(entry: Dict[str, Any]) -> Place:
    if entry["session"] == "login":
        return plist_place.of_login(entry["user"])
    return plist_place.SYSTEM


def _gone(desired: Dict[str, Any], wanted: Dict[str, Place]) -> List[Tuple[str, Place]]:
    """Daemons, with their places, that are not wanted there: absent, pruned, or moved."""
    found: List[Tuple[str, Place]] = []
    for entry in desired["daemons"]:
        name = entry["name"]
        # Of what is absent also an override and a label without a plist go.
        if name not in wanted or (wanted[name].account and _is_ours(name)):
            found.append((name, plist_place.SYSTEM))
        found += [(name, place) for place in _logins(name) if place != wanted.get(name)]
    listed = {entry["name"] for entry in desired["daemons"]}
    for prefix in desired.get("prune") or []:
        ours = [name for name in plist_place.labels(plist_place.SYSTEM, prefix) if _is_ours(name)]
        here = [(name, plist_place.SYSTEM) for name in ours]
        here += [(name, place) for name in logins.labels(prefix) for place in _logins(name)]
        found += [one for one in here if one[0] not in listed and one not in found]
    return found


def _logins(name: str) -> List[Place]:
    return [one.place for one in logins.read(name)]


def _is_ours(name: str) -> bool:
    data = plist_place.SYSTEM.read(name)
    return data is not None and plist.is_ours(data)


plan = launchd_plan.plan
apply = launchd_apply.apply


def verify(plan: Plan) -> Dict[str, Any]:
    """Wait until every daemon that should run is healthy; never longer than a death takes to see.

    :raises Refusal: with the facts of all daemons, when one died or never became healthy
    """
    facts, units = plan.facts["daemons"], plan.data["units"]
    begun = plan.data.get("begun", {})
    watches = []
    for entry in plan.data["entries"]:
        name = entry["name"]
        if entry["state"] == "started" and not facts[name]["failed"]:
            fresh = name in begun and facts[name]["action"] in ("start", "restart")
            target, young = units[name].place.target(name), _is_young(units[name])
            watches.append(launchd_watch.Watch(entry, target, fresh, young))
    watch.follow(watches, _look)
    for one in watches:
        since = begun.get(one.unit) or units[one.unit].record.get("log") or (0, 0)
        if one.verdict:
            lines = log_file.last_lines(one.unit, (since[0], since[1]))
            outcome.fail(facts[one.unit], one.verdict, lines)
            continue
        facts[one.unit]["healthy"] = True
        if one.unit in begun:
            record = _record(one.pid, plan.data["digests"][one.unit], since)
            records.write(launchd_state.RECORD_DIR, one.unit, record)
    outcome.must_be_well(
        facts, lambda failed: "the end of %s on the host" % log_file.path(min(failed))
    )
    return {"daemons": facts}


def _is_young(state: launchd_state.State) -> bool:
    """Whether launchd has just started it again, so that it may be one of a loop of crashes."""
    ended = state.job is not None and bool(state.job.ended)
    return ended and state.started is not None and time.time() - state.started < _YOUNG


def _look(watches: List[launchd_watch.Watch]) -> None:
    for one in watches:
        try:
            job = launchctl.look(one.target)
        except launchctl.NoSessionError:
            job = None
        except Refusal as refusal:
            if one.target.startswith("system/"):
                raise
            one.verdict = str(refusal)
            continue
        one.look(job, time.monotonic())


def _record(pid: int, digests: Tuple[str, Any], since: Any) -> Dict[str, Any]:
    record: Dict[str, Any] = {"digest": digests[0], "log": list(since)}
    if pid:
        record["process"] = launchd_state.process(pid)[0]
    if digests[1] is not None:
        record["loaded"] = digests[1]
    return record


def settled(plan: Plan) -> str:
    """One look at what should be running, without waiting: "" when all of it is well.

    :param plan: one without steps: what it says runs is asked whether it answers
    """
    facts = plan.facts["daemons"]
    for entry in plan.data["entries"]:
        if facts[entry["name"]]["failed"]:
            return "%s: %s" % (entry["name"], facts[entry["name"]]["reason"])
        if entry["state"] == "started":
            state = plan.data["units"][entry["name"]]
            reason = launchd_watch.glance(entry, state.place.target(state.name), state.job)
            if reason:
                return "%s: %s" % (entry["name"], reason)
    return ""
