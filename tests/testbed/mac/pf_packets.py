# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a Mac's packet filter would do with a packet, by rules as `pfctl -s rules` shows them.

Source read (xnu's pf.c, pf_norm.c): the last rule that matches decides, or the first that is quick,
and what no rule matches passes. Rules with ports, flags or types match no fragment; scrub puts
fragments together. A state lets the answers in. Only the words that pf_rules.py shows are read.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .pf_rules import SERVICES

_NUMBERS = {name: number for number, name in SERVICES.items()}
_FLAGS = "FSRPAUEW"


@dataclass(frozen=True)
class Packet:
    """One packet.

    :ivar kind: of ICMP, as pfctl names it
    :ivar user: the account of the socket that sends it, or that would get it
    :ivar fragment: whether it is a part of a packet
    """

    protocol: str = "tcp"
    direction: str = "in"
    interface: str = "en0"
    source: str = "192.0.2.99"
    target: str = "192.0.2.1"
    source_port: int = 50000
    port: int = 0
    flags: str = "S"
    kind: str = ""
    user: int = 501
    fragment: bool = False

    def answer(self) -> Packet:
        """What the other side sends back."""
        back = "in" if self.direction == "out" else "out"
        return replace(
            self,
            direction=back,
            source=self.target,
            target=self.source,
            source_port=self.port,
            port=self.source_port,
            flags="SA",
        )


def verdict(rules: Iterable[str], packet: Packet, sent: Iterable[Packet] = ()) -> str:
    """`pass`, `block drop` or another block.

    :param sent: packets that went before, whose states may let this one through
    """
    rules = list(rules)
    if packet.fragment and any(_scrubs(rule, packet) for rule in rules):
        packet = replace(packet, fragment=False)
    for earlier in sent:
        rule = _decides(rules, earlier)
        if rule.startswith("pass") and "keep state" in rule and packet == earlier.answer():
            return "pass"
    words = _decides(rules, packet).split()
    return "pass" if words[0] == "pass" else " ".join(words[:2])


def _decides(rules: list[str], packet: Packet) -> str:
    last = "pass no state"
    for rule in rules:
        if not rule.startswith("scrub") and _matches(rule, packet):
            last = rule
            if " quick " in f"{rule} ":
                break
    return last


def _scrubs(rule: str, packet: Packet) -> bool:
    return rule.startswith("scrub") and _matches(rule, replace(packet, fragment=False))


def _matches(rule: str, packet: Packet) -> bool:
    version = ipaddress.ip_address(packet.source).version
    direction = re.match(r"(?:pass|block \S+|scrub) (in|out)\b", rule)
    interface = re.search(r" on (! )?(\S+)", rule)
    family = re.search(r" (inet6?) ", rule)
    protocol = re.search(r" proto (\S+)", rule)
    return all(
        (
            not direction or direction[1] == packet.direction,
            not interface or (interface[2] == packet.interface) != bool(interface[1]),
            not family or (family[1] == "inet6") == (version == 6),
            not protocol or protocol[1] == packet.protocol,
            _hosts(rule, packet),
            _rest(rule, packet),
        )
    )


def _hosts(rule: str, packet: Packet) -> bool:
    found = re.search(r" from (! )?(\S+)(?: port (\S.*?))? to (! )?(\S+)(?: port (.*))?$", rule)
    if not found:
        return True
    ends = ((found[1], found[2], packet.source), (found[4], found[5], packet.target))
    if not all(_is_host(text, address) != bool(sign) for sign, text, address in ends):
        return False
    ports = ((found[3], packet.source_port), (found[6], packet.port))
    named = [(text, port) for text, port in ports if text]
    return not (named and packet.fragment) and all(_is_port(text, port) for text, port in named)


def _is_host(text: str, address: str) -> bool:
    return text == "any" or ipaddress.ip_address(address) in ipaddress.ip_network(text)


def _is_port(text: str, port: int) -> bool:
    sign, value = re.match(r"(?:(=|!=) )?(\S+)", text).groups()  # type: ignore[union-attr]
    low, _, high = value.partition(":")
    bounds = [int(_NUMBERS.get(one, one)) for one in (low, high or low)]
    return (bounds[0] <= port <= bounds[1]) != (sign == "!=")


def _rest(rule: str, packet: Packet) -> bool:
    flags = re.search(r" flags (\w*)/(\w+)", rule)
    kind = re.search(r" icmp6?-type (\S+)", rule)
    users = re.search(r" user (=|!=) (\d+)", rule)
    if packet.fragment and (flags or kind):
        return False
    if " fragment" in f" {rule.rpartition(' all')[2]}" and not packet.fragment:
        return rule.startswith("scrub")
    if flags and packet.protocol == "tcp":
        seen = {one for one in packet.flags if one in flags[2]}
        if seen != set(flags[1]):
            return False
    if kind and kind[1] != packet.kind:
        return False
    return not users or (int(users[2]) == packet.user) == (users[1] == "=")
