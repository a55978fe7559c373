# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The generated parts of docs/*.md: which there are, and writing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import message_tables
import model_table
from places import AREAS, PAGES, PLUGINS, SCHEMA, SERVICES
from splice import splice

# (page, name of its part, what makes it)
PARTS: list[tuple[str, str, Callable[[], str]]] = [
    ("troubleshooting.md", "messages", lambda: message_tables.body(PLUGINS, AREAS)),
    ("inventory.md", "model keys", lambda: model_table.body(SCHEMA)),
    ("services.md", "service keys", lambda: model_table.body(SERVICES)),
]


def current() -> Iterator[tuple[Path, str]]:
    """Each page and its text as it ought to be."""
    for page, name, make in PARTS:
        path = PAGES / page
        yield path, splice(path.read_text(), name, make())


def write() -> Iterator[Path]:
    """Writes what differs; yields its path."""
    for path, text in list(current()):
        if path.read_text() != text:
            path.write_text(text)
            yield path
