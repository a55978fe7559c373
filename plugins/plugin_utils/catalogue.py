# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The engine catalogue: one data file an engine, checked by one schema.

A new engine is one file in ``engines/``, or in the user's ``fleet_engines_dir``
(docs/add-an-engine.md): nothing else in the collection names an engine.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Optional, Tuple

import yaml

from ansible_collections.tether.fleet.plugins.module_utils import marks
from ansible_collections.tether.fleet.plugins.plugin_utils import guard, names
from ansible_collections.tether.fleet.plugins.plugin_utils.guard import Flag, Table
from ansible_collections.tether.fleet.plugins.plugin_utils.schema import load_yaml, validator

ENGINES_DIR = os.path.join(os.path.dirname(__file__), "engines")

_SLOT = re.compile(r"\{([a-z_]*)\}")
_COMMON_SLOTS = {"model", "namespace", "file"}
_LISTENER_SLOT = {"unix": "socket", "tcp": "port"}


class CatalogueError(Exception):
    """A catalogue file that cannot be used; the text names the file and every mistake."""


@dataclass(frozen=True)
class Engine:
    """One engine of the catalogue.

    :ivar data: the file's content, see ``engine_schema.yml``
    :ivar table: the argument guard's table
    """

    name: str
    data: Dict[str, Any]
    table: Table

    @property
    def needs_port(self) -> bool:
        return bool(self.data["listener"] == "tcp")

    @property
    def binary(self) -> str:
        """The absolute path of the program on a host."""
        current = names.artifact_current(self.data["artifact"])
        return "%s/%s" % (current, self.data["binary"])

    def parallel(self, args: List[str]) -> Optional[int]:
        """How many requests the engine works on at a time with these (sound) arguments.

        None where the catalogue does not know.
        """
        known = self.data.get("parallel")
        if known is None:
            return None
        given = guard.argument(self.table, args, known["flag"]) if "flag" in known else None
        number = int(given) if given is not None else 0
        # Engines read 0 and less as their own choice.
        return number if number > 0 else int(known["default"])

    def argv(self, slots: Dict[str, str], args: List[str]) -> List[str]:
        """The whole command line.

        The model's own (guarded) arguments come first: should one slip through the guard, the
        collection's still count, since engines take the last of two.
        """
        own = [_fill(text, slots) for text in self.data["argv"]]
        return [self.binary, *list(args), *own]

    def environment(self, slots: Dict[str, str], given: Dict[str, str]) -> Dict[str, str]:
        """The engine's environment: the model's (guarded) variables, then the collection's."""
        result = dict(given)
        for key, text in self.data.get("environment", {}).get("set", {}).items():
            result[key] = _fill(text, slots)
        return {key: result[key] for key in sorted(result)}


def load(directory: str = ENGINES_DIR) -> Dict[str, Engine]:
    """Read and check every ``<name>.yml`` in a directory.

    :raises CatalogueError: with every mistake of every file
    """
    engines, problems = _read(directory)
    if problems:
        raise CatalogueError("The engine catalogue has mistakes:\n  " + "\n  ".join(problems))
    return engines


def load_own(directory: str, shipped: Iterable[str]) -> Tuple[Dict[str, Engine], List[str]]:
    """A user's own files, of which none may stand for an engine of the collection's.

    :param shipped: names of the collection's engines
    :return: the engines of sound files, and all mistakes of the others
    """
    try:
        engines, problems = _read(directory)
    except OSError as error:
        text = "%s: %s; expected a folder of files <engine>.yml" % (directory, error.strerror)
        return {}, [text]
    if not engines and not problems:
        problems.append("%s: no file <engine>.yml in it; expected some" % directory)
    problems += [
        "%s: the collection has an engine %s already; name yours otherwise"
        % (os.path.join(directory, name + ".yml"), name)
        for name in sorted(set(engines).intersection(shipped))
    ]
    return engines, problems


def _read(directory: str) -> Tuple[Dict[str, Engine], List[str]]:
    engines: Dict[str, Engine] = {}
    problems: List[str] = []
    for entry in sorted(os.listdir(directory)):
        if not entry.endswith(".yml"):
            continue
        path = os.path.join(directory, entry)
        try:
            data = load_yaml(path)
        except (OSError, ValueError, yaml.YAMLError) as error:
            problems.append("%s: %s" % (path, " ".join(str(error).split())))
            continue
        mistakes = check(entry[:-4], data)
        problems += ["%s: %s" % (path, mistake) for mistake in mistakes]
        if not mistakes:
            engines[entry[:-4]] = Engine(entry[:-4], data, _table(data))
    return engines, problems


