# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Mistakes in the inventory, worded for the person who must mend them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Optional, Set

from ansible_collections.tether.fleet.plugins.plugin_utils.guard import nearest
from ansible_collections.tether.fleet.plugins.plugin_utils.schema import validator

SCHEMA = "inventory_schema.yml"
MODELS = "fleet_models"


@dataclass(frozen=True)
class Mistake:
    """One mistake.

    :ivar model: ``namespace/name`` (or ``fleet_models[3]``, ``host gpu1``); None for the fleet
    :ivar key: the key in that model's entry, ``files[0].sha256``
    :ivar message: what was found and what was expected
    """

    model: Optional[str]
    key: str
    message: str

    @property
    def root(self) -> str:
        """The top-level key that is wrong."""
        return self.key.split("[")[0].split(".")[0]

    def line(self) -> str:
        where = "%s: %s" % (self.model, self.key) if self.model else self.key
        return "%s: %s" % (where, self.message)


class InventoryErrors(Exception):  # noqa: N818 - it is all of them at once
    """All mistakes of an inventory.

    :ivar mistakes: in the order of the inventory
    """

    def __init__(self, mistakes: List[Mistake]) -> None:
        self.mistakes = list(dict.fromkeys(mistakes))
        count = len(self.mistakes)
        head = "The inventory has %d mistake%s; nothing was changed." % (count, "s"[: count != 1])
        super().__init__("\n  - ".join([head] + [mistake.line() for mistake in self.mistakes]))


def labels(entries: List[Any], source: str = MODELS) -> List[str]:
    """What each entry is called in messages: its key, and its place where that is not its own.

    :param source: the variable that lists them
    """
    plain = [_label(entry, index, source) for index, entry in enumerate(entries)]
    return [
        "%s (%s[%d])" % (text, source, index) if plain.count(text) > 1 else text
        for index, text in enumerate(plain)
    ]


def _label(model: Any, index: int, source: str) -> str:
    if isinstance(model, dict):
        namespace, name = model.get("namespace"), model.get("name")
        if isinstance(namespace, str) and isinstance(name, str) and namespace and name:
            return "%s/%s" % (namespace, name)
        if isinstance(name, str) and name:
            return "%s[%d] (%s)" % (source, index, name)
    return "%s[%d]" % (source, index)


def unread(known: Iterable[Mistake], where: Optional[str]) -> Set[str]:
    """The keys of an entry of which a mistake is known already: nothing else is said of them."""
    return {item.root for item in known if item.model == where}


def check_shape(model: Any, where: str, schema: str = SCHEMA) -> List[Mistake]:
    """Everything that the schema says of one entry."""
    if not isinstance(model, dict):
        keys = ", ".join(validator(schema).schema["required"][:3])
        text = "is %s; expected a mapping with %s..." % (describe(model), keys)
        return [Mistake(where, "entry", text)]
    found: List[Mistake] = []
    for error in validator(schema).iter_errors(model):
        found += _translate(error, where)
    return sorted(found, key=lambda mistake: _order(mistake, model))


def describe(value: Any) -> str:
    """A value as a message shows it, with its type where that is the surprise."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "the boolean %s" % str(value).lower()
    if isinstance(value, (int, float)):
        return "the number %s" % value
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = str(value)
    return json.dumps(text if len(text) <= 80 else text[:77] + "...", ensure_ascii=False)


def _translate(error: Any, where: str) -> List[Mistake]:
    path = _path(error.absolute_path)
    schema = error.schema
    if error.validator == "required":
        missing = [key for key in error.validator_value if key not in error.instance]
        # jsonschema reports each missing key as an error of its own, which looks alike.
        return [
            Mistake(where, join(path, key), "is missing; expected %s" % _expected(schema, key))
            for key in missing
            if repr(key) in error.message
        ]
    if error.validator == "additionalProperties" and schema.get("properties"):
        known = list(schema["properties"])
        unknown = [key for key in error.instance if key not in known]
        return [
            Mistake(
                where,
                join(path, str(key)),
                "no such key%s; keys are %s" % (nearest(str(key), known), ", ".join(known)),
            )
            for key in unknown
        ]
    if "propertyNames" in error.schema_path and "expected" not in schema:
        text = "%s is not a variable's name" % describe(error.instance)
        return [Mistake(where, path, text)]
    expected = schema.get("expected", "something else (%s)" % error.message)
    text = "is %s; expected %s" % (describe(error.instance), expected)
    if error.validator == "uniqueItems":
        text = "lists something twice; expected %s" % expected
    elif error.validator == "type":
        text += _quote_hint(error.instance, error.validator_value)
    elif error.validator == "maxLength":
        text += " (it has %d characters)" % len(error.instance)
    elif path.endswith("sha256"):
        text += _digest_hint(error.instance)
    return [Mistake(where, path, text)]


def _quote_hint(value: Any, wanted: Any) -> str:
    """YAML reads 1.10 as a number and on as true: say so."""
    if wanted == "string" and isinstance(value, (bool, int, float)):
        return ". YAML reads it so: write it in quotes"
    if wanted == "integer" and isinstance(value, str) and value.strip().isdigit():
        return ": write it without quotes"
    return ""


def _digest_hint(value: str) -> str:
    if value.lower() != value and len(value) == 64:
        return ": write it in lower case"
    if value.startswith("sha256:"):
        return ": leave out sha256:"
    return " (it has %d)" % len(value) if len(value) != 64 else ""


def _expected(schema: Dict[str, Any], key: str) -> str:
    text: str = schema["properties"][key].get("expected", "a value")
    return text


def _path(parts: Any) -> str:
    text = ""
    for part in parts:
        text = "%s[%d]" % (text, part) if isinstance(part, int) else join(text, str(part))
    return text


def join(path: str, key: str) -> str:
    """The path of a key of what is at a path."""
    return "%s.%s" % (path, key) if path else key


def _order(mistake: Mistake, model: Dict[str, Any]) -> int:
    keys = [str(key) for key in model]
    return keys.index(mistake.root) if mistake.root in keys else len(keys)
