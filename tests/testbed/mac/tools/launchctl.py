# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /bin/launchctl, as of macOS 15.

Exit statuses are the numbers that launchd answers; xpc_errors.py lists them. Verbs and options that
the emulation lacks are usage errors (64), as unknown ones are on a Mac.
"""

from __future__ import annotations

import os
import plistlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import client
from ..program import EX_USAGE, ProgramError
from ..xpc_errors import INPUT_OUTPUT, NO_DOMAIN, NO_SERVICE, NOT_PERMITTED, TEXTS

_USAGES = {
    "bootstrap": "<domain-target> <service-path>",
    "bootout": "<domain-target> <service-path> | <service-target>",
    "enable": "<service-target>",
    "disable": "<service-target>",
    "kickstart": "[-k] [-p] <service-target>",
    "kill": "<signal-name|signal-number> <service-target>",
    "print": "<domain-target> | <service-target>",
    "print-disabled": "<domain-target>",
    "blame": "<service-target>",
    "list": "[label]",
}
# What a failure is called, where launchctl has a phrase of its own for it.
_PHRASES = {
    "bootstrap": "Bootstrap failed",
    "bootout": "Boot-out failed",
    "kickstart": "Could not kickstart service",
    "enable": "Could not enable service",
    "disable": "Could not disable service",
    "kill": "Could not kill service",
}
_RICHER = "Try re-running the command as root for richer errors."


def main(argv: Sequence[str]) -> int:
    """Run one verb."""
    if not argv or argv[0] not in _USAGES:
        name = argv[0] if argv else ""
        raise ProgramError(EX_USAGE, f"Unrecognized subcommand: {name}\n{_all_usages()}")
    verb, *words = argv
    request = _request(verb, words)
    answer = client.ask(request)
    if answer["code"]:
        return _fail(verb, request, answer)
    if "pid" in answer:
        # Source read: a bare number unless a terminal reads it.
        phrase = "service spawned with pid: " if sys.stdout.isatty() else ""
        print(f"{phrase}{answer['pid']}")
    sys.stdout.write(answer.get("out", ""))
    return 0


def _request(verb: str, words: list[str]) -> dict[str, Any]:
    request: dict[str, Any] = {"verb": verb}
    if verb == "kickstart":
        letters = "".join(word[1:] for word in words if word.startswith("-"))
        words = [word for word in words if not word.startswith("-")]
        if set(letters) - {"k", "p"}:
            raise _usage(verb)
        request |= {"kill": "k" in letters, "wait": "p" in letters}
    if verb == "kill" and words:
        request["signal"] = _signal(words.pop(0))
    if verb == "list":
        return {**request, **_own_domain(), **_listed(words)}
    wanted = 2 if verb == "bootstrap" else 1
    if verb == "bootout" and len(words) == 2 and not words[0].startswith("-"):
        return {**request, **_target(verb, words[0], service=False), "label": _label_in(words[1])}
    # macOS 15 refuses `bootout --wait` so (an issue says: 64, "Unrecognized target specifier").
    if any(word.startswith("-") for word in words):
        raise _unrecognized(verb)
    if len(words) != wanted:
        raise _usage(verb)
    if verb == "bootstrap":
        request["path"] = os.path.abspath(words[1])
    service = {"bootstrap": False, "print-disabled": False, "print": None}.get(verb, True)
    return {**request, **_target(verb, words[0], service=service)}


def _target(verb: str, text: str, *, service: bool | None) -> dict[str, Any]:
    """`system[/LABEL]`, `user/UID[/LABEL]` or `gui/UID[/LABEL]`.

    :param service: whether a label must be there; None where it may
    """
    kind, *rest = text.split("/")
    uid = 0
    if kind in ("user", "gui"):
        if not rest or not rest[0].isdigit():
            raise _unrecognized(verb)
        uid = int(rest.pop(0))
    elif kind != "system":
        raise _unrecognized(verb)
    label = rest[0] if rest else ""
    if len(rest) > 1 or (service is not None and service != bool(label)):
        raise _unrecognized(verb)
    return {"kind": kind, "uid": uid, "label": label}


def _own_domain() -> dict[str, Any]:
    """`list` knows no domains: root's is the system's, others get their own."""
    uid = os.geteuid()
    return {"kind": "user" if uid else "system", "uid": uid}


def _listed(words: list[str]) -> dict[str, Any]:
    if len(words) > 1 or any(word.startswith("-") for word in words):
        raise _usage("list")
    return {"label": words[0] if words else ""}


def _label_in(path: str) -> str:
    """The second form of bootout names a property list instead of a label."""
    try:
        label = plistlib.loads(Path(path).read_bytes())["Label"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProgramError(INPUT_OUTPUT, f"Boot-out failed: 5: {TEXTS[INPUT_OUTPUT]}") from error
    return str(label)


def _signal(text: str) -> int:
    if text.isdigit():
        return int(text)
    name = text if text.startswith("SIG") else f"SIG{text}"
    try:
        return int(signal.Signals[name])
    except KeyError:
        raise _usage("kill") from None


def _fail(verb: str, request: dict[str, Any], answer: dict[str, Any]) -> int:
    code = answer["code"]
    if code == NO_SERVICE:
        where = "port" if verb == "list" else answer["spoken"]
        text = f'Could not find service "{request["label"]}" in domain for {where}'
        text = f"Bad request.\n{text}" if verb == "print" else text
    elif code == NO_DOMAIN and verb not in _PHRASES:
        text = f"Bad request.\nCould not find domain for {answer['spoken']}"
    else:
        text = f"{_PHRASES.get(verb, 'Bad request')}: {code}: {TEXTS[code]}"
        if verb == "bootstrap" and code in (INPUT_OUTPUT, NOT_PERMITTED) and os.geteuid() != 0:
            text += f"\n{_RICHER}"
    if answer.get("hint"):
        text += f"\nemulated Mac: {answer['hint']}"
    print(text, file=sys.stderr)
    return int(code)


def _unrecognized(verb: str) -> ProgramError:
    return ProgramError(EX_USAGE, f"Unrecognized target specifier.\n{_one_usage(verb)}")


def _usage(verb: str) -> ProgramError:
    return ProgramError(EX_USAGE, _one_usage(verb))


def _one_usage(verb: str) -> str:
    return f"Usage: launchctl {verb} {_USAGES[verb]}"


def _all_usages() -> str:
    lines = [f"\t{verb}\t{usage}" for verb, usage in _USAGES.items()]
    return "\n".join(["Usage: launchctl <subcommand> ... (emulated Mac: these alone)", *lines])