def check(name: str, data: Any) -> List[str]:
    """All mistakes in a catalogue file's content."""
    mistakes = [
        "%s: %s" % (".".join(str(p) for p in error.absolute_path) or "(file)", error.message)
        for error in validator("engine_schema.yml").iter_errors(data)
    ]
    if mistakes:
        return mistakes
    if data["engine"] != name:
        mistakes.append("engine: %r, but the file is named %s.yml" % (data["engine"], name))
    mistakes += _check_slots(data)
    for path in [entry["path"] for entry in data["paths"]]:
        if path == data.get("metrics") or path.lower().startswith(marks.RESERVED_PREFIX):
            mistakes.append("paths: %s is for relays alone, who ask for metrics there" % path)
    seen: Dict[str, int] = {}
    for index, row in enumerate(data["arguments"]["flags"]):
        where = "arguments.flags[%d]" % index
        for flag in row["names"]:
            if flag in seen:
                mistakes.append("%s: %s is in row %d already" % (where, flag, seen[flag]))
            seen[flag] = index
        mistakes += ["%s: %s" % (where, text) for text in _check_row(row)]
    for index, row in enumerate(data.get("environment", {}).get("accepted", [])):
        for text in _check_row(row):
            mistakes.append("environment.accepted[%d]: %s" % (index, text))
    mistakes += _check_parallel(data, seen)
    for flag in data["argv"]:
        row = data["arguments"]["flags"][seen[flag]] if flag in seen else None
        if row is not None and "collection" not in row:
            mistakes.append(
                "argv sets %s, which arguments.flags must then mark as the collection's" % flag
            )
    return mistakes


def _check_slots(data: Dict[str, Any]) -> List[str]:
    mistakes = []
    listener = _LISTENER_SLOT[data["listener"]]
    allowed = _COMMON_SLOTS | {listener}
    for text in data["argv"]:
        for slot in _SLOT.findall(text):
            if slot not in allowed:
                mistakes.append("argv: no slot {%s}; slots are %s" % (slot, sorted(allowed)))
    if not any("{%s}" % listener in text for text in data["argv"]):
        mistakes.append("argv: a %s listener needs {%s} in it" % (data["listener"], listener))
    if not any("{file}" in text for text in data["argv"]):
        mistakes.append("argv: needs {file}, the model's main file")
    return mistakes


def _check_parallel(data: Dict[str, Any], rows: Dict[str, int]) -> List[str]:
    flag = data.get("parallel", {}).get("flag")
    if flag is None or (flag in rows and data["arguments"]["flags"][rows[flag]]["type"] == "int"):
        return []
    return ["parallel.flag: %s is no flag of arguments.flags that takes an int" % flag]


def _check_row(row: Dict[str, Any]) -> List[str]:
    mistakes = []
    if row.get("type") == "choice" and not row.get("choices"):
        mistakes.append("a choice needs choices")
    if "collection" in row and "refused" in row:
        mistakes.append("collection and refused exclude each other")
    if "pattern" in row:
        try:
            re.compile(row["pattern"])
        except re.error as error:
            mistakes.append("pattern: %s" % error)
    return mistakes


def _table(data: Dict[str, Any]) -> Table:
    environment = data.get("environment", {})
    return Table(
        engine=data["title"],
        version=data["arguments"]["version"],
        flags=[_flag(row) for row in data["arguments"]["flags"]],
        environment=[_flag(row) for row in environment.get("accepted", [])],
        environment_refused=[
            (row["pattern"], row["reason"]) for row in environment.get("refused", [])
        ],
    )


def _flag(row: Dict[str, Any]) -> Flag:
    return Flag(
        names=row.get("names") or [row["name"]],
        type=row.get("type", "switch"),
        collection=row.get("collection"),
        refused=row.get("refused"),
        minimum=row.get("min"),
        maximum=row.get("max"),
        choices=list(row.get("choices", [])),
        also=list(row.get("also", [])),
        pattern=row.get("pattern"),
        separator=row.get("separator"),
    )


def _fill(text: str, slots: Dict[str, str]) -> str:
    """One pass over the template: a brace in a value stays as it is."""
    return _SLOT.sub(lambda match: slots[match.group(1)], text)
