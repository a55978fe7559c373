# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reading the part of pf.conf(5) that an anchor of a fleet may hold; anything else is a syntax
error.

Options, translation, anchors in anchors and interfaces as addresses are not read, of normalization
only how fragments are put together: the real pfctl takes them. What is read is checked as pfctl
does, and expanded as `pfctl -s rules` shows it: one rule for each member of a list. No packet is
ever filtered.
"""

from __future__ import annotations

import grp
import ipaddress
import itertools
import pwd
import re
import secrets
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"[^"]*")|(?P<table><[^>\s]*>)|(?P<sign>!=|[{}=!,])|(?P<word>[^\s{}=!,<>"]+))"""
)
_TABLE_NAME = re.compile(r"<[A-Za-z0-9_.-]{1,31}>")
_MACRO = re.compile(r"^\s*([A-Za-z][A-Za-z0-9_]*)\s*=\s*(\S.*)$")
_SOURCE = re.compile(r"from (\S+) ")
_TABLE_THRESHOLD = 6
_INTERFACE = re.compile(r"(lo|en|utun|bridge|vmenet)[0-9]+")
_PROTOCOLS = ("tcp", "udp", "icmp", "icmp6")
_RETURNS = ("drop", "return", "return-rst", "return-icmp")
# icmp(4) and icmp6(4), as pfctl names and shows types.
_ICMP_TYPES = {
    "icmp-type": ("echorep", "unreach", "redir", "echoreq", "timex", "paramprob"),
    "icmp6-type": (
        *("unreach", "toobig", "timex", "paramprob", "echoreq", "echorep", "redir"),
        *("groupqry", "grouprep", "groupterm"),
        *("routersol", "routeradv", "neighbrsol", "neighbradv"),
    ),
}
# pfctl shows a port by its name in /etc/services, of which these are the likely ones (source read
# for OpenBSD's pfctl; doubtful: reports of macOS contradict each other). Whoever searches for the
# number finds out here.
SERVICES = {
    22: "ssh",
    53: "domain",
    80: "http",
    443: "https",
    8080: "http-alt",
    8443: "pcsync-https",
    9090: "websm",
    9443: "tungsten-https",
}


class PfSyntaxError(Exception):
    """A line that is not understood."""

    def __init__(self, line: int, text: str = "syntax error") -> None:
        super().__init__(text)
        self.line = line
        self.text = text


@dataclass
class RuleSet:
    """What a file holds."""

    rules: list[str] = field(default_factory=list)
    """As `pfctl -s rules` shows them."""
    tables: dict[str, list[str]] = field(default_factory=dict)
    """Tables that the file defines."""
    uses: set[str] = field(default_factory=set)
    """Tables that rules name."""


def parse(text: str) -> RuleSet:
    """Read a file.

    :raises PfSyntaxError: at the first line that is wrong
    """
    found = RuleSet()
    macros: dict[str, str] = {}
    for number, line in _lines(text):
        macro = _MACRO.match(line)
        if macro:
            macros[macro[1]] = macro[2].strip().strip('"')
            continue
        words = _Words(number, _expand(number, line, macros))
        if words.peek() == "table":
            _table(words, found)
        elif words.peek() == "scrub":
            if any(not rule.startswith("scrub") for rule in found.rules):
                raise PfSyntaxError(number, "Rules must be in order")
            found.rules.append(_scrub(words))
        elif words.peek() in ("pass", "block"):
            found.rules += _Rule(words, found.uses).expanded()
        elif words.peek():
            raise PfSyntaxError(number)
    return found


