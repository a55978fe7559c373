# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rules of a Mac's firewall as text for pfctl: pure functions.

They mean what the nftables table of a Linux host means, as far as pf can say it:

* The first rule that matches decides (``quick``), but for what goes out.
* TCP is judged by a connection's first packet alone, and without state (pf.conf(5), "flags"). So
  connections that were there before the rules, the SSH session that loads them among them, go on,
  and neither clients nor strangers can fill pf's table of states, which holds 10000 of all.
* Answers to what this host asked over UDP and ICMP come in by the state of what went out.
* Rules that look at ports or flags match no fragment (xnu's ``pf_test_fragment``), so fragments
  are put together first, and one of TCP that was not is dropped.
* ``(self)`` would confine them to packets for the host itself. xnu's ``pf_if.c`` finds no address
  for it, so such a rule would match nothing: what is forwarded, for virtual machines, is judged as
  well.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from ansible_collections.tether.fleet.plugins.module_utils import firewall_options

MARK = "# Written by the Ansible collection tether.fleet: changes made here are lost."
# The last rule of a host that is closed.
CLOSED = "block drop in quick on ! lo0 all"

# What a host must hear to reach others, and how others learn that it is there.
_ICMP = "{ unreach, timex, paramprob, echoreq }"
_ICMP6 = (
    "{ unreach, toobig, timex, paramprob, echoreq, groupqry, routeradv, neighbrsol, neighbradv }"
)
_OPENS = "flags S/SA"
_ANSWERS = "flags SA/SA"


def render(
    desired: Dict[str, Any], session: Optional[Dict[str, Any]], uids: Dict[str, Optional[int]]
) -> str:
    """The rules of our anchor.

    :param session: ``{"peer", "port"}`` of the SSH session that the run uses, or None
    :param uids: ids of the accounts named in ``loopback_ports``; None where there is none yet
    """
    lines = [MARK]
    if uids:
        lines.append("# accounts: " + " ".join("%s=%s" % item for item in sorted(uids.items())))
    lines += [
        "scrub in on ! lo0 all fragment reassemble",
        "block drop in quick on ! lo0 proto tcp all fragment",
        *_owner_rules(desired["loopback_ports"], uids),
    ]
    admitted = [
        rule
        for proto, port, sources in firewall_options.admitted(desired, session)
        for rule in _admit(proto, port, sources)
    ]
    closed = desired["policy"] == "closed"
    lines += _closed(admitted) if closed else _guard(admitted, firewall_options.guarded(desired))
    return "\n".join([*lines, ""])


def _closed(admitted: List[str]) -> List[str]:
    """Nobody opens a connection but who is admitted."""
    return [
        # Not quick: what another ruleset's last word on outgoing packets is, stays it.
        "pass out on ! lo0 proto udp all keep state",
        "pass out on ! lo0 inet proto icmp all keep state",
        "pass out on ! lo0 inet6 proto icmp6 all keep state",
        "pass in quick on ! lo0 inet proto icmp all icmp-type %s no state" % _ICMP,
        "pass in quick on ! lo0 inet6 proto icmp6 all icmp6-type %s no state" % _ICMP6,
        # An address from DHCP: its offers come to many, so by no state.
        "pass in quick on ! lo0 inet proto udp from any port 67 to any port 68 no state",
        "pass in quick on ! lo0 inet6 proto udp from fe80::/10 port 547 to any port 546 no state",
        *admitted,
        "block drop in quick on ! lo0 proto tcp all %s" % _OPENS,
        "pass in quick on ! lo0 proto tcp all no state",
        CLOSED,
    ]


def _guard(admitted: List[str], ports: List[int]) -> List[str]:
    """Nobody reaches some ports but who is admitted; all else is as it was."""
    blocks = [
        "block drop in quick on ! lo0 proto tcp from any to any port %d %s" % (port, _OPENS)
        for port in ports
    ]
    return admitted + blocks


def _admit(proto: str, port: int, sources: List[str]) -> List[str]:
    """Rules that let new connections to a port in; from anywhere when there are no sources."""
    tail = ("%s " % _OPENS if proto == "tcp" else "") + "no state"
    if not sources:
        hosts = ["any"]
    else:
        hosts = [
            "{ %s }" % ", ".join(found)
            for found in (firewall_options.networks(sources, version) for version in (4, 6))
            if found
        ]
    return [
        "pass in quick on ! lo0 proto %s from %s to any port %d %s" % (proto, host, port, tail)
        for host in hosts
    ]


def _owner_rules(ports: List[Dict[str, Any]], uids: Dict[str, Optional[int]]) -> List[str]:
    """Who may talk to an engine on loopback, and who may answer from its port.

    Root always may: the health probe runs as root, and root could change these rules anyway. The
    second pair is against a local program that takes the port while the engine restarts: its
    answer to a new connection never leaves, so no prompt reaches it.

    pf(4) finds the account by the socket (xnu's ``pf_socket_lookup``): for what goes out, that of
    who sends.
    """
    rules = []
    for item in sorted(ports, key=lambda one: int(one["port"])):
        port, clients = item["port"], _ids(["root", *item["accounts"]], dict(uids, root=0))
        to = "quick on lo0 proto tcp from any to any port %d" % port
        rules += [
            "pass out %s user { %s } %s no state" % (to, clients, _OPENS),
            "block return-rst out %s %s" % (to, _OPENS),
        ]
        if item.get("server"):
            back = "quick on lo0 proto tcp from any port %d to any" % port
            rules += [
                "pass out %s user { %s } %s no state"
                % (back, _ids([item["server"]], uids), _ANSWERS),
                "block drop out %s %s" % (back, _ANSWERS),
            ]
    return rules


def _ids(names: List[str], uids: Dict[str, Optional[int]]) -> str:
    """Numbers; an account that an earlier task will make by its name."""
    known = sorted({uid for uid in (uids[name] for name in names) if uid is not None})
    unknown = sorted({name for name in names if uids[name] is None})
    return ", ".join([str(uid) for uid in known] + unknown)
