# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs pfctl, and reads what it says.

Nothing of this was run on a Mac when it was written. What it relies on, and from where:

* ``pfctl -a com.apple/NAME -f FILE`` loads an anchor that macOS's own /etc/pf.conf refers to, by
  ``anchor "com.apple/*"`` (general knowledge; several projects do so).
* Two lines about ALTQ, and a note about ``-f``, are on standard error when all is well, too (an
  issue of wazuh; output published): only the status counts.
* ``-s rules`` of an anchor that is not there ends with 0 and shows nothing (measured on macOS 27).
* Rules are shown expanded and normalised, ports by name (pfctl's source; output published). So they
  are compared with what ``-vnf`` shows of our own text, never with the text.
* Left to itself, pfctl changes the order of rules, leaves some out, and puts six and more networks
  of a rule into a table with a name of its own making (pf.conf(5), "ruleset-optimization";
  OpenBSD's ``pfctl_optimize.c``): nothing that could be compared. ``-o none`` keeps it from that;
  macOS's pfctl has the option (its usage, published).
* A token is of one boot; ``pfctl -d``, whoever runs it, ends them all (measured; xnu's
  ``pf_ioctl.c``). ``-s References`` shows those that are held.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from typing import List, Optional, Set

from ansible_collections.tether.fleet.plugins.module_utils.daemon import commands
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

# By its path: what stands in its place on somebody's PATH could say anything.
PFCTL = "/sbin/pfctl"
ANCHOR = "com.apple/tether"
# Before the file, to check it or to load it.
OPTIONS = ("-o", "none", "-a", ANCHOR)

_TOKEN = re.compile(r"[0-9]{6,20}")
_SKIPPED = re.compile(r"(\S+) \(skip\)")
# Notes that are no reason.
_NOTES = re.compile(
    r"No ALTQ support|ALTQ related functions|Use of -f option|present in the main ruleset"
    r"|See /etc/pf\.conf"
)


@dataclass(frozen=True)
class State:
    """What the kernel's packet filter does now.

    :ivar enabled: whether it filters at all
    :ivar tokens: those that keep it enabled
    :ivar main: rules of the main ruleset, as pfctl shows them
    :ivar rules: those of our anchor
    :ivar skipped: interfaces on which nothing is filtered
    """

    enabled: bool = False
    tokens: Set[str] = field(default_factory=set)
    main: List[str] = field(default_factory=list)
    rules: List[str] = field(default_factory=list)
    skipped: List[str] = field(default_factory=list)


def look() -> State:
    """Ask for everything; changes nothing."""
    return State(
        enabled=is_enabled(_must("-s", "info")),
        tokens=_held(),
        main=lines(_must("-s", "rules")),
        rules=lines(_must("-a", ANCHOR, "-s", "rules")),
        skipped=skipped(_must("-v", "-s", "Interfaces")),
    )


def meaning(text: str) -> Optional[List[str]]:
    """The rules of a text as pfctl would show them once they are loaded; None for a wrong text."""
    done = _run([*OPTIONS, "-vnf", "-"], text)
    return lines(done.stdout) if done.returncode == 0 else None


def check(text: str) -> None:
    """Let pfctl try the text without loading it.

    :raises Refusal: with pfctl's own words
    """
    done = _run([*OPTIONS, "-nf", "-"], text)
    if done.returncode != 0:
        raise _broken(done)


def flush() -> None:
    """Remove our anchor's rules, and nobody else's."""
    # Not "all", of which only its source says that it leaves states of others alone.
    _must("-a", ANCHOR, "-F", "rules")


def release(token: str) -> None:
    """Give a token back; pf stays enabled while anybody else holds one."""
    _must("-X", token)


def _held() -> Set[str]:
    done = _run(["-s", "References"])
    # Whether that is a failure, and on which stream it says so, differs (read in two binaries).
    if "no pf starter references held" in (done.stdout + done.stderr).lower():
        return set()
    if done.returncode != 0:
        raise _broken(done)
    return tokens(done.stdout)


def is_enabled(text: str) -> bool:
    """``Status: Enabled for 0 days 00:00:12``, of ``-s info``."""
    return any(line.startswith("Status: Enabled") for line in text.splitlines())


def tokens(text: str) -> Set[str]:
    """The tokens in the table of ``-s References``: process, its name, token, time."""
    rows = [line.split() for line in text.splitlines()]
    return {
        word for row in rows if row and row[0].isdecimal() for word in row[1:] if is_token(word)
    }


def is_token(text: str) -> bool:
    """Whether a text may be a token: 64 bits in decimal (output published), longer than a pid."""
    return _TOKEN.fullmatch(text) is not None


def skipped(text: str) -> List[str]:
    """Interfaces with ``set skip``: ``lo0 (skip)`` in ``-v -s Interfaces`` (pfctl's source)."""
    found = (_SKIPPED.fullmatch(line.strip()) for line in text.splitlines())
    return [match.group(1) for match in found if match]


def lines(text: str) -> List[str]:
    """Rules, one a line, without what only sets them out."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def _must(*argv: str) -> str:
    done = _run(list(argv))
    if done.returncode != 0:
        raise _broken(done)
    return done.stdout


def _broken(done: subprocess.CompletedProcess[str]) -> Refusal:
    said = [line for line in done.stderr.splitlines() if line.strip() and not _NOTES.search(line)]
    return Refusal(
        "pfctl %s" % " ".join(done.args[1:]),
        "status %d: %s" % (done.returncode, " ".join(" ".join(said).split())[:500] or "no message"),
        "status 0",
        "Run it by hand with sudo, and mend what it says",
    )


def _run(argv: List[str], text: str = "") -> subprocess.CompletedProcess[str]:
    return commands.run([PFCTL, *argv], timeout=30, text=text)
