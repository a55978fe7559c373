# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /usr/bin/plutil: -lint, -p and -convert of XML, binary and JSON property lists."""

from __future__ import annotations

import json
import plistlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from ..program import ProgramError

_USAGE = """\
usage: plutil -lint file ... | -p file | -convert xml1|binary1|json [-o path] file
(emulated Mac: these alone; - is standard input or output)"""


def main(argv: Sequence[str]) -> int:
    """Do what the first word says."""
    words = list(argv)
    if len(words) >= 2 and words[0] == "-lint" and not any(w.startswith("-") for w in words[1:]):
        linted = [_lint(name) for name in words[1:]]
        return 0 if all(linted) else 1
    if len(words) == 2 and words[0] == "-p":
        print(_shown(_load(words[1]), 0))
        return 0
    if len(words) in (3, 5) and words[0] == "-convert":
        target = words[-1]
        if len(words) == 5 and words[2] == "-o":
            target = words[3]
        elif len(words) == 5:
            raise ProgramError(1, _USAGE)
        _write(target, _converted(_load(words[-1]), words[1], words[-1]))
        return 0
    raise ProgramError(1, _USAGE)


def _load(name: str) -> Any:
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        text = f"{name}: file does not exist or is not readable or is not a regular file"
        raise ProgramError(1, text) from error
    if data.lstrip()[:1] in (b"{", b"["):
        return json.loads(data)
    try:
        return plistlib.loads(data)
    except (plistlib.InvalidFileException, ExpatError, ValueError, KeyError) as error:
        raise ProgramError(1, f"{name}: Property List error: {error}") from error


def _lint(name: str) -> bool:
    try:
        _load(name)
    except (ProgramError, ValueError) as error:
        print(error)
        return False
    print(f"{name}: OK")
    return True


def _converted(content: Any, kind: str, name: str) -> bytes:
    if kind == "xml1":
        return plistlib.dumps(content, sort_keys=True)
    if kind == "binary1":
        return plistlib.dumps(content, fmt=plistlib.FMT_BINARY)
    if kind != "json":
        raise ProgramError(1, f"Unknown format specifier: {kind}")
    try:
        return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
    except TypeError as error:
        # JSON has neither data nor dates.
        raise ProgramError(1, f"{name}: invalid object in plist for destination format") from error


def _write(name: str, data: bytes) -> None:
    if name == "-":
        sys.stdout.buffer.write(data)
    else:
        Path(name).write_bytes(data)


def _shown(value: Any, depth: int) -> str:
    inner, outer = "  " * (depth + 1), "  " * depth
    if isinstance(value, dict):
        rows = [f'{inner}"{k}" => {_shown(v, depth + 1)}\n' for k, v in sorted(value.items())]
        return f"{{\n{''.join(rows)}{outer}}}"
    if isinstance(value, list):
        rows = [f"{inner}{i} => {_shown(v, depth + 1)}\n" for i, v in enumerate(value)]
        return f"[\n{''.join(rows)}{outer}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else f'"{value}"'