def optimize(found: RuleSet) -> None:
    """What pfctl does with rules by default, the part of it that hides most.

    Source read (OpenBSD's pfctl_optimize.c): rules that differ in their source alone become one
    with a table, from six on; the table has a name that is another one each time.
    """
    rules: list[str] = []
    for _same, each in itertools.groupby(found.rules, lambda rule: _SOURCE.sub("from X ", rule)):
        group = list(each)
        sources = [match[1] for match in map(_SOURCE.search, group) if match]
        if len(sources) < _TABLE_THRESHOLD or "any" in sources:
            rules += group
            continue
        name = f"<__automatic_{secrets.token_hex(4)}_{len(found.tables)}>"
        found.tables[name] = sources
        rules.append(_SOURCE.sub(f"from {name} ", group[0]))
    found.rules = rules


def _lines(text: str) -> list[tuple[int, str]]:
    """Lines with their numbers, without comments, continued ones joined."""
    result = []
    start, pending = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        start = start or number
        plain = line.partition("#")[0]
        if plain.endswith("\\"):
            pending += plain[:-1] + " "
            continue
        if (pending + plain).strip():
            result.append((start, pending + plain))
        start, pending = 0, ""
    if pending.strip():
        raise PfSyntaxError(start)
    return result


def _expand(number: int, line: str, macros: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in macros:
            raise PfSyntaxError(number, f"macro '{match[1]}' not defined")
        return macros[match[1]]

    return re.sub(r"\$([A-Za-z][A-Za-z0-9_]*)", value, line)


class _Words:
    """The tokens of one line."""

    def __init__(self, line: int, text: str) -> None:
        self.line = line
        self._tokens: list[str] = []
        position = 0
        text = text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if not match:
                raise PfSyntaxError(line)
            self._tokens.append(match[0].strip())
            position = match.end()

    def peek(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def take(self) -> str:
        """The next token; its absence is an error."""
        if not self._tokens:
            raise PfSyntaxError(self.line)
        return self._tokens.pop(0)

    def takes(self, *words: str) -> str:
        """The next token if it is one of these; else nothing."""
        return self.take() if self.peek() in words and self._tokens else ""

    def expect(self, word: str) -> None:
        if self.take() != word:
            raise PfSyntaxError(self.line)

    def one_or_list(self) -> list[list[str]]:
        """An item or a list in braces, each with the signs before it (`!`, `=`, `!=`)."""
        if not self.takes("{"):
            return [self._item()]
        items = []
        while not self.takes("}"):
            items.append(self._item())
            self.takes(",")
        if not items:
            raise PfSyntaxError(self.line)
        return items

    def _item(self) -> list[str]:
        item = []
        while self.peek() in ("!", "=", "!="):
            item.append(self.take())
        word = self.take()
        if word in ("{", "}", ","):
            raise PfSyntaxError(self.line)
        return [*item, word]

    def wrong(self, text: str = "syntax error") -> PfSyntaxError:
        return PfSyntaxError(self.line, text)


def _table(words: _Words, found: RuleSet) -> None:
    words.expect("table")
    name = words.take()
    if not _TABLE_NAME.fullmatch(name):
        raise words.wrong()
    while words.takes("persist", "const"):
        pass
    addresses: list[str] = []
    if words.peek() == "{":
        for item in words.one_or_list():
            negated = item[0] == "!"
            if len(item) != 1 + negated:
                raise words.wrong()
            addresses.append("!" * negated + _address(words, item[-1])[0])
    if words.peek():
        raise words.wrong()
    if name in found.tables:
        raise words.wrong(f"table {name} already defined")
    found.tables[name] = addresses


def _scrub(words: _Words) -> str:
    """`scrub in on ! lo0 all fragment reassemble`, and no other form."""
    words.expect("scrub")
    shown = ["scrub", words.takes("in", "out")]
    shown += [f"on {name}" for name in _interfaces(words) if name]
    for word in ("all", "fragment", "reassemble"):
        words.expect(word)
        shown.append(word)
    if words.peek():
        raise words.wrong()
    return " ".join(word for word in shown if word)


def _interfaces(words: _Words) -> list[str]:
    """After `on`: interfaces, each perhaps negated; pfctl shows a blank behind the sign."""
    if not words.takes("on"):
        return [""]
    names = []
    for *signs, name in words.one_or_list():
        if signs not in ([], ["!"]) or not _INTERFACE.fullmatch(name):
            raise words.wrong()
        names.append("! " * bool(signs) + name)
    return names


def _address(words: _Words, text: str) -> tuple[str, str]:
    """An address or network as pfctl shows it, and its family.

    Names are refused: the real pfctl looks them up once, which no rule of a fleet should rely on.
    """
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise words.wrong(f"no IP address found for {text}") from None
    shown = str(network.network_address) if network.num_addresses == 1 else str(network)
    return shown, "inet" if network.version == 4 else "inet6"


@dataclass
class _Host:
    """One source or destination."""

    shown: str
    family: str = ""


class _Rule:
    """One `pass` or `block`, up to its expansion."""

    def __init__(self, words: _Words, uses: set[str]) -> None:
        self._words = words
        self._uses = uses
        self._action = words.take()
        if self._action == "block":
            self._action = f"block {words.takes(*_RETURNS) or 'drop'}"
        self._direction = words.takes("in", "out")
        self._log = bool(words.takes("log"))
        self._quick = bool(words.takes("quick"))
        self._interfaces = _interfaces(words)
        self._family = words.takes("inet", "inet6")
        self._protocols = self._listed_protocols()
        self._sources, self._source_ports = [_Host("any")], [""]
        self._targets, self._target_ports = [_Host("any")], [""]
        if not words.takes("all"):
            if words.takes("from"):
                self._sources, self._source_ports = self._hosts(), self._ports()
            if words.takes("to"):
                self._targets, self._target_ports = self._hosts(), self._ports()
        self._users, self._groups = [""], [""]
        self._flags, self._state, self._label, self._fragment = "", "", "", ""
        self._types = [""]
        while words.peek():
            self._option(words.take())
        self._check()

    def expanded(self) -> list[str]:
        """The rules as shown: one for each combination of the lists' members."""
        rules = []
        for (
            interface,
            protocol,
            source,
            source_port,
            target,
            port,
            user,
            group,
            icmp_type,
        ) in itertools.product(
            self._interfaces,
            self._protocols,
            self._sources,
            self._source_ports,
            self._targets,
            self._target_ports,
            self._users,
            self._groups,
            self._types,
        ):
            families = {self._family, source.family, target.family} - {""}
            if len(families) > 1:
                # pfctl drops combinations of both families, and complains when none is left.
                continue
            words = [self._action, self._direction, "log" * self._log, "quick" * self._quick]
            words += [interface and f"on {interface}", *families, protocol and f"proto {protocol}"]
            plain = (source.shown, source_port, target.shown, port) == ("any", "", "any", "")
            hosts = f"from {source.shown}{source_port} to {target.shown}{port}"
            words += ["all" if plain else hosts, user, group, *self._tail(protocol, icmp_type)]
            rules.append(" ".join(word for word in words if word))
        if not rules:
            raise self._words.wrong("no rule to load: the address families contradict each other")
        return rules

    def _tail(self, protocol: str, icmp_type: str) -> list[str]:
        """What follows the hosts; pass keeps state unless told otherwise, and then has flags."""
        state = self._state or ("keep state" if self._action == "pass" else "")
        flags = self._flags
        if not flags and protocol in ("", "tcp") and state not in ("", "no state"):
            flags = "flags S/SA"
        label = self._label and f"label {self._label}"
        return [flags, icmp_type, state, self._fragment, label]

    def _listed_protocols(self) -> list[str]:
        if not self._words.takes("proto"):
            return [""]
        names = [item[-1] for item in self._words.one_or_list() if len(item) == 1]
        for name in names or ["?"]:
            if name not in _PROTOCOLS:
                raise self._words.wrong(f"unknown protocol {name}")
        return names

    def _hosts(self) -> list[_Host]:
        if self._words.takes("any"):
            return [_Host("any")]
        hosts = []
        for *signs, word in self._words.one_or_list():
            if signs not in ([], ["!"]):
                raise self._words.wrong()
            negated = "! " * bool(signs)
            if word.startswith("<"):
                if not _TABLE_NAME.fullmatch(word):
                    raise self._words.wrong()
                self._uses.add(word)
                hosts.append(_Host(negated + word))
            else:
                shown, family = _address(self._words, word)
                hosts.append(_Host(negated + shown, family))
        return hosts

    def _ports(self) -> list[str]:
        if not self._words.takes("port"):
            return [""]
        return [f" port {self._port(item)}" for item in self._words.one_or_list()]

    def _port(self, item: list[str]) -> str:
        *signs, word = item
        names = {name: number for number, name in SERVICES.items()}
        bounds = [str(names.get(part, part)) for part in word.split(":")]
        if signs not in ([], ["="], ["!="]) or len(bounds) > 2:
            raise self._words.wrong()
        for bound in bounds:
            if not bound.isdigit() or not 0 <= int(bound) <= 65535:
                raise self._words.wrong(f"unknown port {bound}")
        if len(bounds) == 2:
            return ":".join(bounds)
        number = int(bounds[0])
        return f"{signs[0] if signs else '='} {SERVICES.get(number, number)}"

    def _option(self, word: str) -> None:
        words = self._words
        if word == "user":
            self._users = self._accounts("user")
        elif word == "group":
            self._groups = self._accounts("group")
        elif word == "flags":
            self._flags = self._flag_words()
        elif word in ("keep", "modulate", "synproxy", "no"):
            words.expect("state")
            self._state = f"{word} state"
        elif word in _ICMP_TYPES:
            self._types = self._icmp_types(word)
        elif word == "fragment":
            self._fragment = word
        elif word == "label":
            self._label = words.take()
            if not self._label.startswith('"'):
                self._label = f'"{self._label}"'
        else:
            raise words.wrong()

    def _icmp_types(self, kind: str) -> list[str]:
        known = _ICMP_TYPES[kind]
        names = [item[-1] for item in self._words.one_or_list() if len(item) == 1]
        for name in names or ["?"]:
            if name not in known:
                raise self._words.wrong(f"unknown {kind} {name}")
        protocol, family = ("icmp", "inet") if kind == "icmp-type" else ("icmp6", "inet6")
        if self._protocols != [protocol] or self._family != family:
            raise self._words.wrong(f"{kind} only applies to {protocol} of {family}")
        return [f"{kind} {name}" for name in names]

    def _flag_words(self) -> str:
        word = self._words.take()
        if word != "any" and not re.fullmatch(r"[FSRPAUEW]*/[FSRPAUEW]+", word):
            raise self._words.wrong()
        return f"flags {word}"

    def _accounts(self, kind: str) -> list[str]:
        """Accounts are shown by number: names are looked up when the file is read."""
        shown = []
        for *signs, word in self._words.one_or_list():
            if signs not in ([], ["="], ["!="]):
                raise self._words.wrong()
            shown.append(f"{kind} {signs[0] if signs else '='} {self._number(kind, word)}")
        return shown

    def _number(self, kind: str, word: str) -> int:
        if word.isdigit():
            return int(word)
        try:
            return pwd.getpwnam(word).pw_uid if kind == "user" else grp.getgrnam(word).gr_gid
        except KeyError:
            raise self._words.wrong(f"unknown {kind} {word}") from None

    def _check(self) -> None:
        transport = set(self._protocols) <= {"tcp", "udp"}
        if not transport and self._source_ports + self._target_ports != ["", ""]:
            raise self._words.wrong("port only applies to tcp/udp")
        if not transport and self._users + self._groups != ["", ""]:
            raise self._words.wrong("user/group only applies to tcp/udp")
