# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a host tells the cluster about itself, put together from what the roles found."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.tether.fleet.plugins.plugin_utils import local_models, names


def host_record(
    host: Mapping[str, Any],
    port: int,
    certificates: Sequence[str],
    versions: Mapping[str, str],
    daemons: Optional[Mapping[str, Mapping[str, Any]]] = None,
    answering: Optional[Sequence[str]] = None,
) -> Dict[str, Any]:
    """The registration record. It tells of services only where the host has some.

    :param host: the host's part of the plan
    :param versions: artifact -> version
    :param daemons: name -> ``{"failed": bool}``; engines that failed are left out
    :param answering: ``namespace/name`` of the directly exposed services that answered when the
        host was asked; None: all of them
    """
    states = daemons or {}
    relayed, direct = host.get("services") or [], host.get("direct") or []
    services: List[Dict[str, Any]] = [
        {"namespace": one["namespace"], "name": one["model"], "expose": "relay"} for one in relayed
    ]
    services += [
        {
            "namespace": one["namespace"],
            "name": one["name"],
            "expose": "direct",
            "port": one["port"],
        }
        for one in direct
        if answering is None or names.model_key(one["namespace"], one["name"]) in answering
    ]
    engines: List[Dict[str, Any]] = [
        {
            "namespace": engine["namespace"],
            "model": engine["model"],
            "engine": engine["engine"],
            "version": engine["version"],
            **({"local": local_models.address(engine["local"])} if engine.get("local") else {}),
        }
        for engine in host["engines"]
        if not states.get(engine["daemon"], {}).get("failed")
    ]
    return {
        "schema": 1,
        "host": host["name"],
        "address": host["address"],
        "port": int(port),
        "certificates": list(certificates),
        "ingress": {"version": versions["caddy"]},
        "engines": engines,
        **({"services": services} if relayed or direct else {}),
    }
