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
import ipaddress
import json
import os
import pwd
from typing import Any, Dict, List, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils import (
    files,
    firewall_listeners,
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

ARGUMENT_SPEC: Dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "policy": {"type": "str", "choices": ["closed", "guard"], "default": "closed"},
    "ingress_port": {"type": "int", "default": 9443},
    "ingress_sources": {"type": "list", "elements": "str", "default": []},
    "open_ports": {
        "type": "list",
        "elements": "dict",
        "options": {
            "port": {"type": "int", "required": True},
            "proto": {"type": "str", "choices": ["tcp", "udp"], "default": "tcp"},
            "sources": {"type": "list", "elements": "str", "default": []},
        },
        "default": [{"port": 22, "proto": "tcp", "sources": []}],
    },
    "loopback_ports": {
        "type": "list",
        "elements": "dict",
        "options": {
            "port": {"type": "int", "required": True},
            "accounts": {"type": "list", "elements": "str", "required": True},
            "server": {"type": "str"},
        },
        "default": [],
    },
    "service_ports": {
        "type": "list",
        "elements": "dict",
        "options": {
            "port": {"type": "int", "required": True},
            "sources": {"type": "list", "elements": "str", "default": []},
        },
        "default": [],
    },
    "ssh_connection": {"type": "str"},
    "foreign": {"type": "str", "choices": ["refuse", "ignore"], "default": "refuse"},
    "listeners": {"type": "str", "choices": ["refuse", "cut"], "default": "refuse"},
}

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

    :param desired: the module's options, see ``ARGUMENT_SPEC``
    """
    check_options(desired)
    program = nft.program()
    names = sorted(
        {
            name
            for item in desired["loopback_ports"]
            for name in [*item["accounts"], item.get("server")]
            if name
        }
    )
    session = find_session(desired.get("ssh_connection"))
    listing = nft.own_listing(program) if program else None
    record = _json(RECORD)
    listeners = []
    if _closes_first(desired, listing, record):
        listeners = firewall_listeners.observe(firewall_listeners.kept(desired, session))
    return {
        "session": session,
        "nft": program,
        "uids": {name: _uid(name) for name in names},
        "listing": listing,
        "listeners": listeners,
        "blockers": foreign_firewall.observe(program, desired["ingress_port"]),
        "file": _text(FILE),
        "unit_file": _text(UNIT_FILE),
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
    _refuse_ssh_port(desired, observed["session"])
    if desired["policy"] == "closed":
        _refuse_to_cut(desired, observed["session"])
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
    unknown = sorted(name for name, uid in observed["uids"].items() if uid is None)
    return Plan(
        steps, {"session": observed["session"]}, {"text": text, "unknown": unknown, "absent": False}
    )


def apply(plan: Plan) -> Dict[str, Any]:
    """Carry the plan out; the new table is tried before anything is written."""
    if plan.data.get("absent"):
        return _apply_absent(plan)
    program = nft.program()
    if program is None:
        raise Refusal(
            "firewall", "no program nft", "nftables to be installed", "Install package nftables"
        )
    if plan.data["unknown"]:
        raise Refusal(
            "firewall",
            "no account %s on this host" % ", ".join(plan.data["unknown"]),
            "every account that may connect to a loopback port",
            "Run the role baseline first; those of local_accounts are yours to make or leave out",
        )
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
    if desired["state"] == "absent" or desired["policy"] != "closed":
        return False
    if desired["listeners"] == "cut":
        return False
    return not any('"policy": "drop"' in (text or "") for text in (listing, record.get("rules")))


def _refuse_ssh_port(desired: Dict[str, Any], session: Optional[Dict[str, Any]]) -> None:
    """Refuse when the SSH session's port is declared as a service's."""
    ports = [item["port"] for item in desired["service_ports"]]
    if session is not None and session["port"] in ports:
        raise Refusal(
            "firewall",
            "a service with host_port %d, which is this SSH session's port" % session["port"],
            "the way back in to stay as it is",
            "Correct host_port in fleet_services. Nothing was changed",
        )


def _refuse_to_cut(desired: Dict[str, Any], session: Optional[Dict[str, Any]]) -> None:
    """Refuse when the SSH session's port is listed for other networks alone."""
    if session is None:
        return
    listed = _listed(desired, session["port"])
    sources = [source for item in listed for source in item["sources"]]
    if not listed or not all(item["sources"] for item in listed):
        return
    peer = ipaddress.ip_address(session["peer"])
    if not any(peer in ipaddress.ip_network(source) for source in sources):
        raise Refusal(
            "firewall",
            "this SSH session's port %d open for %s alone, while the session comes from %s"
            % (session["port"], ", ".join(sources), peer),
            "the way back in to stay open",
            "Add a network that holds %s to the sources of port %d in firewall_open_ports (option"
            " open_ports of the module). Nothing was changed" % (peer, session["port"]),
        )


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
    ingress = _accept("tcp", desired["ingress_port"], desired["ingress_sources"])
    # Several services may share a port: nobody is dropped before all who may have been let in.
    services = [rule for one in _by_port(desired["service_ports"]) for rule in _accept("tcp", *one)]
    if desired["policy"] == "guard":
        guarded = sorted({item["port"] for item in desired["service_ports"]})
        drops = ["tcp dport %d drop" % port for port in [desired["ingress_port"], *guarded]]
        return [*rules, *ingress, *services, *drops]
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
    if session is not None and not _listed(desired, session["port"]):
        # The way back in, for every administrator: where this run comes from must not matter, or a
        # run from elsewhere would be a change.
        rules += _accept("tcp", session["port"], [])
    for item in desired["open_ports"]:
        rules += _accept(item["proto"], item["port"], item["sources"])
    return rules + ingress + services


