# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The tables of a model's and of a service's keys, from the schemas that check them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

KINDS = {
    "string": "text",
    "integer": "int",
    "boolean": "bool",
    "object": "mapping",
    "array": "list",
}


def body(schema_file: Path) -> str:
    schema = yaml.safe_load(schema_file.read_text())
    head = ["| key | type | default | |", "|---|---|---|---|"]
    return "\n".join([*head, *rows(schema)])


def rows(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """A row a key, those of a list's entries below it."""
    for name, key in schema["properties"].items():
        if "default" in key:
            default = f"`{json.dumps(key['default'])}`"
        else:
            default = "required" if name in schema["required"] else ""
        text = key["description"].strip().replace("|", "\\|")
        yield f"| `{prefix}{name}` | {kind(key)} | {default} | {text} |"
        if key.get("items", {}).get("properties"):
            yield from rows(key["items"], f"{prefix}{name}[].")
        if key.get("properties"):
            yield from rows(key, f"{prefix}{name}.")


def kind(key: dict[str, Any]) -> str:
    if key["type"] == "array":
        return "list" if key["items"]["type"] == "object" else f"list of {kind(key['items'])}"
    if key["type"] == "object" and key["additionalProperties"]:
        return f"mapping of {kind(key['additionalProperties'])}"
    return KINDS[key["type"]]
