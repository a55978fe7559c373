# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /usr/bin/dscl: records of the local node below /Users and /Groups."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .. import directory
from ..program import NotEmulatedError, ProgramError, is_root

_PATH = re.compile(r"/(Users|Groups)(?:/([A-Za-z0-9_.-]+))?")
_NODES = (".", "/Local/Default", "localhost")


def main(argv: Sequence[str]) -> int:
    """dscl NODE VERB PATH [...]."""
    words = list(argv)
    if len(words) < 3 or words[0] not in _NODES:
        raise NotEmulatedError(f"dscl {' '.join(argv)}")
    verb, path, rest = words[1].lstrip("-"), words[2], words[3:]
    match = _PATH.fullmatch(path)
    if not match:
        raise NotEmulatedError(f"dscl: path {path}")
    kind, name = match[1], match[2] or ""
    if verb == "list" and not name and len(rest) <= 1:
        _list(kind, rest)
    elif verb == "search" and not name and len(rest) == 2:
        _search(kind, rest[0], rest[1])
    elif verb == "read" and name:
        _read(_record(kind, name), rest)
    elif verb in ("create", "append", "delete") and name:
        _change(verb, kind, name, rest)
    else:
        raise NotEmulatedError(f"dscl {' '.join(argv)}")
    return 0


def _record(kind: str, name: str) -> directory.Record:
    try:
        return directory.records(kind)[name]
    except KeyError:
        text = "<dscl_cmd> DS Error: -14136 (eDSRecordNotFound)"
        raise ProgramError(56, text) from None


def _key(text: str) -> str:
    return text.removeprefix("dsAttrTypeStandard:")


def _list(kind: str, keys: list[str]) -> None:
    for name, record in sorted(directory.records(kind).items()):
        if not keys:
            print(name)
        elif _key(keys[0]) in record:
            print(f"{name:<24} {' '.join(record[_key(keys[0])])}")


def _search(kind: str, key: str, value: str) -> None:
    for name, record in sorted(directory.records(kind).items()):
        if value in record.get(_key(key), []):
            print(f"{name}\t\t{key} = (\n    {value}\n)")


def _read(record: directory.Record, keys: list[str]) -> None:
    for key in map(_key, keys or sorted(record)):
        values = record.get(key)
        if values is None:
            print(f"No such key: {key}")
        elif any(" " in value for value in values):
            print("".join([f"{key}:\n", *(f" {value}\n" for value in values)]), end="")
        else:
            print(f"{key}: {' '.join(values)}")


def _change(verb: str, kind: str, name: str, rest: list[str]) -> None:
    if not is_root():
        text = "<main> attribute status: eDSPermissionError"
        raise ProgramError(40, f"{text}\n<dscl_cmd> DS Error: -14120 (eDSPermissionError)")
    if verb == "create":
        record = directory.records(kind).get(name, {})
        if rest:
            record[_key(rest[0])] = rest[1:]
        directory.save(kind, name, record)
        return
    record = _record(kind, name)
    if verb == "append" and len(rest) >= 2:
        values = record.setdefault(_key(rest[0]), [])
        values += [value for value in rest[1:] if value not in values]
    elif verb == "delete" and not rest:
        directory.save(kind, name, None)
        return
    elif verb == "delete" and len(rest) == 1:
        record.pop(_key(rest[0]), None)
    elif verb == "delete":
        values = record.get(_key(rest[0]), [])
        record[_key(rest[0])] = [value for value in values if value not in rest[1:]]
    else:
        raise NotEmulatedError(f"dscl {verb} {' '.join(rest)}")
    directory.save(kind, name, record)