def _by_port(services: List[Dict[str, Any]]) -> List[Tuple[int, List[str]]]:
    """Each port with the networks of its services; one that is open to everybody has none."""
    found: Dict[int, List[List[str]]] = {}
    for item in services:
        found.setdefault(item["port"], []).append(item["sources"])
    return [
        (port, [one for sources in given for one in sources] if all(given) else [])
        for port, given in sorted(found.items())
    ]


def _listed(desired: Dict[str, Any], port: int) -> List[Dict[str, Any]]:
    """The open ports' entries for a TCP port."""
    return [
        item for item in desired["open_ports"] if item["proto"] == "tcp" and item["port"] == port
    ]


def _accept(proto: str, port: int, sources: List[str]) -> List[str]:
    """Rules that let new connections to a port in; from anywhere when there are no sources."""
    if not sources:
        return ["%s dport %d accept" % (proto, port)]
    rules = []
    networks = [ipaddress.ip_network(source) for source in sources]
    for version, word in ((4, "ip"), (6, "ip6")):
        # nft refuses overlapping networks in one set.
        merged = ipaddress.collapse_addresses(n for n in networks if n.version == version)  # type: ignore[type-var]
        texts = [str(network) for network in merged]
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


# Options ----------------------------------------------------------------------------------------


def check_options(desired: Dict[str, Any]) -> None:
    """Refuse what no rule could mean; all of it at once.

    :raises Refusal: naming each option
    """
    if desired["state"] == "absent":
        return
    wrong: List[str] = []
    if not desired["ingress_sources"]:
        wrong.append(
            "ingress_sources is empty, so no relay could connect; list the networks that"
            " the cluster's nodes or pods come from"
        )
    sources: List[Tuple[str, str]] = [("ingress_sources", s) for s in desired["ingress_sources"]]
    ports = [("ingress_port", desired["ingress_port"])]
    for item in desired["open_ports"]:
        ports.append(("open_ports", item["port"]))
        sources += [("open_ports", source) for source in item["sources"]]
    ports += [("loopback_ports", item["port"]) for item in desired["loopback_ports"]]
    opened = {item["port"] for item in desired["open_ports"] if item["proto"] == "tcp"}
    for item in desired["service_ports"]:
        ports.append(("service_ports", item["port"]))
        sources += [("service_ports", source) for source in item["sources"]]
        if item["port"] in opened:
            wrong.append(
                "service_ports: %d is in open_ports (firewall_open_ports) too; list it once"
                % item["port"]
            )
    wrong += ["%s: %d is no port" % pair for pair in ports if not 0 < pair[1] < 65536]
    for key, source in sources:
        try:
            ipaddress.ip_network(source)
        except ValueError as error:
            wrong.append("%s: %s" % (key, error))
    seen = set()
    for item in desired["loopback_ports"]:
        if item["port"] in seen:
            wrong.append("loopback_ports: %d is listed twice" % item["port"])
        seen.add(item["port"])
    if wrong:
        raise Refusal(
            "firewall options",
            "; ".join(wrong),
            "ports from 1 to 65535 and networks such as 10.0.0.0/8",
            "Mend what is named; nothing was changed",
        )


def _uid(name: str) -> Optional[int]:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _text(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _json(path: str) -> Dict[str, Any]:
    try:
        value = json.loads(_text(path) or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _folder(path: str) -> None:
    if not os.path.isdir(path):
        os.makedirs(path, 0o755)
