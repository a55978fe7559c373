# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the rules of a Mac's firewall mean, by the emulation's reading of xnu's source.

No kernel judges these packets: the same intentions are tried in a real one for nftables, in
tests/unit/plugins/module_utils/test_nft_firewall_live.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from mac import pf_rules as emulated
from mac.pf_packets import Packet, verdict

from ansible_collections.tether.fleet.plugins.module_utils import firewall_options, pf_rules

CLIENT, SERVER, OTHER = 501, 402, 666
SESSION = {"peer": "10.9.9.9", "port": 22}


def rules(session: dict[str, Any] | None = SESSION, **keys: Any) -> list[str]:
    """The rules as pfctl would show them."""
    given = {"ingress_sources": ["10.0.0.0/8", "fd00::/8"], **keys}
    checked = ArgumentSpecValidator(firewall_options.ARGUMENT_SPEC).validate(given)
    uids: dict[str, int | None] = {"c": CLIENT, "s": SERVER}
    return emulated.parse(pf_rules.render(checked.validated_parameters, session, uids)).rules


def icmp(kind: str, **more: Any) -> Packet:
    return Packet(protocol="icmp", kind=kind, **more)


V6: dict[str, Any] = {"source": "2001:db8::9", "target": "2001:db8::1"}


@pytest.mark.parametrize(
    ("packet", "closed", "guard"),
    [
        # The ingress, from the cluster's networks and from elsewhere.
        (Packet(port=9443, source="10.1.2.3"), "pass", "pass"),
        (Packet(port=9443, source="fd00::3", target="fd00::1"), "pass", "pass"),
        (Packet(port=9443), "block drop", "block drop"),
        (Packet(port=9443, **V6), "block drop", "block drop"),
        (Packet(port=9443, source="10.1.2.3", interface="utun4"), "pass", "pass"),
        # ssh, and what is not listed.
        (Packet(port=22), "pass", "pass"),
        (Packet(port=22, **V6), "pass", "pass"),
        (Packet(port=11434), "block drop", "pass"),
        (Packet(port=11434, **V6), "block drop", "pass"),
        (Packet(port=5353, protocol="udp"), "block drop", "pass"),
        (Packet(protocol="gre"), "block drop", "pass"),
        # Loopback is for the rules of owners.
        (Packet(port=11434, interface="lo0", source="127.0.0.1"), "pass", "pass"),
        # Connections that were there before the rules.
        (Packet(port=11434, flags="A"), "pass", "pass"),
        (Packet(port=50000, source_port=443, flags="SA"), "pass", "pass"),
        (Packet(port=50000, source_port=443, flags="R"), "pass", "pass"),
        # What opens one cannot be disguised: by more flags, or by parts.
        (Packet(port=11434, flags="SF"), "block drop", "pass"),
        (Packet(port=11434, flags="SPU"), "block drop", "pass"),
        (Packet(port=9443, fragment=True), "block drop", "block drop"),
        (Packet(port=9443, fragment=True, source="10.1.2.3"), "pass", "pass"),
        (Packet(port=11434, fragment=True), "block drop", "pass"),
        # What keeps a network going.
        (icmp("echoreq"), "pass", "pass"),
        (icmp("unreach"), "pass", "pass"),
        (icmp("redir"), "block drop", "pass"),
        (Packet(protocol="icmp6", kind="toobig", **V6), "pass", "pass"),
        (Packet(protocol="icmp6", kind="neighbrsol", **V6), "pass", "pass"),
        (Packet(protocol="icmp6", kind="redir", **V6), "block drop", "pass"),
        (Packet(protocol="udp", source_port=67, port=68), "pass", "pass"),
        (
            Packet(protocol="udp", source_port=547, port=546, source="fe80::1", target="fe80::2"),
            "pass",
            "pass",
        ),
        (Packet(protocol="udp", source_port=547, port=546, **V6), "block drop", "pass"),
        # What this host sends.
        (Packet(direction="out", port=443), "pass", "pass"),
        (Packet(direction="out", protocol="udp", port=53), "pass", "pass"),
    ],
)
def test_packets(packet: Packet, closed: str, guard: str) -> None:
    assert verdict(rules(), packet) == closed
    assert verdict(rules(policy="guard"), packet) == guard


