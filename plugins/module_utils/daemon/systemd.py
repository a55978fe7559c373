# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Supervised processes under systemd: hardened units, restarted only when it matters.

What runs carries the digest of what it was started from in its environment (``TETHER_DIGEST``), so
a run that was killed between writing a unit and restarting it is finished by the next one: what
counts is the process, not the file. What was loaded later by a reload is recorded beside the
process' invocation in /run.
"""

from __future__ import annotations

import glob
import os
import shutil
import time
from typing import Any, Dict, List, Optional

from ansible_collections.tether.fleet.plugins.module_utils import files
from ansible_collections.tether.fleet.plugins.module_utils.daemon import (
    base,
    commands,
    obstacles,
    outcome,
    records,
    systemctl,
    systemd_watch,
    unit_file,
    watch,
    watched,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal, Step

UNIT_DIR = "/etc/systemd/system"
RECORD_DIR = "/run/tether/loaded"


def observe(desired: Dict[str, Any]) -> Dict[str, Any]:
    """Read the units, the processes and the watched files; changes nothing.

    :param desired: ``{"daemons": [entry, ...], "prune": [name prefix, ...]}``
    :return: ``{"units": {daemon: {property: text, ...}}, "digests": {daemon: (start, reload)},
        "newest": {daemon: seconds | None}, "prune": [names]}``
    """
    entries = desired["daemons"]
    base.check_entries(entries, more=unit_file.problems)
    listed = {entry["name"] for entry in entries}
    prune = [name for name in _ours(desired.get("prune") or []) if name not in listed]
    names = [entry["name"] for entry in entries] + prune
    shown = systemctl.show([unit_file.unit_name(name) for name in names])
    units: Dict[str, Dict[str, Any]] = {}
    for name in names:
        unit = unit_file.unit_name(name)
        path = os.path.join(UNIT_DIR, unit)
        item: Dict[str, Any] = dict(shown.get(unit, {}))
        item["text"] = files.text(path)
        item["mode_ok"] = files.is_roots(path, 0o644)
        item["masked"] = os.path.islink(path) and os.readlink(path) == "/dev/null"
        item["digest"] = _running_digest(item)
        item["record"] = records.read(RECORD_DIR, unit)
        item["started"] = _started(item)
        units[name] = item
    digests, newest = {}, {}
    for entry in entries:
        if entry["state"] != "absent":
            wanted = unit_file.wanted_digest(entry), watched.reload_digest(entry)
            digests[entry["name"]] = wanted
            newest[entry["name"]] = watched.newest(entry["reload_files"])
    return {"units": units, "digests": digests, "newest": newest, "prune": prune}


def _ours(prefixes: List[str]) -> List[str]:
    names = []
    for prefix in prefixes:
        for path in sorted(glob.glob(os.path.join(UNIT_DIR, glob.escape(prefix) + "*.service"))):
            if (files.text(path) or "").startswith(unit_file.MARK):
                names.append(os.path.basename(path)[: -len(".service")])
    return names


def _running_digest(item: Dict[str, str]) -> Optional[str]:
    """The digest in the environment that the running process was started with."""
    pid = item.get("MainPID", "0")
    if pid == "0":
        return None
    try:
        with open("/proc/%s/environ" % pid, "rb") as stream:
            for word in stream.read().split(b"\0"):
                if word.startswith(b"TETHER_DIGEST="):
                    return word.split(b"=", 1)[1].decode("ascii", "replace")
    except OSError:
        pass
    return None


def _started(item: Dict[str, str]) -> Optional[float]:
    """When the main process started, as seconds since the epoch."""
    text = item.get("ExecMainStartTimestampMonotonic", "0")
    if not text.isdigit() or text == "0":
        return None
    return time.time() - (time.clock_gettime(time.CLOCK_MONOTONIC) - int(text) / 1e6)


def plan(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """Units first, then processes; removals last.

    :raises Refusal: when a unit of that name is somebody else's
    """
    facts: Dict[str, Dict[str, Any]] = {}
    units: List[Step] = []
    processes: List[Step] = []
    removals: List[Step] = []
    for name, item in observed["units"].items():
        _refuse_foreign(name, item)
    for entry in desired["daemons"]:
        name = entry["name"]
        item = observed["units"][name]
        if entry["state"] == "absent":
            facts[name] = _facts(name, _plan_removal(name, item), removals)
            continue
        start, loaded = observed["digests"][name]
        unit_steps = _plan_unit(entry, item, unit_file.unit_text(entry, start))
        process = _plan_process(entry, item, start, loaded, observed["newest"][name])
        units += unit_steps
        facts[name] = _facts(name, process, processes)
        facts[name]["changed"] = bool(unit_steps or process)
        if item.get("DropInPaths"):
            facts[name]["drop_ins"] = item["DropInPaths"].split()
    for name in observed["prune"]:
        facts[name] = _facts(name, _plan_removal(name, observed["units"][name]), removals)
    return Plan(
        units + processes + removals,
        {"daemons": facts},
        {
            "entries": desired["daemons"],
            "digests": observed["digests"],
            "units": observed["units"],
        },
    )


def _facts(name: str, steps: List[Step], into: List[Step]) -> Dict[str, Any]:
    into += steps
    fact = base.facts_of(unit_file.unit_name(name), steps[-1].action if steps else None)
    fact["changed"] = bool(steps)
    return fact


def _refuse_foreign(name: str, item: Dict[str, Any]) -> None:
    unit = unit_file.unit_name(name)
    own = os.path.join(UNIT_DIR, unit)
    found = remedy = ""
    fragment = item.get("FragmentPath", "")
    if item["masked"] or item.get("LoadState") == "masked":
        found, remedy = "it is masked", "Run: systemctl unmask %s" % unit
    elif item["text"] is not None and not item["text"].startswith(unit_file.MARK):
        found, remedy = "%s, written by somebody else" % own, "Move that file away"
    elif fragment and fragment != own:
        found, remedy = "the unit file %s" % fragment, "Remove what brought that file"
    if found:
        raise Refusal("unit %s" % unit, found, "none, or one that tether.fleet wrote", remedy)


def _plan_unit(entry: Dict[str, Any], item: Dict[str, Any], text: str) -> List[Step]:
    unit = unit_file.unit_name(entry["name"])
    steps = []
    data = {"text": text}
    if item["text"] is None:
        steps.append(Step("create", "unit", unit, after=text, data=data))
    elif item["text"] != text or not item["mode_ok"]:
        steps.append(Step("update", "unit", unit, before=item["text"], after=text, data=data))
    elif item.get("NeedDaemonReload") == "yes":
        steps.append(Step("reload", "unit", unit))
    enabled = item.get("UnitFileState") == "enabled"
    if enabled != (entry["state"] == "started"):
        steps.append(Step("disable" if enabled else "enable", "unit", unit))
    return steps


def _plan_process(
    entry: Dict[str, Any],
    item: Dict[str, Any],
    start: str,
    loaded: Optional[str],
    newest: Optional[float],
) -> List[Step]:
    unit = unit_file.unit_name(entry["name"])
    data = {"daemon": entry["name"]}
    if entry["state"] == "stopped":
        return [Step("stop", "process", unit, data=data)] if _alive(item) else []
    if not _running(item, entry["type"]):
        return [Step("start", "process", unit, data=data)]
    record = item["record"]
    if record.get("invocation_id") != item.get("InvocationID"):
        record = {}
    if (item["digest"] or record.get("digest")) != start:
        return [Step("restart", "process", unit, data=data)]
    if watched.must_reload(record, loaded, newest, item["started"]):
        return [Step("reload", "process", unit, data=data)]
    return []


def _plan_removal(name: str, item: Dict[str, Any]) -> List[Step]:
    unit = unit_file.unit_name(name)
    steps = []
    data = {"daemon": name, "text": item["text"] or ""}
    if _alive(item):
        steps.append(Step("stop", "process", unit, data=data))
    if item["text"] is not None or item.get("LoadState") not in (None, "not-found"):
        steps.append(Step("remove", "unit", unit, before=item["text"], data=data))
    return steps


def _alive(item: Dict[str, Any]) -> bool:
    return item.get("ActiveState", "inactive") not in ("inactive", "failed")


def _running(item: Dict[str, Any], kind: str) -> bool:
    if kind == "oneshot":
        return item.get("ActiveState") == "active"
    return item.get("MainPID", "0") != "0" and item.get("ActiveState") in (
        "active",
        "reloading",
        "activating",
    )


def apply(plan: Plan) -> Dict[str, Any]:
    """Write and begin everything; ``verify`` then waits for all of it together."""
    entries = {entry["name"]: entry for entry in plan.data["entries"]}
    facts = plan.facts["daemons"]
    steps = {
        kind: [step for step in plan.steps if step.kind == kind] for kind in ("unit", "process")
    }
    for step in steps["unit"]:
        if step.action in ("create", "update"):
            path = os.path.join(UNIT_DIR, step.name)
            files.write_file(path, step.data["text"].encode("utf-8"), 0o644, 0, 0)
    if any(step.action in ("create", "update", "reload") for step in steps["unit"]):
        systemctl.must(["daemon-reload"])
    for verb in ("enable", "disable"):
        units = [step.name for step in steps["unit"] if step.action == verb]
        if units:
            systemctl.must([verb, "--quiet", *units])
    stopped = [step.name for step in steps["process"] if step.action == "stop"]
    if stopped:
        systemctl.must(["stop", *stopped])
    _apply_removals([step for step in steps["unit"] if step.action == "remove"])
    begun: Dict[str, str] = {}
    wanted = [step for step in steps["process"] if step.action in ("start", "restart", "reload")]
    before = systemctl.show([step.name for step in wanted])
    for step in wanted:
        name = step.data["daemon"]
        running = before.get(step.name, {}).get("InvocationID", "")
        lines: List[str] = []
        problem = obstacles.obstacle(entries[name], base.RUNTIME_ROOT)
        problem = problem or obstacles.missing_path(entries[name])
        if not problem and step.action == "reload":
            problem = _reload(step.name)
            lines = systemctl.last_lines(step.name, running) if problem else []
        if problem:
            outcome.fail(facts[name], problem, lines)
            continue
        begun[name] = running
    starting = [
        step.name for step in wanted if step.action != "reload" and step.data["daemon"] in begun
    ]
    if starting:
        # restart for all of them: a unit that waits for its automatic restart ignores start.
        systemctl.call(["reset-failed", *starting])
        systemctl.must(["restart", "--no-block", *starting])
    plan.data["begun"] = begun
    return {}


def _apply_removals(removals: List[Step]) -> None:
    if not removals:
        return
    units = [step.name for step in removals]
    systemctl.call(["disable", "--quiet", *units])
    for step in removals:
        path = os.path.join(UNIT_DIR, step.name)
        if os.path.lexists(path):
            os.unlink(path)
        records.remove(RECORD_DIR, step.name)
        for path in unit_file.emptied_directories(step.data["text"]):
            shutil.rmtree(path, ignore_errors=True)
    systemctl.must(["daemon-reload"])
    systemctl.call(["reset-failed", *units])


def _reload(unit: str) -> str:
    done = systemctl.call(["reload", unit], timeout=120)
    if done.returncode == 0:
        return ""
    said = commands.said(done)
    return "it did not take its new configuration (%s); it still runs with the old one" % said


def verify(plan: Plan) -> Dict[str, Any]:
    """Wait until every daemon that should run is healthy; never longer than a death takes to see.

    :raises Refusal: with the facts of all daemons, when one died or never became healthy
    """
    facts = plan.facts["daemons"]
    begun = plan.data.get("begun", {})
    watches = [
        systemd_watch.Watch(entry, begun.get(entry["name"]), facts[entry["name"]]["action"])
        for entry in plan.data["entries"]
        if entry["state"] == "started" and not facts[entry["name"]]["failed"]
    ]
    watch.follow(watches, _look)
    for one in watches:
        name = one.entry["name"]
        if one.verdict:
            lines = systemctl.last_lines(one.unit, one.invocation, one.since)
            # systemd tells drop-ins of units that it has loaded, so of a new one only now.
            others = systemctl.show([one.unit]).get(one.unit, {}).get("DropInPaths")
            if others:
                facts[name]["drop_ins"] = others.split()
            outcome.fail(facts[name], one.verdict, lines)
            continue
        facts[name]["healthy"] = True
        if name in begun:
            start, loaded = plan.data["digests"][name]
            records.write(RECORD_DIR, one.unit, _record(one.invocation, start, loaded))
    outcome.must_be_well(
        facts, lambda failed: "journalctl -u %s" % next(iter(failed.values()))["unit"]
    )
    return {"daemons": facts}


def _look(watches: List[systemd_watch.Watch]) -> None:
    shown = systemctl.show([one.unit for one in watches])
    for one in watches:
        one.look(shown.get(one.unit, {}), time.monotonic())


def settled(plan: Plan) -> str:
    """One look at what should be running, without waiting: "" when all of it is well.

    :param plan: one without steps: what it says runs is asked whether it answers
    """
    entries = [entry for entry in plan.data["entries"] if entry["state"] == "started"]
    for entry in entries:
        reason = systemd_watch.glance(entry, plan.data["units"][entry["name"]])
        if reason:
            return "%s: %s" % (entry["name"], reason)
    return ""


def _record(invocation: str, start: str, loaded: Optional[str]) -> Dict[str, Any]:
    record: Dict[str, Any] = {"invocation_id": invocation, "digest": start}
    if loaded is not None:
        record["loaded"] = loaded
    return record
