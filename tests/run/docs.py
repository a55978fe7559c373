# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Writes a Markdown page for every module and role, from what ansible-doc reads of them.

Usage: docs.py FOLDER
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paths import BIN, ROOT

NAMESPACE = "tether.fleet"
# ansible-doc's marks: I(x), C(x), V(x), O(x), M(x), U(x)...
MARK = re.compile(r"\b([A-Z])\(([^)]*)\)")


def ansible_doc(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [BIN / "ansible-doc", "--json", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def prose(text: str | list[str] | None) -> str:
    """Paragraphs in Markdown."""
    paragraphs = [text] if isinstance(text, str) else text or []
    return "\n\n".join(
        MARK.sub(lambda m: f"*{m[2]}*" if m[1] in "IB" else f"`{m[2]}`", each).strip()
        for each in paragraphs
    )


def rows(options: dict[str, Any], indent: str = "") -> Iterator[str]:
    """Table rows of options, those of suboptions below their parent."""
    for name, option in options.items():
        kind = option.get("type", "str")
        if option.get("elements"):
            kind += f" of {option['elements']}"
        notes = [prose(option.get("description")).replace("\n\n", " ").replace("|", "\\|")]
        if option.get("choices"):
            notes.append("One of " + ", ".join(f"`{each}`" for each in option["choices"]) + ".")
        if option.get("required"):
            default = "(required)"
        elif option.get("default") is None:
            default = ""
        else:
            default = f"`{json.dumps(option['default'])}`"
        yield f"| {indent}`{name}` | {kind} | {default} | {' '.join(notes)} |"
        yield from rows(option.get("suboptions") or option.get("options") or {}, indent + "· ")


def table(options: dict[str, Any]) -> str:
    head = ["| option | type | default | |", "|---|---|---|---|"]
    return "\n".join([*head, *rows(options)]) if options else "None."


def module_page(name: str, entry: dict[str, Any]) -> str:
    doc = entry["doc"]
    parts = [f"# {NAMESPACE}.{name}", prose(doc["short_description"]), prose(doc["description"])]
    parts += ["## Options", table(doc.get("options") or {})]
    if doc.get("attributes"):
        parts.append("## Attributes")
        parts.append(
            "\n".join(f"- {key}: {value['support']}" for key, value in doc["attributes"].items())
        )
    if doc.get("notes"):
        parts += ["## Notes", prose(doc["notes"])]
    parts += ["## Examples", f"```yaml\n{entry['examples'].strip()}\n```"]
    if entry.get("return"):
        head = ["| key | type | returned | |", "|---|---|---|---|"]
        parts += ["## Returns", "\n".join([*head, *returned(entry["return"])])]
    return "\n\n".join(parts) + "\n"


def returned(values: dict[str, Any], indent: str = "") -> Iterator[str]:
    for key, value in values.items():
        text = prose(value.get("description")).replace("\n\n", " ").replace("|", "\\|")
        cells = [f"{indent}`{key}`", value.get("type", ""), value.get("returned", ""), text]
        yield f"| {' | '.join(cells)} |"
        yield from returned(value.get("contains") or {}, indent + "· ")


def role_page(name: str, entry: dict[str, Any]) -> str:
    parts = [f"# Role {NAMESPACE}.{name}"]
    for point, spec in entry["entry_points"].items():
        parts.append(f"## {point}" if len(entry["entry_points"]) > 1 else "")
        parts += [prose(spec["short_description"]), prose(spec.get("description"))]
        parts.append(table(spec.get("options") or {}))
    return "\n\n".join(part for part in parts if part) + "\n"


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.md"):
        old.unlink()
    names = sorted(path.stem for path in (ROOT / "plugins/modules").glob("[a-z]*.py"))
    modules = ansible_doc("-t", "module", *(f"{NAMESPACE}.{name}" for name in names))
    roles = ansible_doc("-t", "role", "-l", NAMESPACE)
    roles = ansible_doc("-t", "role", *sorted(roles))
    index = [f"# {NAMESPACE}", "## Roles"]
    for full, entry in sorted(roles.items()):
        name = full.rpartition(".")[2]
        (folder / f"role_{name}.md").write_text(role_page(name, entry))
        short = next(iter(entry["entry_points"].values()))["short_description"]
        index.append(f"- [{name}](role_{name}.md): {short}")
    index.append("## Modules")
    for name in names:
        entry = modules[f"{NAMESPACE}.{name}"]
        (folder / f"module_{name}.md").write_text(module_page(name, entry))
        index.append(f"- [{name}](module_{name}.md): {entry['doc']['short_description']}")
    (folder / "index.md").write_text("\n\n".join(index).replace("\n\n- ", "\n- ") + "\n")
    print(f"{len(roles)} roles and {len(names)} modules: {folder / 'index.md'}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
