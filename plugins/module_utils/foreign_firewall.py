# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Other firewalls on a host: what would drop the fleet's traffic whatever our table accepts.

In nftables an ``accept`` ends the look at one table only; another table can still drop. So another
firewall is never fought: it is named, with the command that lets the ingress in through its own
front end.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import Any, Dict, List, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils import nft
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
_MATCHES_ALL = {"counter", "log", "comment"}


def observe(program: Optional[str], port: int) -> List[Dict[str, Any]]:
    """Firewalls that are active here: ``[{"name", "kind", "found", "allows", ...}]``.

    :param program: path of nft, or None
    :param port: the ingress' port; ``allows`` says whether a rule lets it in somewhere
    """
    found = []
    for look in (_ufw, _firewalld):
        item = look(port)
        if item is not None:
            found.append(item)
    # Tables that those made themselves are theirs to open.
    ours = {item["name"] for item in found}
    if program is not None:
        for item in blocking_chains(nft.ruleset(program), port):
            if not ours & {"ufw", "firewalld"} or not _belongs(item, ours):
                found.append(item)
    legacy = _legacy(port)
    if legacy is not None and "ufw" not in ours:
        found.append(legacy)
    return found


def refuse(desired: Dict[str, Any], found: List[Dict[str, Any]]) -> None:
    """Refuse when an active firewall would stop the ingress, or ours would stop its guests.

    :raises Refusal: naming all of them, with the commands that open the port
    """
    port, sources = desired["ingress_port"], desired["ingress_sources"]
    closed = [item for item in found if not item["allows"]]
    if closed:
        commands = [line for item in closed for line in remedy(item, port, sources)]
        raise Refusal(
            "firewall",
            "; ".join(item["found"] for item in closed)
            + ": it drops connections to port %d" % port,
            "other firewalls to let port %d in" % port,
            "Run: %s  (or set foreign: ignore, if you know that it lets the port in)"
            % " && ".join(commands),
        )
    fronts = [item["name"] for item in found if item["kind"] == "front end"]
    if fronts and desired["policy"] == "closed":
        raise Refusal(
            "firewall",
            "%s is active and already decides which ports are open" % " and ".join(fronts),
            "one firewall that closes ports",
            "Set policy: guard, so that this table only guards port %d" % port,
        )


def remedy(item: Dict[str, Any], port: int, sources: List[str]) -> List[str]:
    """Commands that let the ingress' port in, in the words of the firewall found."""
    if item["name"] == "ufw":
        return ["ufw allow proto tcp from %s to any port %d" % (one, port) for one in sources]
    if item["name"] == "firewalld":
        rule = (
            'firewall-cmd --permanent --add-rich-rule=\'rule family="%s" source address="%s"'
            ' port port="%d" protocol="tcp" accept\''
        )
        made = [rule % ("ipv6" if ":" in one else "ipv4", one, port) for one in sources]
        return [*made, "firewall-cmd --reload"]
    if item["kind"] == "legacy":
        return [
            "%s -I INPUT -p tcp -s %s --dport %d -j ACCEPT"
            % ("ip6tables-legacy" if ":" in one else "iptables-legacy", one, port)
            for one in sources
        ]
    family, table, chain = item["chain"]
    commands = []
    for one in sources:
        word = "ip6" if ":" in one else "ip"
        if family in ("inet", word):
            commands.append(
                "nft insert rule %s %s %s %s saddr %s tcp dport %d accept"
                % (family, table, chain, word, one, port)
            )
    return commands or [
        "nft insert rule %s %s %s tcp dport %d accept" % (family, table, chain, port)
    ]


def blocking_chains(objects: List[Dict[str, Any]], port: int) -> List[Dict[str, Any]]:
    """Base chains of other tables that see incoming packets and end in a drop.

    :param objects: of ``nft -j list ruleset``
    """
    chains: Dict[Tuple[str, str, str], Dict[str, Any]] = {}
    rules: Dict[Tuple[str, str, str], List[List[Dict[str, Any]]]] = {}
    for item in objects:
        if "chain" in item:
            chain = item["chain"]
            chains[(chain["family"], chain["table"], chain["name"])] = chain
        elif "rule" in item:
            rule = item["rule"]
            key = (rule["family"], rule["table"], rule["chain"])
            rules.setdefault(key, []).append(rule.get("expr", []))
    found = []
    for key, chain in sorted(chains.items()):
        family, table, name = key
        if chain.get("hook") != "input" or (family, table) == nft.TABLE:
            continue
        if family not in ("inet", "ip", "ip6"):
            continue
        ends = _ends_in_drop(rules.get(key, []))
        if chain.get("policy") != "drop" and not ends:
            continue
        how = "has policy drop" if chain.get("policy") == "drop" else "ends in a drop"
        found.append(
            {
                "name": "table %s %s" % (family, table),
                "kind": "table",
                "chain": key,
                "found": "chain %s of table %s %s %s" % (name, family, table, how),
                "allows": _allows(key, rules, port),
            }
        )
    return found


def _ends_in_drop(rules: List[List[Dict[str, Any]]]) -> bool:
    """Whether a rule without any condition drops or rejects."""
    for expressions in rules:
        kinds = [next(iter(item)) for item in expressions if item]
        rest = [kind for kind in kinds if kind not in _MATCHES_ALL]
        if rest in (["drop"], ["reject"]):
            return True
        if rest in (["accept"], ["return"]):
            return False
    return False


