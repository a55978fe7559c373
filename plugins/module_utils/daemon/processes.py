# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who listens and who is connected where on this host, whatever its system.

A listener is ``{"pid", "name", "unit", "address"}``; ``unit`` is what its supervisor calls it, as
far as that can be seen, and ``pid`` is 0 where the process cannot be seen.
"""

from __future__ import annotations

import platform
from typing import Any, Dict, List

from ansible_collections.tether.fleet.plugins.module_utils import tcp_table
from ansible_collections.tether.fleet.plugins.module_utils.daemon import (
    darwin_processes,
    linux_processes,
)

# A new system is one file beside this one, and one more row here.
_SYSTEMS: Dict[str, Any] = {"Darwin": darwin_processes}


def listeners(port: int) -> List[Dict[str, Any]]:
    """Who listens on a TCP port here.

    :raises Refusal: when that cannot be told
    """
    found: List[Dict[str, Any]] = _here().listeners(port)
    return found


def listening() -> List[tcp_table.Socket]:
    """Every socket that listens on a TCP port here.

    :raises Refusal: when that cannot be told
    """
    found: List[tcp_table.Socket] = _here().listening()
    return found


def connections(port: int) -> List[tcp_table.Socket]:
    """Established connections with a TCP port here, whoever has them.

    :raises Refusal: when that cannot be told
    """
    found: List[tcp_table.Socket] = _here().connections(port)
    return found


def unix_listeners(path: str) -> List[Dict[str, Any]]:
    """Who holds a unix socket of that path open.

    :raises Refusal: when that cannot be told
    """
    found: List[Dict[str, Any]] = _here().unix_listeners(path)
    return found


def daemon_of(item: Dict[str, Any]) -> str:
    """The daemon that a listener is of: its unit without systemd's suffix; launchd adds none."""
    unit = str(item["unit"])
    return unit[: -len(".service")] if unit.endswith(".service") else unit


def in_words(found: List[Dict[str, Any]]) -> str:
    """Listeners as a person would say it."""
    words = []
    for item in found:
        if not item["pid"]:
            words.append("a process that cannot be seen from here")
            continue
        unit = " of unit %s" % item["unit"] if item["unit"] else ""
        words.append("process %d (%s)%s" % (item["pid"], item["name"] or "?", unit))
    return ", ".join(sorted(set(words)))


def _here() -> Any:
    return _SYSTEMS.get(platform.system(), linux_processes)
