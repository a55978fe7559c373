# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The argument guard: what a model may ask of its engine.

A typed table (in the engine's catalogue file) lists what is accepted for one version of the
engine; everything else is refused by name. Arguments are read as the engine reads them, so that
what was checked is what the engine does. Pure functions, no I/O.

How llama.cpp reads (``common_params_parse_ex`` in its common/arg.cpp): a flag is an exact name,
with ``_`` read as ``-`` in names that begin with ``--``; a value is always the next argument,
whatever it begins with; there is no ``--flag=value`` and no abbreviation; of a flag given twice the
last counts. tests/unit/plugins/plugin_utils/test_guard_llama_server.py holds the program to it.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Optional, Tuple

_INT = re.compile(r"[+-]?[0-9]{1,18}")
_FLOAT = re.compile(r"[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})")
# Longer values are a mistake, and a unit file has limits of its own.
MAX_VALUE = 4096


@dataclass(frozen=True)
class Problem:
    """One mistake: where it is (``args[2]``, ``environment.X``) and what is wrong."""

    key: str
    message: str


@dataclass
class Flag:
    """A row of the table.

    :ivar names: all spellings, the usual one first
    :ivar type: switch, int, float, string, choice or json
    :ivar collection: why the flag belongs to the collection alone, or None
    :ivar refused: why the flag is never accepted, or None
    :ivar also: literal values taken beside the numbers of an int or float
    :ivar pattern: what a string must match as a whole
    :ivar separator: the value is a list of such values, split at this
    """

    names: List[str]
    type: str = "switch"
    collection: Optional[str] = None
    refused: Optional[str] = None
    minimum: Optional[float] = None
    maximum: Optional[float] = None
    choices: List[str] = field(default_factory=list)
    also: List[str] = field(default_factory=list)
    pattern: Optional[str] = None
    separator: Optional[str] = None

    @property
    def accepted(self) -> bool:
        return self.collection is None and self.refused is None


@dataclass
class Table:
    """An engine's flags and variables, for one version of it."""

    engine: str
    version: str
    flags: List[Flag]
    environment: List[Flag] = field(default_factory=list)
    environment_refused: List[Tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.by_name: Dict[str, Flag] = {n: flag for flag in self.flags for n in flag.names}
        self.variables: Dict[str, Flag] = {f.names[0]: f for f in self.environment}

    def title(self) -> str:
        return "%s %s" % (self.engine, self.version)


def check_arguments(table: Table, args: List[str]) -> List[Problem]:
    """All mistakes in a model's ``args``; an empty list means that the engine may have them.

    :param args: strings, in order (other types are the schema's business)
    """
    problems: List[Problem] = []
    seen: Dict[str, str] = {}
    for index, given, flag, value in _read(table, args):
        key = "args[%d]" % index
        if flag is None:
            problems.append(Problem(key, _unknown(table, given)))
            continue
        if not flag.accepted:
            problems.append(Problem(key, _not_yours(table, given, flag)))
            continue
        if flag.type != "switch" and value is None:
            problems.append(Problem(key, "%s needs a value after it" % given))
            continue
        # A switch and its negation are one setting: the engine silently takes the last.
        if flag.names[0] in seen:
            problems.append(
                Problem(
                    key,
                    "%s was given already (as %s): %s would silently use the last one; keep one"
                    % (given, seen[flag.names[0]], table.engine),
                )
            )
        seen[flag.names[0]] = given
        if value is not None:
            wrong = check_value(flag, value)
            if wrong:
                problems.append(Problem(key, "%s takes %s, not %s" % (given, wrong, _show(value))))
    return problems


def argument(table: Table, args: List[str], name: str) -> Optional[str]:
    """The value that a flag has in sound ``args``, whichever of its names it has there, or None."""
    flag = table.by_name[name]
    for _index, _given, found, value in _read(table, args):
        if found is flag:
            return value
    return None


def _read(
    table: Table, args: List[str]
) -> Iterator[Tuple[int, str, Optional[Flag], Optional[str]]]:
    """Each flag as the engine reads it: where it is, as it was given, its row and its value."""
    index = 0
    while index < len(args):
        start, given, value = index, args[index], None
        index += 1
        name = "--" + given[2:].replace("_", "-") if given.startswith("--") else given
        flag = table.by_name.get(name)
        if flag is None:
            # What follows a flag nobody knows may be its value: do not report it as a flag too.
            if index < len(args) and not args[index].startswith("-"):
                index += 1
        elif flag.type != "switch" and index < len(args):
            value, index = args[index], index + 1
        yield start, given, flag, value


def check_environment(table: Table, environment: Dict[str, str]) -> List[Problem]:
    """All mistakes in a model's ``environment`` (names to strings)."""
    problems = []
    for name in sorted(environment):
        key, flag = "environment.%s" % name, table.variables.get(name)
        if flag is None:
            problems.append(Problem(key, _unknown_variable(table, name)))
            continue
        wrong = check_value(flag, environment[name])
        if wrong:
            problems.append(
                Problem(key, "%s takes %s, not %s" % (name, wrong, _show(environment[name])))
            )
    return problems


def check_value(flag: Flag, value: str) -> Optional[str]:
    """None when the value is good, else what the flag takes, in words.

    Stricter than the engine where the engine is careless: C's ``stoi`` takes ``5x`` as 5.
    """
    expected = describe(flag)
    if len(value) > MAX_VALUE or not value.isprintable():
        return "%s (at most %d printable characters)" % (expected, MAX_VALUE)
    items = value.split(flag.separator) if flag.separator else [value]
    return None if all(_fits(flag, item) for item in items) else expected


def _fits(flag: Flag, value: str) -> bool:
    if value in flag.also:
        return True
    if flag.type in ("int", "float"):
        pattern = _INT if flag.type == "int" else _FLOAT
        if not pattern.fullmatch(value):
            return False
        number: float = int(value) if flag.type == "int" else float(value)
        low = flag.minimum is not None and number < flag.minimum
        high = flag.maximum is not None and number > flag.maximum
        return not (low or high)
    if flag.type == "choice":
        return value in flag.choices
    if flag.type == "json":
        return _json_object(value)
    return re.fullmatch(flag.pattern or ".*", value) is not None


def describe(flag: Flag) -> str:
    """What a flag takes, in words, for messages and documentation."""
    text = _describe(flag)
    if flag.separator:
        return "a list of values split at %s, each %s" % (flag.separator, text)
    return text


def _describe(flag: Flag) -> str:
    if flag.type == "switch":
        return "no value"
    if flag.type in ("int", "float"):
        text = "a whole number" if flag.type == "int" else "a number"
        if flag.minimum is not None and flag.maximum is not None:
            text += " from %s to %s" % (_number(flag.minimum), _number(flag.maximum))
        elif flag.minimum is not None:
            text += " of at least %s" % _number(flag.minimum)
        if flag.also:
            text += " or one of %s" % ", ".join(flag.also)
        return text
    if flag.type == "choice":
        return "one of %s" % ", ".join(flag.choices)
    if flag.type == "json":
        return "a JSON object"
    return "text that matches %s" % flag.pattern if flag.pattern else "text"


def nearest(name: str, known: List[str]) -> str:
    """`` (did you mean X?)``, or nothing when no known name is near."""
    found = difflib.get_close_matches(name, known, 1, 0.6)
    return " (did you mean %s?)" % found[0] if found else ""


def _unknown(table: Table, given: str) -> str:
    known = [n for flag in table.flags if flag.accepted for n in flag.names]
    if not given.startswith("-"):
        return "%s is neither a flag nor a flag's value" % _show(given)
    head, sep, tail = given.partition("=")
    if sep and head in table.by_name:
        return "%s: %s reads a value from the next argument; write %s and %s as two" % (
            _show(given),
            table.engine,
            _show(head),
            _show(tail),
        )
    return "%s is not in the table of %s%s" % (
        _show(given),
        table.title(),
        nearest(given.replace("_", "-"), known),
    )


def _not_yours(table: Table, given: str, flag: Flag) -> str:
    if flag.collection is not None:
        return "%s is set by the collection: %s" % (given, flag.collection)
    return "%s is refused (table of %s): %s" % (given, table.title(), flag.refused)


def _unknown_variable(table: Table, name: str) -> str:
    for pattern, reason in table.environment_refused:
        if re.fullmatch(pattern, name):
            return "%s is refused: %s" % (name, reason)
    known = sorted(table.variables)
    return "%s is not in the table of %s%s; accepted: %s" % (
        name,
        table.title(),
        nearest(name, known),
        ", ".join(known) or "none",
    )


def _json_object(value: str) -> bool:
    try:
        return isinstance(json.loads(value), dict)
    except ValueError:
        return False


def _number(value: float) -> str:
    return "%d" % value if value == int(value) else "%g" % value


def _show(value: str) -> str:
    text = value if len(value) <= 80 else value[:77] + "..."
    return json.dumps(text)
