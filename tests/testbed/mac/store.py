# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Small JSON documents that several tools change: whole or unchanged, one writer at a time."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import places

Content = dict[str, Any]

BOOT = "boot"
"""Document with the time of the last boot."""


def kept(name: str) -> Path:
    """The document of this name that outlives a reboot."""
    return places.kept() / f"{name}.json"


def until_reboot(name: str) -> Path:
    """The document of this name that a reboot takes away."""
    return places.until_reboot() / f"{name}.json"


def read(path: Path) -> Content:
    """What the document holds; nothing when there is none."""
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    if not isinstance(content, dict):
        raise ValueError(f"{path}: not a JSON object")
    return content


@contextmanager
def changed(path: Path, empty: Callable[[], Content] = dict) -> Iterator[Content]:
    """Change the document in place; an exception leaves it as it was.

    :param empty: makes what is in it where nothing else was written
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        content = {**empty(), **read(path)}
        yield content
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
        os.replace(temporary, path)
