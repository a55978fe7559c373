# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every role says what it takes, and says it the same in specification, defaults and tasks."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
# Options that the inventory holds once for the whole fleet, not a role: documented in each role
# that reads them, without a default of the role's own.
SHARED = "fleet_"

each_role = pytest.mark.parametrize("role", ROLES)


@cache
def read(role: str, name: str) -> Any:
    path = ROOT / "roles" / role / name
    return yaml.safe_load(path.read_text()) if path.exists() else {}


def options(role: str) -> dict[str, dict[str, Any]]:
    """Every option of every entry point."""
    found: dict[str, dict[str, Any]] = {}
    for entry in read(role, "meta/argument_specs.yml").get("argument_specs", {}).values():
        found.update(entry.get("options") or {})
    return found


def defaults(role: str) -> dict[str, Any]:
    return read(role, "defaults/main.yml") or {}


def private(name: str) -> bool:
    return name.startswith("__")


@each_role
def test_entry_points(role: str) -> None:
    """What the specification describes is there, and what is there is described."""
    specs = read(role, "meta/argument_specs.yml").get("argument_specs", {})
    assert "main" in specs
    for entry, text in specs.items():
        assert (ROOT / "roles" / role / "tasks" / f"{entry}.yml").exists(), entry
        assert text["short_description"].strip(), entry
        assert text["description"], entry


@each_role
def test_names(role: str) -> None:
    """A variable tells its role by its name; private ones start with two underscores."""
    known = (f"{role}_", f"__{role}_")
    variables = [*defaults(role), *(read(role, "vars/main.yml") or {})]
    assert [name for name in variables if not name.startswith(known)] == []
    assert [name for name in options(role) if not name.startswith((f"{role}_", SHARED))] == []


@each_role
def test_defaults_are_options(role: str) -> None:
    """Whatever can be set is documented."""
    public = {name for name in defaults(role) if not private(name)}
    assert public - set(options(role)) == set()


@each_role
def test_options_have_the_same_default(role: str) -> None:
    """The default that the documentation shows is the one that holds."""
    told = {
        name: option["default"] for name, option in options(role).items() if "default" in option
    }
    missing = object()
    differing = {
        name: (value, defaults(role).get(name, "not in defaults/main.yml"))
        for name, value in told.items()
        if defaults(role).get(name, missing) != value and not name.startswith(SHARED)
    }
    assert differing == {}, "option: (specification, defaults)"
    # A default that the documentation does not show: only a computed one may be so.
    silent = {
        name: value
        for name, value in defaults(role).items()
        if not private(name) and name not in told and "{{" not in str(value)
    }
    assert silent == {}, "in defaults/main.yml, without a default in the specification"


@each_role
def test_required_options_have_no_default(role: str) -> None:
    both = [
        name
        for name, option in options(role).items()
        if option.get("required") and name in defaults(role)
    ]
    assert both == []


@each_role
def test_options_are_described(role: str) -> None:
    bare = [
        name
        for name, option in options(role).items()
        if not option.get("type") or not "".join(option.get("description", ""))
    ]
    assert bare == [], "no type or no description"


@each_role
def test_options_are_used(role: str) -> None:
    """An option that nothing reads promises something that does not happen."""
    folder = ROOT / "roles" / role
    text = "\n".join(
        path.read_text()
        for part in ("defaults", "tasks", "vars", "handlers", "templates")
        for path in sorted((folder / part).rglob("*"))
        if path.is_file()
    )
    mentions = {name: len(re.findall(rf"\b{name}\b", text)) for name in options(role)}
    # One mention is the default itself.
    unused = [name for name, count in mentions.items() if count <= (name in defaults(role))]
    assert unused == []
