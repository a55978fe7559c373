# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The fleet's own nftables table on a Linux host, and nobody else's.

The table is loaded as one transaction that begins by dropping its former self, so there is no
moment without it and a load can be repeated. What is compared later is the kernel's listing with
the one recorded right after our load: a rule that somebody deleted, or a flushed ruleset, is found
although the file is as it was.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Dict, List, Optional

from ansible_collections.tether.fleet.plugins.module_utils import (
    files,
    firewall_listeners,
    firewall_options,
    foreign_firewall,
    nft,
)
from ansible_collections.tether.fleet.plugins.module_utils.daemon import systemctl
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal, Step
from ansible_collections.tether.fleet.plugins.module_utils.ssh_session import find_session

FILE = "/etc/tether/firewall.nft"
RECORD = "/var/lib/tether/firewall.json"
UNIT = "tether-firewall.service"
UNIT_FILE = "/etc/systemd/system/" + UNIT
# Who may connect is nobody else's business, and what root starts is root's to write.
MODES = {FILE: 0o600, UNIT_FILE: 0o644}

# Loads early, before the network is up. nftables.service of distributions flushes every table when
# it is started, stopped or reloaded: ours then comes back right after it.
_UNIT_TEXT = """\
# Written by the Ansible collection tether.fleet: changes made here are lost.
[Unit]
Description=Firewall table of tether.fleet
DefaultDependencies=no
Wants=network-pre.target
Before=network-pre.target shutdown.target
Conflicts=shutdown.target
After=nftables.service
PartOf=nftables.service
ReloadPropagatedFrom=nftables.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=%(nft)s -f %(file)s
ExecReload=%(nft)s -f %(file)s
ProtectSystem=strict
ProtectHome=yes
NoNewPrivileges=yes
CapabilityBoundingSet=CAP_NET_ADMIN

[Install]
WantedBy=sysinit.target
"""


def observe(desired: Dict[str, Any]) -> Dict[str, Any]:
    """Read the live rules, the files, the unit and the SSH session; changes nothing.

    :param desired: the module's options, see ``firewall_options``
    """
    firewall_options.check(desired)
    program = nft.program()
    session = find_session(desired.get("ssh_connection"))
    listing = nft.own_listing(program) if program else None
    record = _json(RECORD)
    listeners = []
    if _closes_first(desired, listing, record):
        listeners = firewall_listeners.observe(firewall_listeners.kept(desired, session))
    return {
        "session": session,
        "nft": program,
        "uids": firewall_options.uids(desired),
        "listing": listing,
        "listeners": listeners,
        "blockers": foreign_firewall.observe(program, desired["ingress_port"]),
        "file": files.text(FILE),
        "unit_file": files.text(UNIT_FILE),
        "open": [path for path, mode in MODES.items() if not files.is_roots(path, mode)],
        "record": record,
        "unit": systemctl.show([UNIT]).get(UNIT, {}),
    }


