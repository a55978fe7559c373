# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The emulated application firewall: which programs may be reached from the network.

It blocks nothing here; `blocks` says what a Mac would do, for tests to ask.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import store

_DOCUMENT = "app-firewall"
OFF, ON, BLOCK_ALL = 0, 1, 2


def read() -> dict[str, Any]:
    """`state`: 0 off, 1 on, 2 blocks all; `stealth`; `apps`: by path, with `allow` and `digest`."""
    return {"state": OFF, "stealth": False, "apps": {}, **store.read(store.kept(_DOCUMENT))}


@contextmanager
def changed() -> Iterator[dict[str, Any]]:
    """Change it."""
    with store.changed(store.kept(_DOCUMENT)) as content:
        for key, value in read().items():
            content.setdefault(key, value)
        yield content


def digest(path: str) -> str:
    """Stands for the ad hoc signature of a program: another file, another signature."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def blocks(path: str) -> bool:
    """Whether other hosts fail to reach the program at this path; loopback always works.

    An issue says: a new path, or a changed program at the old one, is blocked without a word until
    it is added again.
    """
    content = read()
    if content["state"] != ON:
        return bool(content["state"] == BLOCK_ALL)
    app = content["apps"].get(path)
    return not app or not app["allow"] or app["digest"] != digest(path)
