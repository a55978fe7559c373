# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The fleet's own anchor in a Mac's packet filter, and nobody else's.

The anchor is below ``com.apple/``, which macOS's own ruleset refers to: so no file of macOS is
touched, and updates, which bring their own /etc/pf.conf, take nothing away. What counts is what the
kernel has, read anew at every look: whether pf is enabled and by our token, whether the main
ruleset leads to our anchor, and the anchor's rules, compared with what pfctl makes of ours.

Neither rules nor tokens outlive a boot. So one script loads both: a daemon of root's runs it at
boot, and so does a run that finds something amiss.

Nothing of this was run on a Mac when it was written: docs/macs.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import Any, Dict, List, Optional

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.tether.fleet.plugins.module_utils import (
    files,
    firewall_listeners,
    firewall_options,
    foreign_pf,
    pf,
    pf_rules,
)
from ansible_collections.tether.fleet.plugins.module_utils.daemon import (
    base,
    commands,
    host_lock,
    launchd,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal, Step
from ansible_collections.tether.fleet.plugins.module_utils.ssh_session import find_session

RULES = "/etc/tether/firewall.pf"
SCRIPT = "/etc/tether/firewall-load.sh"
# Not in /var/run, of which others than root may write some parts.
TOKEN = "/var/lib/tether/pf-token"  # noqa: S105 - of pf's counter, no secret
LABEL = "tether-firewall"
LOCK = "/var/run/tether/firewall.lock"
_SHELL = "/bin/sh"

# Who may connect is nobody else's business, and what root starts is root's to write.
_MODES = {"rules": 0o600, "script": 0o700}

# pfctl says as much when all is well. Rules first: pf is at no moment enabled without them.
_SCRIPT = """\
# Written by the Ansible collection tether.fleet: changes made here are lost.
# Loads the rules of the fleet's anchor, and sees that pf is enabled by a token of the fleet's.
umask 077
pfctl=%(pfctl)s
kept=%(token)s
tries=10
# Busy while another program loads rules, as macOS itself does at boot: nobody would try again.
until said=$("$pfctl" %(options)s -f %(rules)s 2>&1); do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || { echo "$said" >&2; exit 1; }
    sleep 1
done
token=$(cat "$kept" 2>/dev/null)
case "$token" in
    '' | *[!0-9]*) ;;
    # A token is of one boot, and pfctl -d, whoever runs it, ends all of them.
    *) "$pfctl" -s References 2>/dev/null | grep -qwF "$token" && exit 0 ;;
esac
said=$("$pfctl" -E 2>&1) || { echo "$said" >&2; exit 1; }
token=$(echo "$said" | sed -n 's/^Token : \\([0-9][0-9]*\\)$/\\1/p')
[ -n "$token" ] || { echo "no token in what pfctl -E says: $said" >&2; exit 1; }
echo "$token" > "$kept.new" && mv -f "$kept.new" "$kept"
"""


def observe(desired: Dict[str, Any]) -> Dict[str, Any]:
    """Read the live rules, the files, the boot daemon and the SSH session; changes nothing.

    :param desired: the module's options, see ``firewall_options``
    """
    firewall_options.check(desired)
    uids = firewall_options.uids(desired)
    session, wanted = None, {}
    if desired["state"] == "present":
        session = find_session(desired.get("ssh_connection"))
        wanted = {RULES: pf_rules.render(desired, session, uids), SCRIPT: script()}
    texts = {path: files.text(path) for path in (RULES, SCRIPT)}
    listeners = []
    if _closes_first(desired, texts[RULES]):
        listeners = firewall_listeners.observe(firewall_listeners.kept(desired, session))
    boot = _boot(wanted)
    return {
        "session": session,
        "uids": uids,
        "wanted": wanted,
        "meaning": pf.meaning(wanted[RULES]) if wanted else [],
        "pf": pf.look(),
        "listeners": listeners,
        "texts": texts,
        "open": [path for path in texts if not files.is_roots(path, _mode(path))],
        "token": files.text(TOKEN),
        "boot": (boot, launchd.observe(boot)),
    }


def plan(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """Files, the boot daemon, then what the kernel lacks.

    :raises Refusal: when our rules would not count, when another firewall would stop the fleet's
        traffic anyway, or when ours would cut off the SSH session, or (the first time) something
        that listens
    """
    if desired["state"] == "absent":
        return _plan_absent(observed)
    session, state = observed["session"], observed["pf"]
    foreign_pf.refuse(desired, state)
    firewall_options.refuse_to_shut_out(desired, session)
    if _closes_first(desired, observed["texts"][RULES]):
        firewall_listeners.refuse(desired, session, observed["listeners"])
    steps: List[Step] = []
    for path, new in observed["wanted"].items():
        old = observed["texts"][path]
        if old != new or path in observed["open"]:
            action = "create" if old is None else "update"
            steps.append(Step(action, "file", path, before=old, after=new))
    boot = launchd.plan(*observed["boot"])
    steps += boot.steps
    meaning = observed["meaning"]
    if meaning is None or state.rules != meaning:
        before, after = _lines(state.rules), _lines(meaning or [])
        # The text's own diff says it where nothing but the text differs.
        steps.append(Step("load", "anchor", pf.ANCHOR, before=before, after=after))
    if not _is_held(state, observed["token"]):
        steps.append(Step("enable", "filter", "pf"))
    data = {
        "wanted": observed["wanted"],
        "meaning": meaning,
        "uids": observed["uids"],
        "boot": boot,
        "absent": False,
    }
    return Plan(steps, {"session": session}, data)


def apply(plan: Plan) -> Dict[str, Any]:
    """Carry the plan out; the new rules are tried before anything is written."""
    with host_lock.held(LOCK, "firewall"):
        if plan.data["absent"]:
            _apply_absent(plan)
        else:
            _apply_present(plan)
    return {}


def _apply_present(plan: Plan) -> None:
    firewall_options.refuse_unknown(plan.data["uids"])
    text = plan.data["wanted"][RULES]
    pf.check(text)
    for step in plan.steps:
        if step.kind == "file":
            _folder(os.path.dirname(step.name))
            data = plan.data["wanted"][step.name].encode("utf-8")
            files.write_file(step.name, data, _mode(step.name), 0, 0)
    _folder(os.path.dirname(TOKEN))
    boot = plan.data["boot"]
    if boot.steps:
        launchd.apply(boot)
        launchd.verify(boot)
    meaning = pf.meaning(text)
    if not _is_as_meant(meaning):
        _load()
    if not _is_as_meant(meaning):
        raise Refusal(
            "firewall",
            "other rules in the anchor %s than were loaded, or pf without our token" % pf.ANCHOR,
            "the kernel to have what was loaded a moment ago",
            "Compare sudo pfctl -a %s -s rules with sudo pfctl %s -vnf %s, and look for what"
            " changes them" % (pf.ANCHOR, " ".join(pf.OPTIONS), RULES),
        )


def _is_as_meant(meaning: Optional[List[str]]) -> bool:
    state = pf.look()
    return state.rules == meaning and _is_held(state, files.text(TOKEN))


def _load() -> None:
    done = commands.run([_SHELL, SCRIPT], timeout=60)
    if done.returncode != 0:
        raise Refusal(
            "script %s" % SCRIPT,
            "status %d: %s" % (done.returncode, " ".join(done.stderr.split())[:500]),
            "status 0",
            "Run it by hand with sudo, and mend what it says",
        )


def _plan_absent(observed: Dict[str, Any]) -> Plan:
    """The daemon first: it would bring the rules back."""
    boot = launchd.plan(*observed["boot"])
    steps = list(boot.steps)
    state, token = observed["pf"], (observed["token"] or "").strip()
    if state.rules:
        steps.append(Step("remove", "anchor", pf.ANCHOR, before=_lines(state.rules)))
    if token in state.tokens:
        steps.append(Step("release", "filter", "pf", data={"token": token}))
    for path, text in ((TOKEN, observed["token"]), *observed["texts"].items()):
        if text is not None:
            steps.append(Step("remove", "file", path, before=None if path == TOKEN else text))
    return Plan(steps, {}, {"boot": boot, "absent": True})


def _apply_absent(plan: Plan) -> None:
    launchd.apply(plan.data["boot"])
    for step in plan.steps:
        if step.kind == "anchor":
            pf.flush()
        elif step.kind == "filter":
            pf.release(step.data["token"])
        elif step.kind == "file":
            with contextlib.suppress(FileNotFoundError):
                os.unlink(step.name)


def script() -> str:
    """What is run at boot, and by a run that finds something amiss."""
    words = {"pfctl": pf.PFCTL, "options": " ".join(pf.OPTIONS), "token": TOKEN, "rules": RULES}
    return _SCRIPT % words


def _boot(wanted: Dict[str, str]) -> Dict[str, Any]:
    """The daemon that loads the rules at boot, and anew when they change."""
    entry: Dict[str, Any] = {"name": LABEL, "state": "absent"}
    if wanted:
        entry = {
            "name": LABEL,
            "type": "oneshot",
            "argv": [_SHELL, SCRIPT],
            "restart": {"policy": "no"},
            "restart_files": [
                {"path": path, "sha256": hashlib.sha256(text.encode("utf-8")).hexdigest()}
                for path, text in wanted.items()
            ],
            "stop_timeout": 5,
        }
    checked = ArgumentSpecValidator(base.ARGUMENT_SPEC).validate({"daemons": [entry]})
    return dict(checked.validated_parameters)


def _closes_first(desired: Dict[str, Any], text: Optional[str]) -> bool:
    """Whether this run closes a host that no rules of ours have closed yet."""
    if not firewall_options.looks_at_listeners(desired):
        return False
    return pf_rules.CLOSED not in (text or "").splitlines()


def _is_held(state: pf.State, token: Optional[str]) -> bool:
    return state.enabled and (token or "").strip() in state.tokens


def _mode(path: str) -> int:
    return _MODES["script" if path == SCRIPT else "rules"]


def _lines(rules: List[str]) -> str:
    return "".join("%s\n" % rule for rule in rules)


def _folder(path: str) -> None:
    if not os.path.isdir(path):
        os.makedirs(path, 0o755)
