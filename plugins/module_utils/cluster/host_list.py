# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""All hosts of a model, those that drain among them, as an annotation of its object. Pure.

A mark in a host's record takes it out of what requests are sent to, and later back: back needs an
address, and one that was checked once is kept here rather than read from a record again. It is on
the object that says whom to trust, or whom to send to: the Secret of relays, beside the pins, and
the EndpointSlice of a service that is exposed directly. Whoever changes it there could change those
as well.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    envoy_data,
    forms,
    labels,
    registration,
)

_SCHEMA = 1
# More hosts of one model than this are nobody's honest list.
_MOST = 1000


def noted(hosts: List[envoy_data.Host]) -> Dict[str, str]:
    """What is noted on the object; equal hosts give equal texts."""
    listed = [
        {
            "name": host.name,
            "address": host.address,
            "port": host.port,
            # For a host whose record is gone, so that a mark of another one does not bring it back.
            "draining": host.draining,
        }
        for host in sorted(hosts, key=lambda one: one.name)
    ]
    return {labels.HOSTS: json.dumps({"schema": _SCHEMA, "hosts": listed}, sort_keys=True)}


def read(item: Dict[str, Any]) -> Optional[List[envoy_data.Host]]:
    """The hosts that an object notes, without their pins; None for one from before there were such
    notes.

    :raises ValueError: for one that is no list of hosts, with what is wrong
    """
    notes = item["metadata"].get("annotations") or {}
    if labels.HOSTS not in notes:
        return None
    try:
        data = json.loads(notes[labels.HOSTS])
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None
    listed = data.get("hosts") if isinstance(data, dict) else None
    if not isinstance(listed, list) or data.get("schema") != _SCHEMA:
        raise ValueError("no list of hosts of schema %d" % _SCHEMA)
    if len(listed) > _MOST:
        raise ValueError("more than %d hosts" % _MOST)
    if not all(_is_host(entry) for entry in listed):
        raise ValueError("an entry that is no host with an address and a port")
    if len({entry["name"] for entry in listed}) != len(listed):
        raise ValueError("a host twice")
    return [
        envoy_data.Host(
            entry["name"], entry["address"], entry["port"], draining=entry.get("draining") is True
        )
        for entry in listed
    ]


def _is_host(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    name, port = entry.get("name"), entry.get("port")
    return (
        isinstance(name, str)
        and forms.is_host(name)
        and registration.is_address(entry.get("address"))
        and isinstance(port, int)
        and not isinstance(port, bool)
        and 0 < port < 65536
    )
