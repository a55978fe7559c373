# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is claimed of versions is said in several files: it is the same in all of them."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
TABLE = re.compile(r"^\| (?P<name>[\w.-]+) \| (?P<oldest>[\d.]+) \| (?P<newest>[\d.]+) \|$", re.M)
DOCUMENTED = {
    row["name"]: (row["oldest"], row["newest"])
    for row in TABLE.finditer((ROOT / "docs" / "packaging.md").read_text())
}


def lines(name: str) -> list[str]:
    text = [line.split("#")[0].strip() for line in (ROOT / name).read_text().splitlines()]
    return [line for line in text if line]


RANGES = {item.name: item for item in map(Requirement, lines("requirements.in"))}
PINS = {
    canonicalize_name(name): version
    for name, version in (line.split("==") for line in lines("requirements.txt"))
}


def lower(item: Requirement) -> str:
    (bound,) = [each.version for each in item.specifier if each.operator == ">="]
    return bound


@pytest.mark.parametrize("name", RANGES)
def test_a_pin_is_within_its_range(name: str) -> None:
    assert RANGES[name].specifier.contains(PINS[canonicalize_name(name)])


def test_ansible_itself_refuses_what_is_older() -> None:
    runtime = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text())
    assert runtime["requires_ansible"] == f">={lower(RANGES['ansible-core'])}"


@pytest.mark.parametrize("name", ["ansible-core", "kubernetes", "cryptography", "jsonschema"])
def test_the_document_has_both_ends(name: str) -> None:
    assert DOCUMENTED[name] == (lower(RANGES[name]), PINS[name])


def test_the_document_has_the_oldest_kubernetes_core() -> None:
    galaxy = yaml.safe_load((ROOT / "galaxy.yml").read_text())
    wanted = Requirement(f"x{galaxy['dependencies']['kubernetes.core']}")
    oldest, newest = DOCUMENTED["kubernetes.core"]
    assert lower(wanted) == oldest
    assert wanted.specifier.contains(newest)


def test_what_is_pinned_runs_on_every_python_3_11() -> None:
    """Debian 12 has 3.11.2, while pins are chosen by whatever Python the chooser has."""
    too_new = {
        f"{each.name} {each.version}": each.metadata["Requires-Python"]
        for each in importlib.metadata.distributions()
        if "3.11.0" not in SpecifierSet(each.metadata["Requires-Python"] or "")
    }
    assert not too_new
