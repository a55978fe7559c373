# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.tether.fleet.plugins.module_utils import (
    files,
    firewall_options,
    nft_firewall,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

SESSION = {"peer": "10.9.9.9", "port": 22}


def options(**keys):
    checked = ArgumentSpecValidator(firewall_options.ARGUMENT_SPEC).validate(
        {"ingress_sources": ["10.0.0.0/8"], **keys}
    )
    assert not checked.error_messages
    return checked.validated_parameters


def rules(session=SESSION, uids=None, **keys):
    text = nft_firewall.render(options(**keys), session, uids or {})
    return [line.strip() for line in text.splitlines()]


def test_loading_is_one_transaction_that_replaces_only_our_table():
    lines = rules()
    assert lines[1:4] == [
        "table inet tether {}",
        "delete table inet tether",
        "table inet tether {",
    ]
    assert not any("flush" in line for line in lines)


def test_closed_lets_in_what_is_listed_and_nothing_else():
    lines = rules(open_ports=[{"port": 22}, {"port": 53, "proto": "udp", "sources": ["fd00::/8"]}])
    assert "type filter hook input priority filter; policy drop;" in lines
    assert "tcp dport 22 accept" in lines
    assert "ip6 saddr { fd00::/8 } udp dport 53 accept" in lines
    assert "ip saddr { 10.0.0.0/8 } tcp dport 9443 accept" in lines


def test_guard_touches_only_the_ingress_port():
    lines = rules(policy="guard")
    assert lines[6:9] == [
        'iifname "lo" accept',
        "ip saddr { 10.0.0.0/8 } tcp dport 9443 accept",
        "tcp dport 9443 drop",
    ]
    assert "policy accept;" in lines[5]


@pytest.mark.parametrize(
    ("session", "ports", "extra"),
    [
        (SESSION, [{"port": 22}], False),
        (SESSION, [{"port": 22, "sources": ["10.9.0.0/16"]}], False),
        (SESSION, [{"port": 22, "proto": "udp"}], True),
        (SESSION, [], True),
        ({"peer": "10.9.9.9", "port": 2222}, [{"port": 22}], True),
        (None, [], False),
    ],
)
def test_the_way_back_in_is_never_cut(session, ports, extra):
    port = session["port"] if session else 22
    lines = rules(session, open_ports=ports)
    plain = [item for item in ports if item == {"port": port}]
    assert lines.count("tcp dport %d accept" % port) == len(plain) + extra
    # The text is the same wherever the run comes from.
    assert not any("10.9.9.9" in line for line in lines)


@pytest.mark.parametrize(
    ("ports", "peer", "policy", "refused"),
    [
        ([{"port": 22, "sources": ["10.8.0.0/16"]}], "10.9.9.9", "closed", True),
        ([{"port": 22, "sources": ["10.8.0.0/16", "fd00::/8"]}], "2001:db8::1", "closed", True),
        ([{"port": 22, "sources": ["10.8.0.0/16"]}], "10.8.9.9", "closed", False),
        ([{"port": 22, "sources": ["10.8.0.0/16"]}, {"port": 22}], "10.9.9.9", "closed", False),
        ([{"port": 22, "sources": ["10.8.0.0/16"]}], "10.9.9.9", "guard", False),
        ([{"port": 23, "sources": ["10.8.0.0/16"]}], "10.9.9.9", "closed", False),
    ],
)
def test_a_list_that_shuts_this_very_session_out_is_refused(ports, peer, policy, refused):
    wanted = options(open_ports=ports, policy=policy)
    seen = observed("", session={"peer": peer, "port": 22})
    if not refused:
        assert nft_firewall.plan(wanted, seen).changed
        return
    with pytest.raises(Refusal, match="Add a network that holds %s to the sources" % peer):
        nft_firewall.plan(wanted, seen)


def test_networks_that_overlap_are_merged():
    lines = rules(ingress_sources=["10.0.0.0/8", "10.1.0.0/16", "fd00::/8"])
    assert "ip saddr { 10.0.0.0/8 } tcp dport 9443 accept" in lines
    assert "ip6 saddr { fd00::/8 } tcp dport 9443 accept" in lines


