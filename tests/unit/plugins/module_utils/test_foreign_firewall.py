# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.tether.fleet.plugins.module_utils import foreign_firewall
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

UFW = """Status: active

To                         Action      From
--                         ------      ----
22/tcp                     ALLOW       Anywhere
%s
22/tcp (v6)                ALLOW       Anywhere (v6)
"""
ZONE = """public (active)
  target: default
  interfaces: eth0
  services: dhcpv6-client ssh
  ports: %s
  rich rules:
	%s
"""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Status: inactive\n", (False, False)),
        (UFW % "", (True, False)),
        (UFW % "9443/tcp                   ALLOW       10.0.0.0/8", (True, True)),
        (UFW % "9443                       ALLOW IN    Anywhere", (True, True)),
        (UFW % "9000:9500/tcp              ALLOW       Anywhere", (True, True)),
        (UFW % "80,443,9443/tcp            ALLOW       Anywhere", (True, True)),
        (UFW % "9443/udp                   ALLOW       Anywhere", (True, False)),
        (UFW % "9443/tcp                   DENY        Anywhere", (True, False)),
        (UFW % "Anywhere                   ALLOW       10.0.0.0/8", (True, True)),
    ],
)
def test_ufw(text, wanted):
    assert foreign_firewall.parse_ufw(text, 9443) == wanted


@pytest.mark.parametrize(
    ("ports", "rule", "wanted"),
    [
        ("", "", False),
        ("9443/tcp", "", True),
        ("9000-9500/tcp", "", True),
        ("9443/udp", "", False),
        (
            "",
            'rule family="ipv4" source address="10.0.0.0/8" port port="9443" protocol="tcp" accept',
            True,
        ),
        ("", 'rule family="ipv4" port port="9443" protocol="tcp" drop', False),
    ],
)
def test_firewalld(ports, rule, wanted):
    assert foreign_firewall.parse_firewalld(ZONE % (ports, rule), 9443) is wanted


OPTIONS = {"ingress_port": 9443, "ingress_sources": ["10.0.0.0/8", "fd00::/8"], "policy": "closed"}


def front(name, allows):
    return {"name": name, "kind": "front end", "found": name + " is active", "allows": allows}


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (front("ufw", False), "ufw allow proto tcp from 10.0.0.0/8 to any port 9443"),
        (front("firewalld", False), 'source address="fd00::/8" port port="9443"'),
        (front("ufw", True), "policy: guard"),
        (
            {"name": "iptables-legacy", "kind": "legacy", "found": "x", "allows": False},
            "ip6tables-legacy -I INPUT -p tcp -s fd00::/8",
        ),
    ],
)
def test_refusals_name_the_command(item, message):
    with pytest.raises(Refusal) as refused:
        foreign_firewall.refuse(OPTIONS, [item])
    assert message in str(refused.value)


def test_a_front_end_that_lets_the_port_in_goes_with_guard():
    foreign_firewall.refuse({**OPTIONS, "policy": "guard"}, [front("ufw", True)])
    foreign_firewall.refuse(OPTIONS, [])


def chain(name="INPUT", **keys):
    return {"chain": {"family": "ip", "table": "filter", "name": name, **keys}}


def rule(*expressions, chain="INPUT"):
    return {"rule": {"family": "ip", "table": "filter", "chain": chain, "expr": list(expressions)}}


def port_is(right):
    left = {"payload": {"protocol": "tcp", "field": "dport"}}
    return {"match": {"op": "==", "left": left, "right": right}}


HOOK = {"hook": "input", "type": "filter"}
ACCEPT, DROP = {"accept": None}, {"drop": None}


@pytest.mark.parametrize(
    ("objects", "wanted"),
    [
        ([chain(policy="accept", **HOOK)], []),
        ([chain(policy="drop", **HOOK)], [False]),
        ([chain(policy="accept", **HOOK), rule({"counter": {}}, DROP)], [False]),
        ([chain(policy="accept", **HOOK), rule(ACCEPT), rule(DROP)], []),
        ([chain(policy="accept", **HOOK), rule(port_is(80), DROP)], []),
        ([chain("FORWARD", policy="drop", hook="forward")], []),
        ([chain(policy="drop", **HOOK), rule(port_is(9443), ACCEPT)], [True]),
        ([chain(policy="drop", **HOOK), rule(port_is({"range": [9000, 9500]}), ACCEPT)], [True]),
        ([chain(policy="drop", **HOOK), rule(port_is({"set": [22, 9443]}), ACCEPT)], [True]),
        ([chain(policy="drop", **HOOK), rule(port_is(22), ACCEPT)], [False]),
        (
            [
                chain(policy="drop", **HOOK),
                chain("mine"),
                rule({"jump": {"target": "mine"}}),
                rule(port_is(9443), ACCEPT, chain="mine"),
            ],
            [True],
        ),
    ],
)
def test_chains_that_drop(objects, wanted):
    found = foreign_firewall.blocking_chains(objects, 9443)
    assert [item["allows"] for item in found] == wanted
