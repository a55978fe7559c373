# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the emulated kernel's packet filter holds: anchors, tables, tokens. A reboot empties it."""

from __future__ import annotations

import secrets
import time
from contextlib import AbstractContextManager
from typing import Any

from . import places, store

_DOCUMENT = "pf"
STOCK = """\
#
# Default PF configuration file.
#
# This file contains the main ruleset, which gets automatically loaded
# at startup.  PF will not be automatically enabled, however.
#
scrub-anchor "com.apple/*"
nat-anchor "com.apple/*"
rdr-anchor "com.apple/*"
dummynet-anchor "com.apple/*"
anchor "com.apple/*"
load anchor "com.apple" from "/etc/pf.anchors/com.apple"
"""
"""/etc/pf.conf as macOS brings it: anchors below com.apple/ are evaluated without any edit."""
MAIN = ('scrub-anchor "com.apple/*" all fragment reassemble', 'anchor "com.apple/*" all')
"""The main ruleset of that file, as `pfctl -s rules` shows it (measured on macOS 26)."""


def _empty() -> store.Content:
    return {"anchors": {}, "tokens": {}, "since": 0, "main": list(MAIN), "skipped": [], "busy": 0}


def read() -> store.Content:
    """The whole state: `anchors`, `tokens`, and `since`, the time it was enabled or 0; `main`, the
    rules of the main ruleset; `skipped`, interfaces with `set skip`; `busy`, how many loads fail
    next."""
    return {**_empty(), **store.read(store.until_reboot(_DOCUMENT))}


def changed() -> AbstractContextManager[store.Content]:
    """Change the state."""
    return store.changed(store.until_reboot(_DOCUMENT), _empty)


def new_token(state: dict[str, Any], pid: int) -> int:
    """Enable the filter for somebody; it stays on while any token is held."""
    token = secrets.randbits(63)
    state["tokens"][str(token)] = {"pid": pid, "time": int(time.time())}
    state["since"] = state["since"] or int(time.time())
    return token


def evaluated(anchor: str) -> bool:
    """Whether the main ruleset leads to an anchor: only to those one level below com.apple."""
    parts = anchor.split("/")
    return len(parts) == 2 and parts[0] == "com.apple" and MAIN[1] in read()["main"]


def boot() -> None:
    """Load the main ruleset from /etc/pf.conf, as macOS does at boot."""
    text = places.place("/etc/pf.conf").read_text()
    with changed() as state:
        state["main"] = list(MAIN) if 'anchor "com.apple/*"' in text else []
