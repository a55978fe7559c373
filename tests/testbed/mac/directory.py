# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The emulated local directory: accounts and groups, which the system knows as soon as they are
whole.

/etc/passwd and /etc/group hold them, so that the host's own programs find them; what has no column
there is kept beside. A new user needs UniqueID and PrimaryGroupID, a group PrimaryGroupID, before
anybody but dscl sees it.
"""

from __future__ import annotations

import os

from . import places, store

Record = dict[str, list[str]]

USERS, GROUPS = "Users", "Groups"
_DOCUMENT = "directory"
_FILES = {USERS: "/etc/passwd", GROUPS: "/etc/group"}
# Columns after the name and the password; * instead of a password needs no /etc/shadow.
_COLUMNS = {
    USERS: ("UniqueID", "PrimaryGroupID", "RealName", "NFSHomeDirectory", "UserShell"),
    GROUPS: ("PrimaryGroupID", "GroupMembership"),
}
_NEEDED = {USERS: ("UniqueID", "PrimaryGroupID"), GROUPS: ("PrimaryGroupID",)}
_DEFAULTS = {"NFSHomeDirectory": ["/var/empty"], "UserShell": ["/usr/bin/false"]}


def records(kind: str) -> dict[str, Record]:
    """All records of a kind, by name."""
    found: dict[str, Record] = {}
    for line in _lines(kind):
        name, _, *values = line.split(":")
        columns = dict(zip(_COLUMNS[kind], values))  # noqa: B905 (strict came after Python 3.9)
        found[name] = {key: _split(key, text) for key, text in columns.items() if text}
    for name, extra in store.read(store.kept(_DOCUMENT)).get(kind, {}).items():
        found[name] = {**found.get(name, {}), **extra}
    return found


def save(kind: str, name: str, record: Record | None) -> None:
    """Write a record, or delete it."""
    with store.changed(store.kept(_DOCUMENT)) as content:
        kept = content.setdefault(kind, {})
        lines = [line for line in _lines(kind) if line.split(":")[0] != name]
        kept.pop(name, None)
        if record is not None:
            whole = all(record.get(key) for key in _NEEDED[kind])
            columns = _COLUMNS[kind] if whole else ()
            kept[name] = {key: values for key, values in record.items() if key not in columns}
            if whole:
                lines.append(_line(kind, name, record))
        _write(kind, lines)


def _line(kind: str, name: str, record: Record) -> str:
    filled = {**_DEFAULTS, **record}
    texts = []
    for key in _COLUMNS[kind]:
        joint = "," if key == "GroupMembership" else " "
        texts.append(joint.join(filled.get(key, [])))
    return ":".join([name, "*", *texts])


def _split(key: str, text: str) -> list[str]:
    return text.split(",") if key == "GroupMembership" else [text]


def _lines(kind: str) -> list[str]:
    path = places.place(_FILES[kind])
    return path.read_text().splitlines() if path.exists() else []


def _write(kind: str, lines: list[str]) -> None:
    path = places.place(_FILES[kind])
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text("".join(f"{line}\n" for line in lines))
    temporary.chmod(0o644)
    os.replace(temporary, path)
