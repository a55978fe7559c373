# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /sbin/pfctl: anchors and tokens, no filtering.

pf_rules.py says which rules it reads. What would change more than an anchor (-d, -f or -F without
an anchor) is written to the log of offences besides.
"""

from __future__ import annotations

import getopt
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .. import offences, pf_rules, pf_state
from ..program import ProgramError, is_root

_USAGE = """\
usage: pfctl [-deEnqv] [-a anchor] [-f file] [-F modifier] [-o level] [-s modifier]
	[-t table -T command [address ...]] [-X token]
	(emulated Mac: these alone)"""
# An issue says: on standard error, also when all went well.
_ALTQ = "No ALTQ support in kernel\nALTQ related functions disabled"
# An issue says: with every -f, an anchor's too.
_FLUSHING = """\
pfctl: Use of -f option, could result in flushing of rules
present in the main ruleset added by the system at startup.
See /etc/pf.conf for further details.
"""
_SHOWN = {
    "r": "rules",
    "rules": "rules",
    "i": "info",
    "info": "info",
    "A": "Anchors",
    "Anchors": "Anchors",
    "T": "Tables",
    "Tables": "Tables",
    "I": "Interfaces",
    "Interfaces": "Interfaces",
    "References": "References",
}
_FLUSHED = ("rules", "Tables", "all")
_ANCHOR = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")


@dataclass
class _Options:
    """A command line."""

    anchor: str = ""
    flags: set[str] = field(default_factory=set)
    file: str = ""
    show: str = ""
    flush: str = ""
    token: str = ""
    optimize: str = "basic"
    table: str = ""
    table_command: str = ""
    words: list[str] = field(default_factory=list)


def main(argv: Sequence[str]) -> int:
    """Do what the options say, in pfctl's own order."""
    options = _parse(list(argv))
    only_checks = "n" in options.flags
    if not only_checks:
        if not is_root():
            raise ProgramError(1, "pfctl: /dev/pf: Permission denied")
        print(_ALTQ, file=sys.stderr)
    if "d" in options.flags:
        _disable()
    if options.token:
        _release(options.token)
    if options.flush:
        _flush(options)
    if options.table_command:
        return _table(options)
    if options.show:
        _show(options)
    if options.file:
        _load(options, only_checks)
    if "e" in options.flags or "E" in options.flags:
        _enable(counted="E" in options.flags)
    return 0


def _parse(argv: list[str]) -> _Options:
    try:
        pairs, words = getopt.getopt(argv, "a:deEf:F:no:qs:t:T:vX:")
    except getopt.GetoptError as error:
        raise ProgramError(1, f"pfctl: {error.msg}\n{_USAGE}") from error
    options = _Options(words=words)
    targets = {"-a": "anchor", "-f": "file", "-F": "flush", "-X": "token", "-t": "table"}
    targets["-o"] = "optimize"
    for name, value in pairs:
        if name in targets:
            setattr(options, targets[name], value)
        elif name == "-s":
            options.show = _SHOWN.get(value, "")
        elif name == "-T":
            options.table_command = value
        else:
            options.flags.add(name[1:])
        if name == "-s" and not options.show:
            raise ProgramError(1, f"pfctl: unknown show modifier '{value}'\n{_USAGE}")
    table = bool(options.table) == bool(options.table_command)
    if not argv or not table or (words and not options.table):
        raise ProgramError(1, _USAGE)
    if options.optimize not in ("none", "basic", "profile"):
        raise ProgramError(1, f"pfctl: unknown optimization level\n{_USAGE}")
    if options.flush and options.flush not in _FLUSHED:
        raise ProgramError(1, f"pfctl: unknown flush modifier '{options.flush}'\n{_USAGE}")
    if options.anchor and not _ANCHOR.fullmatch(options.anchor):
        raise ProgramError(1, f"pfctl: emulated Mac: anchor {options.anchor!r} is not emulated")
    return options