def plan(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """Files, unit, then the table in the kernel.

    :raises Refusal: when another firewall would stop the fleet's traffic anyway, or when ours would
        cut off the SSH session, or (the first time) something that listens
    """
    if desired["state"] == "absent":
        return _plan_absent(observed)
    if desired["foreign"] == "refuse":
        foreign_firewall.refuse(desired, observed["blockers"])
    firewall_options.refuse_to_shut_out(desired, observed["session"])
    if _closes_first(desired, observed["listing"], observed["record"]):
        firewall_listeners.refuse(desired, observed["session"], observed["listeners"])
    text = render(desired, observed["session"], observed["uids"])
    # The usual place where nft is not there yet: an earlier task will have brought it.
    unit_text = _UNIT_TEXT % {"nft": observed["nft"] or "/usr/sbin/nft", "file": FILE}
    steps: List[Step] = []
    for path, old, new in (
        (FILE, observed["file"], text),
        (UNIT_FILE, observed["unit_file"], unit_text),
    ):
        if old != new or path in observed["open"]:
            action = "create" if old is None else "update"
            data = {"text": new}
            steps.append(Step(action, "file", path, before=old, after=new, data=data))
    unit = observed["unit"]
    if unit.get("UnitFileState") != "enabled":
        steps.append(Step("enable", "unit", UNIT))
    live = observed["listing"]
    record = observed["record"]
    same = record.get("text") == _digest(text) and live is not None
    if not same or record.get("listing") != _digest(live or ""):
        # What somebody else changed in our table, line by line, is the diff worth seeing.
        before, after = (live, record.get("rules")) if same else (None, None)
        steps.append(Step("load", "table", "inet tether", before=before, after=after))
    elif unit.get("ActiveState") != "active":
        steps.append(Step("start", "unit", UNIT))
    known: Dict[str, Any] = {"text": text, "uids": observed["uids"], "absent": False}
    return Plan(steps, {"session": observed["session"]}, known)


def apply(plan: Plan) -> Dict[str, Any]:
    """Carry the plan out; the new table is tried before anything is written."""
    if plan.data.get("absent"):
        return _apply_absent(plan)
    program = nft.program()
    if program is None:
        raise Refusal(
            "firewall", "no program nft", "nftables to be installed", "Install package nftables"
        )
    firewall_options.refuse_unknown(plan.data["uids"])
    nft.check(program, plan.data["text"])
    for step in plan.steps:
        if step.kind == "file":
            _folder(os.path.dirname(step.name))
            files.write_file(step.name, step.data["text"].encode("utf-8"), MODES[step.name], 0, 0)
    if any(step.name == UNIT_FILE for step in plan.steps):
        systemctl.must(["daemon-reload"])
    if any(step.action == "enable" for step in plan.steps):
        systemctl.must(["enable", "--quiet", UNIT])
    load = any(step.action == "load" for step in plan.steps)
    if load or any(step.action == "start" for step in plan.steps):
        systemctl.call(["reset-failed", UNIT])
        systemctl.must(["restart", UNIT])
        record(plan.data["text"], program)
    return {}


def record(text: str, program: str) -> None:
    """Remember how the kernel lists the table that was just loaded from ``text``."""
    live = nft.own_listing(program)
    if live is None:
        raise Refusal(
            "firewall",
            "no table inet tether in the kernel after it was loaded",
            "it to be there",
            "Look for what flushes the ruleset (journalctl -u %s -u nftables)" % UNIT,
        )
    _folder(os.path.dirname(RECORD))
    known = {"text": _digest(text), "listing": _digest(live), "rules": live}
    files.write_file(RECORD, json.dumps(known).encode("utf-8"), 0o600, 0, 0)


def _closes_first(desired: Dict[str, Any], listing: Optional[str], record: Dict[str, Any]) -> bool:
    """Whether this run closes a host that no table of ours has closed yet.

    A table that somebody deleted, or that guarded the ingress alone, is told by what was recorded.
    """
    if not firewall_options.looks_at_listeners(desired):
        return False
    return not any('"policy": "drop"' in (text or "") for text in (listing, record.get("rules")))


def _plan_absent(observed: Dict[str, Any]) -> Plan:
    steps = []
    unit = observed["unit"]
    if unit.get("ActiveState") == "active" or unit.get("UnitFileState") == "enabled":
        steps.append(Step("disable", "unit", UNIT))
    if observed["listing"] is not None:
        before = observed["listing"]
        steps.append(Step("remove", "table", "inet tether", before=before))
    for path, text in ((UNIT_FILE, observed["unit_file"]), (FILE, observed["file"])):
        if text is not None:
            steps.append(Step("remove", "file", path, before=text))
    if observed["record"]:
        steps.append(Step("remove", "file", RECORD))
    return Plan(steps, {}, {"absent": True})


def _apply_absent(plan: Plan) -> Dict[str, Any]:
    for step in plan.steps:
        if step.action == "disable":
            systemctl.must(["disable", "--quiet", "--now", UNIT])
        elif step.kind == "table":
            program = nft.program()
            if program is not None:
                nft.delete_own(program)
        else:
            os.unlink(step.name)
    systemctl.must(["daemon-reload"])
    systemctl.call(["reset-failed", UNIT])
    return {}


# The text ---------------------------------------------------------------------------------------


def render(
    desired: Dict[str, Any], session: Optional[Dict[str, Any]], uids: Dict[str, Optional[int]]
) -> str:
    """The table as text for ``nft -f``: a pure function.

    :param session: ``{"peer", "port"}`` of the SSH session that the run uses, or None
    :param uids: ids of the accounts named in ``loopback_ports``; None where there is none yet
    """
    lines = ["# Written by the Ansible collection tether.fleet: changes made here are lost."]
    if uids:
        lines.append("# accounts: " + " ".join("%s=%s" % item for item in sorted(uids.items())))
    # Both lines and what follows are one transaction: the table is never missing in between.
    lines += ["table inet tether {}", "delete table inet tether", "table inet tether {"]
    lines += ["\tchain input {", "\t\t" + _input_head(desired["policy"])]
    lines += ["\t\t" + rule for rule in _input_rules(desired, session)]
    lines.append("\t}")
    owners = _owner_rules(desired["loopback_ports"], uids)
    if owners:
        lines += ["\tchain output {"]
        lines += ["\t\ttype filter hook output priority filter; policy accept;"]
        lines += ["\t\t" + rule for rule in owners] + ["\t}"]
    return "\n".join([*lines, "}", ""])


def _input_head(policy: str) -> str:
    return "type filter hook input priority filter; policy %s;" % (
        "drop" if policy == "closed" else "accept"
    )


def _input_rules(desired: Dict[str, Any], session: Optional[Dict[str, Any]]) -> List[str]:
    rules = ['iifname "lo" accept']
    admitted = [
        rule for one in firewall_options.admitted(desired, session) for rule in _accept(*one)
    ]
    if desired["policy"] == "guard":
        drops = ["tcp dport %d drop" % port for port in firewall_options.guarded(desired)]
        return [*rules, *admitted, *drops]
    rules += [
        "ct state established,related accept",
        "icmp type { destination-unreachable, time-exceeded, parameter-problem, echo-request }"
        " accept",
        "icmpv6 type { destination-unreachable, packet-too-big, time-exceeded, parameter-problem,"
        " echo-request, mld-listener-query, nd-router-advert, nd-neighbor-solicit,"
        " nd-neighbor-advert } accept",
        "udp sport 67 udp dport 68 accept",
        "ip6 saddr fe80::/10 udp sport 547 udp dport 546 accept",
    ]
    return rules + admitted


def _accept(proto: str, port: int, sources: List[str]) -> List[str]:
    """Rules that let new connections to a port in; from anywhere when there are no sources."""
    if not sources:
        return ["%s dport %d accept" % (proto, port)]
    rules = []
    for version, word in ((4, "ip"), (6, "ip6")):
        texts = firewall_options.networks(sources, version)
        if texts:
            rules.append(
                "%s saddr { %s } %s dport %d accept" % (word, ", ".join(texts), proto, port)
            )
    return rules


def _owner_rules(ports: List[Dict[str, Any]], uids: Dict[str, Optional[int]]) -> List[str]:
    """Who may talk to an engine on loopback, and who may answer from its port.

    Root always may: the health probe runs as root, and root could change these rules anyway. The
    second rule is against a local program that takes the port while the engine restarts: its
    SYN-ACK never leaves, so no prompt reaches it.
    """
    rules = []
    for item in sorted(ports, key=lambda one: int(one["port"])):
        clients = _ids(["root", *item["accounts"]], dict(uids, root=0))
        rules.append(
            'oifname "lo" tcp dport %d meta skuid != { %s } reject with tcp reset'
            % (item["port"], clients)
        )
        if item.get("server"):
            server = _ids([item["server"]], uids)
            rules.append(
                'oifname "lo" tcp sport %d meta skuid != { %s } drop' % (item["port"], server)
            )
    return rules


def _ids(names: List[str], uids: Dict[str, Optional[int]]) -> str:
    known = sorted({uid for uid in (uids[name] for name in names) if uid is not None})
    unknown = sorted({'"%s"' % name for name in names if uids[name] is None})
    return ", ".join([str(uid) for uid in known] + unknown)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _json(path: str) -> Dict[str, Any]:
    try:
        value = json.loads(files.text(path) or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _folder(path: str) -> None:
    if not os.path.isdir(path):
        os.makedirs(path, 0o755)
