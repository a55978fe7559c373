# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The emulated application firewall: which programs may be reached from the network.

It blocks nothing here; `blocks` says what a Mac would do, for tests to ask.
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from pathlib import Path

from . import store

_DOCUMENT = "app-firewall"
OFF, ON, BLOCK_ALL = 0, 1, 2


def _empty() -> store.Content:
    return {"state": OFF, "stealth": False, "apps": {}}


def read() -> store.Content:
    """`state`: 0 off, 1 on, 2 blocks all; `stealth`; `apps`: by path, with `allow` and `digest`."""
    return {**_empty(), **store.read(store.kept(_DOCUMENT))}


def changed() -> AbstractContextManager[store.Content]:
    """Change it."""
    return store.changed(store.kept(_DOCUMENT), _empty)


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
