# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A Mac's application firewall: the programs that other hosts may reach.

It is beside pf and asks for the program, not for the port: one that it does not let in is there on
loopback and for nobody else. Nothing of this was run on a Mac when it was written. What it relies
on, and from where:

* ``--add`` says that it did, also where it did nothing: without root (issues say), or where the Mac
  is managed. ``--getappblocked`` says "permitted" of programs that are not listed and blocked
  (measured on macOS 27). So the list is read back, and nothing else is believed.
* A program that was replaced, or is signed ad hoc and anew, is blocked without a word though its
  path is listed (issues say). So what was added is remembered, and another file at the same path is
  taken out and added again.
* It knows programs, not links (inferred), so each version has an entry of its own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Any, Dict, List, Optional

from ansible_collections.tether.fleet.plugins.module_utils import files
from ansible_collections.tether.fleet.plugins.module_utils.daemon import commands, host_lock
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal, Step

PROGRAM = "/usr/libexec/ApplicationFirewall/socketfilterfw"
RECORD = "/var/lib/tether/application-firewall.json"
LOCK = "/var/run/tether/application-firewall.lock"
# Whatever is listed below it is the fleet's.
OURS = "/opt/tether/"

ARGUMENT_SPEC: Dict[str, Any] = {
    "programs": {"type": "list", "elements": "path", "required": True},
}

OFF, ON, BLOCKS_ALL = 0, 1, 2
_STATE = re.compile(r"\(State = (\d)\)")
# "1 : /path" with the verdict in the next line; before macOS 15 with blanks and lines between.
_LISTED = re.compile(r"^\d+ :\s+(/.*?)\s*$")
_VERDICT = re.compile(r"^\s*\(\s*(Allow|Block) incoming connections\s*\)\s*$")
_MANAGED = "managed Mac"


def observe(desired: Dict[str, Any]) -> Dict[str, Any]:
    """Read the firewall's state and list, and what was added before; changes nothing.

    :param desired: ``{"programs": [absolute path, ...]}``, without links in them
    :return: ``{"state": 0 to 2, "listed": {path: allowed}, "files": {path: which file, or ""},
        "added": {path: which file}}``
    """
    state = global_state(_ask("--getglobalstate"))
    return {
        "state": state,
        "listed": {} if state == OFF else listed(_ask("--listapps").stdout),
        "files": {path: _which(path) for path in desired["programs"]},
        "added": _record(),
    }


def plan(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """An entry for each program, and none for former ones; nothing where the firewall is off.

    :raises Refusal: where it lets in nobody, whatever is listed
    """
    state, known = observed["state"], observed["listed"]
    facts = {"state": ("off", "on", "blocks all")[state]}
    if state == BLOCKS_ALL and desired["programs"]:
        raise Refusal(
            "application firewall",
            "that it blocks all incoming connections, whatever it lists",
            "the ingress to be reached by other hosts",
            "Switch that off in System Settings, Network, Firewall, Options, or with sudo %s"
            " --setblockall off; where a device management profile sets it, whoever manages this"
            " Mac has to" % PROGRAM,
        )
    steps: List[Step] = []
    if state == OFF:
        return Plan(steps, facts, {"programs": desired["programs"]})
    for path in sorted(known):
        if path.startswith(OURS) and path not in desired["programs"]:
            steps.append(Step("remove", "application firewall entry", path))
    for path in desired["programs"]:
        same = observed["files"][path] and observed["added"].get(path) == observed["files"][path]
        if known.get(path) and same:
            continue
        # "Already a part of the firewall" is all that a second --add does (inferred).
        action = "update" if path in known else "add"
        steps.append(Step(action, "application firewall entry", path))
    return Plan(steps, facts, {"programs": desired["programs"]})


def apply(plan: Plan) -> Dict[str, Any]:
    """Carry the plan out, and read the list back."""
    with host_lock.held(LOCK, "application firewall"):
        for step in plan.steps:
            if step.action != "add":
                _change("--remove", step.name)
            if step.action != "remove":
                _must_be_there(step.name)
                _change("--add", step.name)
                _change("--unblockapp", step.name)
        now = listed(_ask("--listapps").stdout)
        for step in plan.steps:
            if (step.action == "remove") == bool(now.get(step.name)):
                raise _unchanged(step.name, now.get(step.name))
        added = {path: _which(path) for path in plan.data["programs"] if now.get(path)}
        files.write_file(RECORD, json.dumps(added).encode("utf-8"), 0o600, 0, 0)
    return {}


def global_state(done: subprocess.CompletedProcess[str]) -> int:
    """The number in ``Firewall is enabled. (State = 1)``; newer versions say more lines.

    :raises Refusal: when there is none
    """
    found = _STATE.search(done.stdout)
    if not found or int(found.group(1)) > BLOCKS_ALL:
        raise _unread(done, "whether the application firewall is on")
    return int(found.group(1))


def listed(text: str) -> Dict[str, bool]:
    """The programs of ``--listapps``, with whether other hosts may reach them."""
    found: Dict[str, bool] = {}
    path: Optional[str] = None
    for line in text.splitlines():
        entry, verdict = _LISTED.match(line), _VERDICT.match(line)
        if entry:
            path = entry.group(1)
        elif verdict and path:
            found[path] = verdict.group(1) == "Allow"
            path = None
    return found


def _which(path: str) -> str:
    """What tells a file from another one at its path, without reading all of it; "" for none."""
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return "%d %d %d %d" % (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _record() -> Dict[str, Any]:
    if not files.is_roots(RECORD, 0o600):
        return {}
    try:
        with open(RECORD, encoding="utf-8") as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _must_be_there(path: str) -> None:
    if not os.path.isfile(path):
        raise Refusal(
            "application firewall",
            "no program %s" % path,
            "it to be installed before it is let in",
            "Run the role artifact first",
        )


def _change(verb: str, path: str) -> None:
    done = _ask(verb, path)
    if _MANAGED in done.stdout + done.stderr:
        raise Refusal(
            "application firewall",
            "that this Mac is managed: its firewall cannot be changed from here, and other hosts do"
            " not reach %s" % path,
            "an entry that lets it in",
            "Ask whoever manages this Mac to let that program in by the firewall's profile, or to"
            " leave the firewall to this Mac; or set firewall_manage: false and see to it yourself",
        )


def _unchanged(path: str, allowed: Optional[bool]) -> Refusal:
    words = {True: "it listed still", False: "it listed as blocked", None: "it not listed"}
    return Refusal(
        "application firewall",
        "%s (%s), though %s said nothing against the change" % (words[allowed], path, PROGRAM),
        "the list to be as it was set",
        "Look at it in System Settings, Network, Firewall, Options; a security program or a profile"
        " may set it",
    )


def _unread(done: subprocess.CompletedProcess[str], what: str) -> Refusal:
    return Refusal(
        "application firewall",
        "nothing that can be read from %s (status %d: %s)"
        % (" ".join(done.args), done.returncode, commands.said(done)),
        what,
        "Run it by hand with sudo, and mend what it says",
    )


def _ask(*words: str) -> subprocess.CompletedProcess[str]:
    return commands.run([PROGRAM, *words], timeout=30)