def _enable(*, counted: bool) -> None:
    with pf_state.changed() as state:
        already = bool(state["since"])
        if counted:
            token = pf_state.new_token(state, os.getpid())
            print("pf already enabled" if already else "pf enabled", file=sys.stderr)
            print(f"Token : {token}", file=sys.stderr)
        elif already:
            raise ProgramError(1, "pfctl: pf already enabled")
        else:
            state["since"] = int(time.time())
            print("pf enabled", file=sys.stderr)


def _disable() -> None:
    offences.report("pfctl", "-d ends the filter for everybody who relies on it; release a token")
    with pf_state.changed() as state:
        if not state["since"]:
            raise ProgramError(1, "pfctl: pf not enabled")
        state["since"] = 0
        state["tokens"] = {}
    print("pf disabled", file=sys.stderr)


def _release(token: str) -> None:
    with pf_state.changed() as state:
        if token not in state["tokens"]:
            raise ProgramError(1, "pfctl: pf not enabled with token")
        del state["tokens"][token]
        left = len(state["tokens"])
        state["since"] = state["since"] if left else 0
    if left:
        text = f"disable request successful. {left} more pf enable reference(s) remaining"
        print(f"{text}, pf still enabled.", file=sys.stderr)
    else:
        print("pf disabled", file=sys.stderr)


def _load(options: _Options, only_checks: bool) -> None:
    print(_FLUSHING, file=sys.stderr)
    name = "stdin" if options.file == "-" else options.file
    text = sys.stdin.read() if options.file == "-" else _read(options.file)
    if not options.anchor:
        _load_main(name, text, only_checks)
        return
    try:
        found = pf_rules.parse(text)
    except pf_rules.PfSyntaxError as error:
        line = f"{name}:{error.line}: {error.text}"
        text = f"{line}\npfctl: Syntax error in config file: pf rules not loaded"
        raise ProgramError(1, text) from error
    if options.optimize != "none":
        pf_rules.optimize(found)
    if "v" in options.flags:
        for table, addresses in found.tables.items():
            print(f"table {table} {{ {' '.join(addresses)} }}")
        print("".join(f"{rule}\n" for rule in found.rules), end="")
    if only_checks:
        return
    with pf_state.changed() as state:
        busy, state["busy"] = state["busy"], max(0, state["busy"] - 1)
    if busy:
        # pf(4), DIOCXBEGIN: another transaction on that ruleset has not ended.
        raise ProgramError(1, "pfctl: DIOCXBEGIN: Resource busy")
    # Tables live as long as a rule or a `persist` needs them; here each load brings its own.
    with pf_state.changed() as state:
        tables = {**{table: [] for table in found.uses}, **found.tables}
        state["anchors"][options.anchor] = {"rules": found.rules, "tables": tables}


def _load_main(name: str, text: str, only_checks: bool) -> None:
    """An issue says (tuist #11425): on a live host the main ruleset cannot be loaded again."""
    stock = [line for line in pf_state.STOCK.splitlines() if line and not line.startswith("#")]
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.partition("#")[0].strip()
        if plain and plain not in stock:
            raise ProgramError(
                1,
                f"{name}:{number}: syntax error\npfctl: Syntax error in config file: pf rules not"
                " loaded (emulated Mac: a main ruleset other than macOS's own is not read)",
            )
    if only_checks:
        return
    offences.report("pfctl", "-f without -a replaces the main ruleset, which others share")
    raise ProgramError(1, "pfctl: cannot define table: Resource busy")


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise ProgramError(1, f"pfctl: {path}: {error.strerror}") from error


def _flush(options: _Options) -> None:
    if not options.anchor:
        # Measured: anchors keep what is in them, and the main ruleset that leads there is gone.
        offences.report("pfctl", "-F without -a flushes what others loaded")
        with pf_state.changed() as state:
            state["main"] = []
        print("rules cleared", file=sys.stderr)
        return
    with pf_state.changed() as state:
        anchor = state["anchors"].get(options.anchor)
        if anchor and options.flush in ("rules", "all"):
            anchor["rules"] = []
        if anchor and options.flush in ("Tables", "all"):
            anchor["tables"] = {}
        if anchor and not anchor["rules"] and not anchor["tables"]:
            del state["anchors"][options.anchor]
    print("rules cleared" if options.flush != "Tables" else "0 tables deleted.", file=sys.stderr)


