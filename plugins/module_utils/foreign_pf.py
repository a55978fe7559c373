# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What of a Mac's own ruleset would keep our anchor from counting: named, and never mended here.

The main ruleset belongs to macOS and to whoever else writes it. ``pfctl -F all`` takes its anchors
away and leaves what is in them, so that every rule of ours is there and none is looked at; nothing
brings them back before the next boot (measured by an author of another project, four minutes and a
sleep long).
"""

from __future__ import annotations

import socket
from typing import Any, Dict, List

from ansible_collections.tether.fleet.plugins.module_utils import pf
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

# As `pfctl -s rules` shows them (output published of macOS 26), up to what differs.
_FILTER, _SCRUB = 'anchor "com.apple/*"', 'scrub-anchor "com.apple/*"'


def refuse(desired: Dict[str, Any], state: pf.State) -> None:
    """Refuse when our rules would not count, or when another one stops the ingress before them.

    :raises Refusal: whatever ``foreign`` says, when they would not count
    """
    missing = [one for one in (_SCRUB, _FILTER) if not any(r.startswith(one) for r in state.main)]
    if missing:
        raise Refusal(
            "firewall",
            "a main ruleset of pf without %s: a flush or another program took it away, and no rule"
            " of ours is looked at" % " and ".join(missing),
            "macOS's own anchors in it",
            "See that /etc/pf.conf has these lines (macOS's own file has), then load it: sudo pfctl"
            " -f /etc/pf.conf  (virtual machines on this Mac lose their network until they start"
            " anew). Or start the Mac anew",
        )
    skipped = [one for one in state.skipped if not _is_loopback(one) or desired["loopback_ports"]]
    if skipped:
        raise Refusal(
            "firewall",
            "set skip on %s: pf filters nothing there" % ", ".join(skipped),
            "pf to filter on every interface (on lo0 where models have local ports)",
            "Take that line out of the file that brings it (grep skip /etc/pf.conf"
            " /etc/pf.anchors/*), and start the Mac anew",
        )
    blocks = blocking(state.main, desired["ingress_port"])
    if blocks and desired["foreign"] == "refuse":
        raise Refusal(
            "firewall",
            "a rule of somebody else before ours, %s: it drops connections to port %d"
            % (blocks[0], desired["ingress_port"]),
            "other firewalls to let port %d in" % desired["ingress_port"],
            "Let the port in, in the program or file that brings that rule (or set foreign: ignore,"
            " if you know that it lets the port in)",
        )


def blocking(main: List[str], port: int) -> List[str]:
    """Rules before our anchor that end the look at a connection to a port with a block."""
    found = []
    for rule in main:
        if rule.startswith(_FILTER):
            break
        words = rule.split()
        if words[:1] == ["block"] and "quick" in words and "out" not in words[:4]:
            if not ({"udp", "icmp", "icmp6"} & set(words)) and _may_be(words, port):
                found.append(rule)
    return found


def _may_be(words: List[str], port: int) -> bool:
    """Whether a rule's destination may be the port: it names none, or this one, or no single one.

    It names ports as /etc/services does.
    """
    after = words[words.index("to") :] if "to" in words else []
    if "port" not in after:
        return True
    sign, value = (*after[after.index("port") + 1 :], "", "")[:2]
    if sign != "=":
        return True
    try:
        return value in (str(port), socket.getservbyport(port, "tcp"))
    except OSError:
        return value == str(port)


def _is_loopback(interface: str) -> bool:
    return interface.startswith("lo")
