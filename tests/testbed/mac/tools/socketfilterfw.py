# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /usr/libexec/ApplicationFirewall/socketfilterfw.

Wordings changed between versions of macOS: what is said here as of 15 follows output that people
published of 15 to 27 (measured there), older texts are said for older versions.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from .. import app_firewall, machine
from ..program import ProgramError, is_root

_USAGE = "usage: socketfilterfw (emulated Mac): "
_PATHS = ("--add", "--remove", "--blockapp", "--unblockapp", "--getappblocked")
_SWITCHES = ("--setglobalstate", "--setblockall", "--setstealthmode")
_QUESTIONS = ("--getglobalstate", "--getblockall", "--getstealthmode", "--listapps")
# Fact of macOS with device management; where it is printed and the status are inferred.
_MANAGED = "Firewall settings cannot be modified from command line on managed Mac computers."


def main(argv: Sequence[str]) -> int:
    """Answer a question or change one thing."""
    # An issue says: --setloggingmode and its like are gone since 15.4; they fall under usage here.
    if len(argv) == 1 and argv[0] in _QUESTIONS:
        print(_answer(argv[0]))
    elif len(argv) == 2 and argv[0] == "--getappblocked":
        print(_app_blocked(argv[1]))
    elif len(argv) == 2 and argv[0] in (*_PATHS, *_SWITCHES):
        if argv[0] in _SWITCHES and argv[1] not in ("on", "off"):
            raise _usage()
        print(_MANAGED if machine.get("managed") else _change(argv[0], argv[1]))
    else:
        raise _usage()
    return 0


def _usage() -> ProgramError:
    return ProgramError(255, _USAGE + " | ".join((*_QUESTIONS, *_SWITCHES, *_PATHS)))


def _answer(question: str) -> str:
    state = app_firewall.read()
    if question == "--getglobalstate":
        texts = {
            app_firewall.OFF: "Firewall is disabled. (State = 0)",
            app_firewall.ON: "Firewall is enabled. (State = 1)",
            app_firewall.BLOCK_ALL: "Firewall is blocking all non-essential incoming connections."
            " (State = 2)",
        }
        # An issue says: newer versions may say more than this one line.
        more = "\nFirewall stealth mode is on" if state["stealth"] and machine.major() >= 26 else ""
        return f"{texts[state['state']]}{more}"
    if question == "--getblockall":
        on = state["state"] == app_firewall.BLOCK_ALL
        if machine.major() >= 15:
            return f"Firewall has block all state set to {'enabled' if on else 'disabled'}."
        return f"Block all {'ENABLED' if on else 'DISABLED'}! "
    if question == "--getstealthmode":
        return f"Firewall stealth mode is {'on' if state['stealth'] else 'off'}"
    return _listing(state["apps"])


def _listing(apps: dict[str, dict[str, object]]) -> str:
    old = machine.major() < 15
    lines = [f"{'ALF: total' if old else 'Total'} number of apps = {len(apps)} "]
    lines += [""] if old else []
    for number, (path, app) in enumerate(sorted(apps.items()), 1):
        verdict = f"{'Allow' if app['allow'] else 'Block'} incoming connections"
        if old:
            lines += [f"{number} :  {path} ", f" \t ( {verdict} ) ", ""]
        else:
            lines += [f"{number} : {path} ", f"             ({verdict}) "]
    return "\n".join(lines)


def _app_blocked(path: str) -> str:
    """Measured on macOS 27: "permitted" also for a program that is not listed, which is blocked."""
    app = app_firewall.read()["apps"].get(path)
    if app is None and machine.major() < 15:
        return "The application is not part of the firewall "
    verdict = "blocked" if app is not None and not app["allow"] else "permitted"
    return f"Incoming connection to {path} is {verdict}."


def _change(verb: str, value: str) -> str:
    """Change the entry of one program.

    An issue says: without root, --add claims success and does nothing; the others here do the same.
    """
    if verb in _SWITCHES:
        return _switch(verb, value == "on")
    if verb == "--add" and not os.path.exists(value):
        return "The file path you specified does not exist"
    path = os.path.realpath(value)
    known = app_firewall.read()["apps"].get(path)
    if verb == "--add" and known:
        # Inferred: the entry keeps what it knows of the program; remove it first.
        return "The application is already a part of the firewall "
    if verb == "--add":
        _set(path, {"allow": True, "digest": app_firewall.digest(path)})
        return f"Application at path ( {path} ) added to firewall "
    if not known:
        return "The application is not part of the firewall "
    if verb == "--remove":
        _set(path, None)
        return f"Application at path ( {path} ) removed from firewall "
    allow = verb == "--unblockapp"
    _set(path, {**known, "allow": allow})
    return f"Incoming connection to the application is {'permitted' if allow else 'blocked'} "


def _set(path: str, entry: dict[str, object] | None) -> None:
    if not is_root():
        return
    with app_firewall.changed() as state:
        state["apps"].pop(path, None)
        if entry:
            state["apps"][path] = entry


def _switch(verb: str, on: bool) -> str:
    if not is_root():
        raise ProgramError(1, "Must be root to change settings.")
    with app_firewall.changed() as state:
        if verb == "--setglobalstate":
            state["state"] = app_firewall.ON if on else app_firewall.OFF
            return f"Firewall is {'enabled' if on else 'disabled'}. (State = {state['state']})"
        if verb == "--setblockall":
            state["state"] = app_firewall.BLOCK_ALL if on else app_firewall.ON
            return (
                f"Firewall is set to block all {'non-essential' if on else ''} connections".strip()
            )
        state["stealth"] = on
        return f"Stealth mode {'enabled' if on else 'disabled'}"
