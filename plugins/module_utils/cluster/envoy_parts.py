# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The small parts that every piece of an Envoy configuration is made of. Pure."""

from __future__ import annotations

import json
from typing import Any, Dict, List

TYPE = "type.googleapis.com/envoy."

# Level and number of Linux' socket options. The controller may be another system, so they are not
# Python's own.
_SOL_SOCKET, _TCP = 1, 6
_SOCKET_OPTIONS = {
    "SO_KEEPALIVE": (_SOL_SOCKET, 9),
    "TCP_KEEPIDLE": (_TCP, 4),
    "TCP_KEEPINTVL": (_TCP, 5),
    "TCP_KEEPCNT": (_TCP, 6),
    "TCP_USER_TIMEOUT": (_TCP, 18),
}


def dump(data: Any) -> str:
    """JSON that is the same text for the same data."""
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def response(resources: List[Dict[str, Any]], kind: str) -> str:
    """The text of a file that Envoy watches, with these resources of one kind."""
    typed = [dict(item, **{"@type": TYPE + kind}) for item in resources]
    return dump({"resources": typed})


def source(name: str, folder: str) -> Dict[str, Any]:
    """A file to watch. The kubelet replaces a volume's files by moving one link of its folder."""
    return {
        "path_config_source": {
            "path": "%s/%s" % (folder, name),
            "watched_directory": {"path": folder},
        },
        "resource_api_version": "V3",
    }


def address(host: str, port: int) -> Dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}


def pipe(path: str, **more: int) -> Dict[str, Any]:
    """The address of a unix socket."""
    return {"pipe": dict(more, path=path)}


def header(key: str, value: str) -> Dict[str, Any]:
    """A header that replaces whatever came under its name.

    Envoy reads ``%`` in a value as the start of a command; doubled, it is itself.
    """
    return {
        "header": {"key": key, "value": value.replace("%", "%%")},
        "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
    }


def listener(name: str, listen: str, port: int, manager: Dict[str, Any]) -> Dict[str, Any]:
    """A TCP listener with one HTTP connection manager."""
    place = address(listen, port)
    if ":" in listen:
        place["socket_address"]["ipv4_compat"] = True
    return {
        "name": name,
        "address": place,
        "filter_chains": [
            {
                "filters": [
                    extension(
                        "envoy.filters.network.http_connection_manager",
                        "filters.network.http_connection_manager.v3.HttpConnectionManager",
                        manager,
                    )
                ]
            }
        ],
    }


def socket_option(name: str, value: int) -> Dict[str, Any]:
    """An option that a socket has before it is bound."""
    level, number = _SOCKET_OPTIONS[name]
    return {
        "description": name,
        "level": level,
        "name": number,
        "int_value": value,
        "state": "STATE_PREBIND",
    }


def always_answers(item: Dict[str, Any]) -> Dict[str, Any]:
    """A listener that goes on when Envoy refuses others for lack of memory: the kubelet's."""
    return dict(item, bypass_overload_manager=True)


def extension(name: str, kind: str, settings: Dict[str, Any]) -> Dict[str, Any]:
    """An extension by its name, its type below ``envoy.extensions`` and its settings."""
    return {"name": name, "typed_config": dict(settings, **{"@type": TYPE + "extensions." + kind})}


def router() -> Dict[str, Any]:
    return extension(
        "envoy.filters.http.router",
        "filters.http.router.v3.Router",
        {"suppress_envoy_headers": True},
    )
