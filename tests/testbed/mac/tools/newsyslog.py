# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /usr/sbin/newsyslog: checks its configuration (-nv); it rotates nothing."""

from __future__ import annotations

import grp
import pwd
import re
from collections.abc import Sequence
from pathlib import Path

from .. import places
from ..program import NotEmulatedError, ProgramError

# newsyslog.conf(5) of macOS.
_FLAGS = "BCDFGIJNRTUWXZ-"
_WHEN = re.compile(r"\*|[0-9]+|@[0-9T]+|\$[A-Z][A-Z0-9]*|[0-9]+@[0-9T]+|[0-9]+\$[A-Z][A-Z0-9]*")


def main(argv: Sequence[str]) -> int:
    """-nv, with -f FILE for another configuration: what would be done."""
    words = list(argv)
    file = words.pop() if len(words) > 1 and words[-2] == "-f" else ""
    words = words[:-1] if file else words
    if words not in (["-nv"], ["-vn"], ["-n", "-v"]):
        raise NotEmulatedError(f"newsyslog {' '.join(argv)}")
    for path in [Path(file)] if file else _files():
        for number, line in enumerate(_text(path).splitlines(), 1):
            fields = line.partition("#")[0].split()
            if fields:
                print(_checked(f"{path}:{number}", fields))
    return 0


def _files() -> list[Path]:
    folder = places.place("/etc/newsyslog.d")
    return [places.place("/etc/newsyslog.conf"), *sorted(folder.glob("*.conf"))]


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise ProgramError(1, f"newsyslog: can't open file `{path}': {error.strerror}") from error


def _checked(where: str, fields: list[str]) -> str:
    """logfilename [owner:group] mode count size when [flags] [pid_file] [signal]"""
    log, *rest = fields
    if rest and ":" in rest[0]:
        _check_owner(where, rest.pop(0))
    if len(rest) < 4:
        raise _error(where, "too few fields")
    mode, count, size, when, *more = rest
    if not log.startswith("/"):
        raise _error(where, f"{log} is no absolute path")
    if not re.fullmatch(r"[0-7]{3,4}", mode):
        raise _error(where, f"mode {mode}")
    if not count.isdigit() or not re.fullmatch(r"[0-9]+|\*", size) or not _WHEN.fullmatch(when):
        raise _error(where, f"count, size or when: {count} {size} {when}")
    flags = more.pop(0) if more and not more[0].startswith("/") else ""
    if set(flags.upper()) - set(_FLAGS):
        raise _error(where, f"illegal flag in {flags}")
    if more and not more[0].startswith("/"):
        raise _error(where, f"pid file {more[0]}")
    if len(more) > 2 or (len(more) == 2 and not more[1].isdigit()):
        raise _error(where, "too much at the end")
    path = places.place(log)
    kept = f"{log} <{count}{flags.replace('-', '')}>: "
    if not path.exists():
        return f"{kept}does not exist, skipped."
    kilobytes = path.stat().st_size // 1024
    verdict = size != "*" and kilobytes >= int(size)
    return f"{kept}size (Kb): {kilobytes} [{size}] --> {'trimming' if verdict else 'skipping'}"


def _check_owner(where: str, text: str) -> None:
    user, _, group = text.partition(":")
    try:
        if user and not user.isdigit():
            pwd.getpwnam(user)
        if group and not group.isdigit():
            grp.getgrnam(group)
    except KeyError:
        raise _error(where, f"unknown user or group in {text}") from None


def _error(where: str, text: str) -> ProgramError:
    return ProgramError(1, f"newsyslog: error in config file; {where}: {text}")