def _show(options: _Options) -> None:
    state = pf_state.read()
    anchor = state["anchors"].get(options.anchor, {"rules": [], "tables": {}})
    if options.show == "rules":
        if not options.anchor:
            print("".join(f"{rule}\n" for rule in state["main"]), end="")
        elif options.anchor in state["anchors"]:
            print("".join(f"{rule}\n" for rule in anchor["rules"]), end="")
        else:
            # Source read, and measured on macOS 27: it says so, and ends with 0 all the same.
            print("pfctl: DIOCGETRULES: Invalid argument", file=sys.stderr)
    elif options.show == "Tables":
        print("".join(f"{name[1:-1]}\n" for name in anchor["tables"]), end="")
    elif options.show == "Anchors":
        _show_anchors(options.anchor, state["anchors"])
    elif options.show == "Interfaces":
        _show_interfaces(state["skipped"], verbose="v" in options.flags)
    elif options.show == "References":
        _show_references(state["tokens"])
    else:
        _show_info(state["since"])


def _show_anchors(parent: str, anchors: dict[str, object]) -> None:
    """Children of an anchor, the main ruleset's without one."""
    depth = len(parent.split("/")) if parent else 0
    children = {"com.apple"} if not parent else set()
    for name in anchors:
        if not parent or name.startswith(f"{parent}/"):
            children.add("/".join(name.split("/")[: depth + 1]))
    print("".join(f"  {name}\n" for name in sorted(children)), end="")


def _show_interfaces(skipped: list[str], *, verbose: bool) -> None:
    """Source read (OpenBSD's pfctl): -v tells those with `set skip`, and counts packets."""
    for name in ("en0", "lo0"):
        print(name + " (skip)" * (verbose and name in skipped))
        if verbose:
            print("\tReferences:  [ States:  0                  Rules: 2                  ]")


def _show_references(tokens: dict[str, dict[str, int]]) -> None:
    if not tokens:
        print("No pf starter references held")
        return
    print("TOKENS:\nPID      Process Name                 TOKEN                    TIMESTAMP")
    for token, holder in tokens.items():
        age = int(time.time()) - holder["time"]
        print(f"{holder['pid']:<8} {'pfctl':<28} {token:<24} {_span(age)}")


def _show_info(since: int) -> None:
    status = f"Enabled for {_span(int(time.time()) - since)}" if since else "Disabled"
    print(f"{'Status: ' + status:<46}Debug: Urgent")
    print("\nState Table                          Total             Rate")
    print("  current entries                        0               ")


def _span(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    return f"{days} days {rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"


def _table(options: _Options) -> int:
    """`-t TABLE -T show|add|delete|replace`."""
    name = f"<{options.table}>"
    known = ("show", "add", "delete", "replace")
    if options.table_command not in known:
        raise ProgramError(1, _USAGE)
    with pf_state.changed() as state:
        anchor = state["anchors"].get(options.anchor, {"tables": {}})
        if name not in anchor["tables"]:
            raise ProgramError(255, "pfctl: Table does not exist.")
        before = anchor["tables"][name]
        if options.table_command == "show":
            print("".join(f"   {address}\n" for address in before), end="")
            return 0
        wanted = _addresses(options.words)
        if options.table_command == "add":
            after = before + [address for address in wanted if address not in before]
        elif options.table_command == "delete":
            after = [address for address in before if address not in wanted]
        else:
            after = wanted
        anchor["tables"][name] = after
    added, deleted = len(set(after) - set(before)), len(set(before) - set(after))
    print(f"{added} addresses added, {deleted} addresses deleted.", file=sys.stderr)
    return 0


def _addresses(words: list[str]) -> list[str]:
    try:
        return pf_rules.parse(f"table <t> {{ {' '.join(words)} }}").tables["<t>"]
    except pf_rules.PfSyntaxError as error:
        raise ProgramError(1, f"pfctl: {error.text}") from error