def test_without_scrub_no_part_opens_a_connection() -> None:
    """Should somebody's ruleset keep ours from putting packets together."""
    for policy in ("closed", "guard"):
        left = [rule for rule in rules(policy=policy) if not rule.startswith("scrub")]
        assert verdict(left, Packet(port=9443, fragment=True)) == "block drop"


@pytest.mark.parametrize("protocol", ["udp", "icmp"])
def test_answers_come_in(protocol: str) -> None:
    kind = "echorep" if protocol == "icmp" else ""
    question = Packet(protocol=protocol, direction="out", port=53, kind=kind)
    answer = question.answer()
    assert verdict(rules(), answer) == "block drop"
    assert verdict(rules(), answer, sent=[question]) == "pass"


def test_listed_ports_and_those_of_services() -> None:
    keys: dict[str, Any] = {
        "open_ports": [
            {"port": 22},
            {"port": 9100, "sources": ["10.5.0.0/16"]},
            {"port": 53, "proto": "udp"},
        ],
        "service_ports": [
            {"port": 8001, "sources": ["10.1.0.0/16"]},
            {"port": 8001, "sources": ["10.2.0.0/16"]},
            {"port": 8002},
        ],
    }
    expected = {
        ("tcp", 9100, "10.5.1.1"): ("pass", "pass"),
        ("tcp", 9100, "10.6.1.1"): ("block drop", "pass"),
        ("udp", 53, "192.0.2.9"): ("pass", "pass"),
        ("tcp", 53, "192.0.2.9"): ("block drop", "pass"),
        ("tcp", 8001, "10.1.1.1"): ("pass", "pass"),
        ("tcp", 8001, "10.2.1.1"): ("pass", "pass"),
        ("tcp", 8001, "10.3.1.1"): ("block drop", "block drop"),
        ("tcp", 8002, "192.0.2.9"): ("pass", "pass"),
    }
    for (protocol, port, source), (closed, guard) in expected.items():
        packet = Packet(protocol=protocol, port=port, source=source)
        assert verdict(rules(**keys), packet) == closed, packet
        assert verdict(rules(policy="guard", **keys), packet) == guard, packet


@pytest.mark.parametrize(
    ("session", "listed", "port", "expected"),
    [
        (SESSION, [], 22, "pass"),
        ({"peer": "10.9.9.9", "port": 2222}, [], 2222, "pass"),
        ({"peer": "10.9.9.9", "port": 2222}, [], 22, "block drop"),
        (None, [], 22, "block drop"),
        (SESSION, [{"port": 22, "sources": ["10.9.0.0/16"]}], 22, "block drop"),
    ],
)
def test_the_way_back_in(
    session: dict[str, Any] | None, listed: list[dict[str, Any]], port: int, expected: str
) -> None:
    """From everywhere, unless it is listed for some."""
    assert verdict(rules(session, open_ports=listed), Packet(port=port)) == expected


@pytest.mark.parametrize("policy", ["closed", "guard"])
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_owners_on_loopback(policy: str, address: str) -> None:
    shown = rules(policy=policy, loopback_ports=[{"port": 8081, "accounts": ["c"], "server": "s"}])
    ask = Packet(interface="lo0", direction="out", source=address, target=address, port=8081)

    def asked(user: int) -> str:
        return verdict(shown, Packet(**{**vars(ask), "user": user}))

    assert (asked(0), asked(CLIENT), asked(OTHER)) == ("pass", "pass", "block return-rst")
    back = {**vars(ask), "source_port": 8081, "port": 50000, "flags": "SA"}
    for user, expected in ((SERVER, "pass"), (OTHER, "block drop"), (0, "block drop")):
        assert verdict(shown, Packet(**{**back, "user": user})) == expected
    # Other ports of loopback are nobody's business, and running connections go on.
    assert verdict(shown, Packet(**{**vars(ask), "port": 8082, "user": OTHER})) == "pass"
    assert verdict(shown, Packet(**{**back, "flags": "A", "user": OTHER})) == "pass"