def _allows(
    chain: Tuple[str, str, str],
    rules: Dict[Tuple[str, str, str], List[List[Dict[str, Any]]]],
    port: int,
) -> bool:
    """Whether a rule of the chain, or of one that it jumps to, accepts the TCP port."""
    seen = set()
    queue = [chain]
    while queue:
        key = queue.pop()
        if key in seen:
            continue
        seen.add(key)
        for expressions in rules.get(key, []):
            if any("accept" in item for item in expressions) and any(
                _is_port(item, port) for item in expressions
            ):
                return True
            for item in expressions:
                verdict = item.get("jump") or item.get("goto")
                if isinstance(verdict, dict) and "target" in verdict:
                    queue.append((key[0], key[1], verdict["target"]))
    return False


def _is_port(item: Dict[str, Any], port: int) -> bool:
    match = item.get("match")
    if not isinstance(match, dict) or match.get("op") not in ("==", "in"):
        return False
    payload = match.get("left", {})
    payload = payload.get("payload", {}) if isinstance(payload, dict) else {}
    if payload.get("field") != "dport" or payload.get("protocol") not in ("tcp", "th"):
        return False
    return _holds(match.get("right"), port)


def _holds(value: Any, port: int) -> bool:
    if isinstance(value, int):
        return value == port
    if isinstance(value, dict):
        if "range" in value:
            low, high = value["range"]
            return isinstance(low, int) and isinstance(high, int) and low <= port <= high
        if "set" in value:
            items = value["set"] if isinstance(value["set"], list) else [value["set"]]
            return any(_holds(item, port) for item in items)
        if "elem" in value:
            return _holds(value["elem"].get("val"), port)
    return False


def _belongs(item: Dict[str, Any], fronts: set[str]) -> bool:
    """Whether a table is the work of an active front end, which is asked instead."""
    table = item["chain"][1]
    return ("firewalld" in fronts and table == "firewalld") or (
        "ufw" in fronts and table == "filter"
    )


def _ufw(port: int) -> Optional[Dict[str, Any]]:
    done = _run(["ufw", "status"])
    if done is None or not parse_ufw(done.stdout, port)[0]:
        return None
    allows = parse_ufw(done.stdout, port)[1]
    return {"name": "ufw", "kind": "front end", "found": "ufw is active", "allows": allows}


def parse_ufw(text: str, port: int) -> Tuple[bool, bool]:
    """``(active, lets the TCP port in)`` from the output of ``ufw status``."""
    lines = text.splitlines()
    active = any(line.strip() == "Status: active" for line in lines)
    for line in lines:
        words = line.replace(" (v6)", "").split()
        if len(words) >= 2 and "ALLOW" in words[1:3]:
            target = words[0]
            if target in ("Anywhere", "Anywhere/tcp"):
                return active, True
            numbers, _slash, proto = target.partition("/")
            if proto in ("", "tcp") and _in_ports(numbers, port):
                return active, True
    return active, False


def _in_ports(text: str, port: int) -> bool:
    for part in text.split(","):
        low, _colon, high = part.partition(":")
        if low.isdigit() and (high or low).isdigit() and int(low) <= port <= int(high or low):
            return True
    return False


def _firewalld(port: int) -> Optional[Dict[str, Any]]:
    done = _run(["firewall-cmd", "--state"])
    if done is None or done.returncode != 0 or "running" not in done.stdout:
        return None
    listed = _run(["firewall-cmd", "--list-all-zones"])
    allows = listed is not None and parse_firewalld(listed.stdout, port)
    return {
        "name": "firewalld",
        "kind": "front end",
        "found": "firewalld is active",
        "allows": allows,
    }


def parse_firewalld(text: str, port: int) -> bool:
    """Whether a zone of ``firewall-cmd --list-all-zones`` lets the TCP port in."""
    for line in text.splitlines():
        words = line.replace('"', "").split()
        if words[:1] == ["ports:"]:
            for word in words[1:]:
                numbers, _slash, proto = word.partition("/")
                if proto == "tcp" and _in_ports(numbers.replace("-", ":"), port):
                    return True
        elif words[:1] == ["rule"] and "accept" in words and "protocol=tcp" in words:
            for word in words:
                numbers = word.partition("=")[2].replace("-", ":")
                if word.startswith("port=") and _in_ports(numbers, port):
                    return True
    return False


def _legacy(port: int) -> Optional[Dict[str, Any]]:
    """Rules of the old iptables, which nft does not see."""
    try:
        with open("/proc/net/ip_tables_names", encoding="ascii") as stream:
            if "filter" not in stream.read().split():
                return None
    except OSError:
        return None
    done = _run(["iptables-legacy", "-S"])
    if done is None or done.returncode != 0 or "-P INPUT DROP" not in done.stdout.splitlines():
        return None
    allows = any(
        "-j ACCEPT" in line and "--dport %d " % port in line for line in done.stdout.splitlines()
    )
    found = "iptables-legacy's chain INPUT has policy DROP"
    return {"name": "iptables-legacy", "kind": "legacy", "found": found, "allows": allows}


def _run(argv: List[str]) -> Optional[subprocess.CompletedProcess[str]]:
    program = shutil.which(argv[0], path=_PATH)
    if program is None:
        return None
    try:
        return subprocess.run(
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            env={"PATH": _PATH, "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