def test_loopback_ports_know_their_clients_and_their_server():
    lines = rules(
        uids={"tether-ingress": 998, "tether-a": 997},
        loopback_ports=[{"port": 8081, "accounts": ["tether-ingress"], "server": "tether-a"}],
    )
    assert 'oifname "lo" tcp dport 8081 meta skuid != { 0, 998 } reject with tcp reset' in lines
    assert 'oifname "lo" tcp sport 8081 meta skuid != { 997 } drop' in lines
    # Another uid under the same name is another rule.
    assert "# accounts: tether-a=997 tether-ingress=998" in lines


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"ingress_sources": []}, "ingress_sources is empty"),
        ({"ingress_sources": ["10.0.0.1/8"]}, "has host bits set"),
        ({"ingress_sources": ["anywhere"]}, "anywhere"),
        ({"ingress_port": 0}, "0 is no port"),
        ({"open_ports": [{"port": 70000}]}, "70000 is no port"),
        ({"loopback_ports": [{"port": 1, "accounts": []}] * 2}, "listed twice"),
    ],
)
def test_options_that_no_rule_could_mean(keys, message):
    with pytest.raises(Refusal, match=message):
        firewall_options.check(options(**keys))


def observed(text, **keys):
    seen = {
        "session": SESSION,
        "nft": "/usr/sbin/nft",
        "uids": {},
        "listing": "live\n",
        "listeners": [],
        "blockers": [],
        "file": text,
        "unit_file": nft_firewall._UNIT_TEXT % {"nft": "/usr/sbin/nft", "file": nft_firewall.FILE},
        "open": [],
        "record": {"text": nft_firewall._digest(text), "listing": nft_firewall._digest("live\n")},
        "unit": {"UnitFileState": "enabled", "ActiveState": "active"},
    }
    seen.update(keys)
    return seen


NOTHING = {
    "listing": None,
    "file": None,
    "unit_file": None,
    "open": [],
    "record": {},
    "unit": {},
    "nft": None,
}


@pytest.mark.parametrize(
    ("keys", "seen", "wanted"),
    [
        ({}, {}, []),
        (
            {},
            NOTHING,
            [
                ("create", "/etc/tether/firewall.nft"),
                ("create", "/etc/systemd/system/tether-firewall.service"),
                ("enable", "tether-firewall.service"),
                ("load", "inet tether"),
            ],
        ),
        ({}, {"listing": None}, [("load", "inet tether")]),
        ({}, {"listing": "less\n"}, [("load", "inet tether")]),
        ({}, {"record": {}}, [("load", "inet tether")]),
        # A unit that anybody may write is a way to root at the next boot.
        ({}, {"open": [nft_firewall.UNIT_FILE]}, [("update", nft_firewall.UNIT_FILE)]),
        (
            {},
            {"unit": {"UnitFileState": "enabled", "ActiveState": "failed"}},
            [("start", "tether-firewall.service")],
        ),
        (
            {"ingress_port": 9444},
            {},
            [("update", "/etc/tether/firewall.nft"), ("load", "inet tether")],
        ),
        (
            {"state": "absent"},
            {},
            [
                ("disable", "tether-firewall.service"),
                ("remove", "inet tether"),
                ("remove", "/etc/systemd/system/tether-firewall.service"),
                ("remove", "/etc/tether/firewall.nft"),
                ("remove", "/var/lib/tether/firewall.json"),
            ],
        ),
        ({"state": "absent"}, NOTHING, []),
    ],
)
def test_plan(keys, seen, wanted):
    text = nft_firewall.render(options(), SESSION, {})
    plan = nft_firewall.plan(options(**keys), observed(text, **seen))
    assert [(step.action, step.name) for step in plan.steps] == wanted


@pytest.mark.parametrize(("mode", "is_open"), [(0o600, False), (0o666, True), (0o644, True)])
def test_a_file_that_is_open_to_others_is_seen(tmp_path, monkeypatch, mode, is_open):
    path = tmp_path / "nft_firewall.nft"
    path.write_text("")
    path.chmod(mode)
    real = files.os.lstat

    def owned_by_root(name):
        status = list(real(name))
        status[4:6] = 0, 0  # whoever runs the tests
        return os.stat_result(status)

    monkeypatch.setattr(files.os, "lstat", owned_by_root)
    assert files.is_roots(str(path), 0o600) is not is_open


def test_accounts_that_an_earlier_task_will_make_do_not_stop_a_check():
    wanted = options(loopback_ports=[{"port": 8081, "accounts": ["tether-new"]}])
    plan = nft_firewall.plan(wanted, observed("", uids={"tether-new": None}))
    assert plan.changed
    assert plan.data["uids"] == {"tether-new": None}


