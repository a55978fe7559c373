# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The pictures can be read: they parse, their texts fit, and light or dark makes no difference."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest
from places import ROOT

SVG = "{http://www.w3.org/2000/svg}"
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
# Width of a letter by its height, on average, in the widest font of the style (DejaVu Sans).
WIDTH = {"name": 0.72, "note": 0.60, "place": 0.60}

each_picture = pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)


def root_of(path: Path) -> ET.Element:
    return ET.parse(path).getroot()  # noqa: S314 (our own file)


def sizes(path: Path) -> dict[str, float]:
    return {
        name: float(size)
        for name, size in re.findall(r"\.(\w+) \{[^}]*font-size: (\d+)px", path.read_text())
    }


def span(text: ET.Element, size: dict[str, float]) -> tuple[float, float]:
    """Left and right end of a text."""
    kind = text.get("class", "")
    width = len("".join(text.itertext())) * size[kind] * WIDTH[kind]
    x = float(text.get("x", 0))
    return (x - width, x) if text.get("text-anchor") == "end" else (x, x + width)


def number(element: ET.Element, name: str) -> float:
    return float(element.get(name, 0))


def test_there_are_pictures() -> None:
    assert [path.name for path in PICTURES] == ["declaration.svg", "request.svg"]


@each_picture
def test_is_described(path: Path) -> None:
    """For those who cannot see it: a title and a description, which the page has as well."""
    root = root_of(path)
    described = root.findtext(f"{SVG}desc")
    assert root.findtext(f"{SVG}title")
    assert described
    assert f"![{described}](pictures/{path.name})" in (ROOT / "docs" / "concepts.md").read_text()


@each_picture
def test_texts_fit(path: Path) -> None:
    root, size = root_of(path), sizes(path)
    for box in root.iter(f"{SVG}g"):
        rect = box.find(f"{SVG}rect")
        assert rect is not None
        left, right = number(rect, "x"), number(rect, "x") + number(rect, "width")
        top, bottom = number(rect, "y"), number(rect, "y") + number(rect, "height")
        for text in box.iter(f"{SVG}text"):
            start, end = span(text, size)
            assert left < start and end < right, "".join(text.itertext())
            assert top < number(text, "y") - size["note"] and number(text, "y") < bottom
    card = root.find(f"{SVG}rect")
    assert card is not None
    for text in root.iter(f"{SVG}text"):
        start, end = span(text, size)
        assert start > 0 and end < number(card, "width"), "".join(text.itertext())
        assert number(text, "y") < number(card, "height")


@each_picture
def test_boxes_do_not_overlap(path: Path) -> None:
    rows = sorted(
        (number(rect, "y"), number(rect, "y") + number(rect, "height"))
        for rect in root_of(path).iter(f"{SVG}rect")
        if rect.get("class") == "box"
    )
    assert all(above[1] < below[0] for above, below in pairwise(rows))


@each_picture
def test_reads_the_same_on_a_dark_page(path: Path) -> None:
    """The card under everything is opaque, and every colour is the picture's own."""
    card = root_of(path).find(f"{SVG}rect")
    assert card is not None and card.get("class") == "card"
    text = path.read_text()
    assert re.search(r"\.card \{ fill: #[0-9a-f]{6}", text)
    assert not re.search(r"currentColor|prefers-color-scheme|opacity", text)
    classes = {element.get("class") for element in root_of(path).iter(f"{SVG}rect")}
    assert all(re.search(rf"\.{name} \{{[^}}]*fill: #", text) for name in classes)


@each_picture
def test_loads_nothing(path: Path) -> None:
    assert not re.search(r"<script|<image|href=|@import|url\((?!#)", path.read_text())
