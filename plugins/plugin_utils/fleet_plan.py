# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From sound models to the plan that every other part works from: pure, in a fixed order."""

from __future__ import annotations

import posixpath
from typing import Any, Dict, Iterable, List, Mapping

from ansible_collections.tether.fleet.plugins.plugin_utils import local_models, names
from ansible_collections.tether.fleet.plugins.plugin_utils.address import is_ip
from ansible_collections.tether.fleet.plugins.plugin_utils.catalogue import Engine


def build(
    entries: List[Dict[str, Any]],
    members: List[str],
    addresses: Dict[str, str],
    systems: Mapping[str, str],
    catalogue: Mapping[str, Engine],
    header: Dict[str, Any],
    versions: Mapping[str, str],
) -> Dict[str, Any]:
    """The plan of a sound inventory; docs/inventory.md describes it.

    :param entries: normalised models
    :param members: the machines, in the inventory's order
    :param systems: machine -> ``linux`` or ``macos``
    :param header: what the plan says of the fleet as a whole
    :param versions: artifact -> the version that the lock pins, of all that it pins
    """
    entries = sorted(entries, key=lambda entry: (entry["namespace"], entry["name"]))
    by_host: Dict[str, List[Dict[str, Any]]] = {host: [] for host in members}
    for entry in entries:
        of_system: Dict[str, Dict[str, Any]] = {}
        for host in entry["hosts"]:
            system = systems[host]
            if system not in of_system:
                of_system[system] = _engine(entry, catalogue[entry["engine"]], system)
            by_host[host].append(of_system[system])
    used = {catalogue[entry["engine"]].data["artifact"] for entry in entries}
    return {
        "fleet": header,
        "models": {names.model_key(entry["namespace"], entry["name"]): entry for entry in entries},
        "hosts": {
            host: _host(
                host,
                addresses[host],
                systems[host],
                header["ingress_port"],
                by_host[host],
                catalogue,
            )
            for host in members
        },
        "namespaces": sorted({entry["namespace"] for entry in entries}),
        "artifacts": {
            artifact: {
                "hosts": [
                    host
                    for host in members
                    if any(engine["artifact"] == artifact for engine in by_host[host])
                ]
            }
            for artifact in sorted(used)
        },
        "versions": {artifact: versions[artifact] for artifact in sorted(versions)},
        "model_files": _files(file for entry in entries for file in entry["files"]),
    }


def _engine(entry: Dict[str, Any], engine: Engine, system: str) -> Dict[str, Any]:
    namespace, model = entry["namespace"], entry["name"]
    socket = None if engine.needs_port else names.engine_socket(system, namespace, model)
    port = entry["engine_port"]
    slots = {
        "model": model,
        "namespace": namespace,
        "file": entry["files"][0]["path"],
        "socket": socket or "",
        "port": str(port or ""),
    }
    data = engine.data
    return {
        "namespace": namespace,
        "model": model,
        "engine": engine.name,
        "artifact": data["artifact"],
        "version": engine.table.version,
        "account": names.engine_account(namespace),
        "daemon": names.engine_daemon(namespace, model),
        "directory": names.engine_directory(system, namespace, model),
        "socket": socket,
        "port": port,
        "upstream": socket or "127.0.0.1:%d" % port,
        "local": local_models.of_model(entry),
        "argv": engine.argv(slots, entry["args"]),
        "environment": engine.environment(slots, entry["environment"]),
        "files": entry["files"],
        "health": dict(data["health"]),
        "metrics": data.get("metrics"),
        "paths": data["paths"],
        "libraries": data.get("libraries", []),
        "stop_timeout": data["stop_timeout"],
    }


def _daemon(engine: Dict[str, Any], data: Mapping[str, Any]) -> Dict[str, Any]:
    """An engine as the ``daemon`` module takes it.

    The socket's directory is the engine's own, with the ingress's group and setgid, so that the
    socket gets that group: the ingress connects, and no other account can even look inside.
    """
    families = ["AF_UNIX"] + (["AF_INET", "AF_INET6"] if data.get("network", True) else [])
    health = dict(engine["health"])
    if engine["socket"]:
        health["unix"] = engine["socket"]
    else:
        health["port"] = engine["port"]
    return {
        "name": engine["daemon"],
        "description": "tether.fleet engine %s/%s (%s)"
        % (engine["namespace"], engine["model"], engine["engine"]),
        # The path goes through the link `current`: it is the version that makes an upgrade restart.
        "version": engine["version"],
        "argv": engine["argv"],
        "environment": engine["environment"],
        "user": engine["account"],
        "group": engine["account"],
        "umask": "0007",
        "runtime_directories": [
            {
                "path": engine["directory"],
                "owner": engine["account"],
                "group": names.INGRESS_ACCOUNT,
                "mode": "2710",
                **({"seal": posixpath.basename(engine["socket"])} if engine["socket"] else {}),
            }
        ],
        "address_families": families,
        "devices": data.get("devices", False),
        "device_groups": data.get("device_groups", []),
        "executable_memory": data.get("executable_memory", False),
        "limits": {"locked_memory": data.get("locked_memory", False)},
        "health": health,
        "stop_timeout": engine["stop_timeout"],
    }


def _host(
    host: str,
    address: str,
    system: str,
    port: int,
    engines: List[Dict[str, Any]],
    catalogue: Mapping[str, Engine],
) -> Dict[str, Any]:
    namespaces = sorted({engine["namespace"] for engine in engines})
    by_ip = is_ip(address)
    libraries = {item["library"]: item for engine in engines for item in engine["libraries"]}
    stored = {
        item["path"]: dict(
            _without_path(item), namespace=engine["namespace"], group=engine["account"]
        )
        for engine in engines
        for item in engine["files"]
    }
    return {
        "name": host,
        "system": system,
        "run_root": names.RUN_ROOTS[system],
        "address": address,
        "port": port,
        "names": [] if by_ip else [address],
        "addresses": [address] if by_ip else [],
        "engines": engines,
        "daemons": [_daemon(engine, catalogue[engine["engine"]].data) for engine in engines],
        "artifacts": sorted({engine["artifact"] for engine in engines}),
        "namespaces": namespaces,
        "accounts": [{"name": names.INGRESS_ACCOUNT}]
        + [{"name": names.engine_account(namespace)} for namespace in namespaces],
        "model_files": [stored[path] for path in sorted(stored)],
        "loopback_ports": [
            {
                "port": engine["port"],
                "accounts": [names.INGRESS_ACCOUNT],
                "server": engine["account"],
            }
            for engine in engines
            if engine["port"] is not None
        ]
        + local_models.loopback_ports(engines),
        "local_files": local_models.files(engines),
        "libraries": [libraries[key] for key in sorted(libraries)],
    }


def _without_path(item: Dict[str, Any]) -> Dict[str, Any]:
    """A file as modules take it: an unknown size is left out rather than empty."""
    return {key: value for key, value in item.items() if key != "path" and value is not None}


def _files(files: Iterable[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """What the controller must hold: each digest once, with its first source and a known size."""
    result: Dict[str, Dict[str, Any]] = {}
    for item in files:
        kept = result.setdefault(item["sha256"], _without_path(item))
        if item["size"] is not None:
            kept["size"] = item["size"]
    return [result[digest] for digest in sorted(result)]