NODE_EXPORTER = {
    "port": 9100,
    "address": "::",
    "pid": 812,
    "name": "node_exporter",
    "unit": "node_exporter.service",
}
CLOSED = '{"chain": {"hook": "input", "policy": "drop"}}\n'
GUARD = CLOSED.replace("drop", "accept")


@pytest.mark.parametrize(
    ("keys", "seen", "refused"),
    [
        ({}, {"listing": None, "record": {}}, True),
        ({"listeners": "cut"}, {"listing": None, "record": {}}, False),
        ({"policy": "guard"}, {"listing": None, "record": {}}, False),
        ({"state": "absent"}, {"listing": None, "record": {}}, False),
        ({"open_ports": [{"port": 9100}]}, {"listing": None, "record": {}}, False),
        ({"ingress_port": 9100}, {"listing": None, "record": {}}, False),
        # Closed already, perhaps undone by somebody since: a stranger is closed off.
        ({}, {"listing": CLOSED, "record": {}}, False),
        ({}, {"listing": None, "record": {"rules": CLOSED}}, False),
        # Guarded alone so far.
        ({}, {"listing": GUARD, "record": {"rules": GUARD}}, True),
    ],
)
def test_the_first_closing_cuts_nobody_in_silence(keys, seen, refused):
    wanted, seen = options(**keys), observed("", listeners=[NODE_EXPORTER], **seen)
    if not refused:
        nft_firewall.plan(wanted, seen)
        return
    with pytest.raises(Refusal, match="port 9100 on ::, process 812"):
        nft_firewall.plan(wanted, seen)


@pytest.mark.parametrize(
    ("keys", "looks"),
    [({}, True), ({"policy": "guard"}, False), ({"listeners": "cut"}, False)],
)
def test_who_listens_is_looked_up_only_for_the_first_closing(monkeypatch, keys, looks):
    asked = []
    monkeypatch.setattr(nft_firewall.nft, "program", lambda: None)
    monkeypatch.setattr(nft_firewall.systemctl, "show", lambda units: {})
    monkeypatch.setattr(nft_firewall, "RECORD", "/nonexistent/record")
    monkeypatch.setattr(
        nft_firewall.firewall_listeners,
        "observe",
        lambda known: asked.append(known) or [NODE_EXPORTER],
    )
    seen = nft_firewall.observe(options(ssh_connection="10.9.9.9 1 10.9.9.8 2222", **keys))
    assert asked == ([{22, 2222, 9443}] if looks else [])
    assert seen["listeners"] == ([NODE_EXPORTER] if looks else [])


SERVICES = [
    {"port": 8001, "sources": ["10.0.0.0/24"]},
    {"port": 8001, "sources": ["10.0.1.0/24", "fd00::/64"]},
    {"port": 8002, "sources": []},
]


def test_ports_of_services_are_open_to_their_networks_alone():
    assert rules(service_ports=SERVICES)[-6:-2] == [
        "ip saddr { 10.0.0.0/8 } tcp dport 9443 accept",
        "ip saddr { 10.0.0.0/23 } tcp dport 8001 accept",
        "ip6 saddr { fd00::/64 } tcp dport 8001 accept",
        "tcp dport 8002 accept",
    ]
    # Where nothing else is closed, too.
    assert rules(policy="guard", service_ports=SERVICES)[-6:-2] == [
        "tcp dport 8002 accept",
        "tcp dport 9443 drop",
        "tcp dport 8001 drop",
        "tcp dport 8002 drop",
    ]


def test_a_service_on_the_port_of_the_way_in_is_refused():
    desired = options(policy="guard", service_ports=[{"port": 22, "sources": ["10.0.0.0/8"]}])
    with pytest.raises(Refusal, match="this SSH session's port"):
        nft_firewall.plan(desired, {"blockers": [], "session": SESSION})


def test_a_service_port_that_is_open_to_others_too_is_refused():
    wrong = options(
        open_ports=[{"port": 8001}], service_ports=[{"port": 8001, "sources": ["x"]}, {"port": 0}]
    )
    with pytest.raises(Refusal) as caught:
        firewall_options.check(wrong)
    for words in ("8001 is in open_ports", "0 is no port", "'x' does not appear"):
        assert words in str(caught.value)
