# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The relay's Envoy configuration, rendered from plain data. Pure: no cluster, no files.

What changes is in files that Envoy watches (CDS, EDS, LDS, RDS, SDS), so a new host, certificate
or token needs no roll of the pods. Two of them hold the token and belong in a Secret: the SDS file
that the credential injector reads, and the CDS file, because Envoy takes the headers of active
health checks only literally.

The pins stand in the CDS file too. It changes with the token anyway, a changed cluster is warmed
(its hosts are checked) before it takes over and requests on the old one end in peace, and
connections that were made under a removed pin end with the old cluster; a pin that is removed
through SDS leaves them open (observed with Envoy 1.40).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    balancing,
    drain,
    envoy_clients,
    envoy_hosts,
    envoy_metrics,
    services,
)
from ansible_collections.tether.fleet.plugins.module_utils.cluster import envoy_parts as parts
from ansible_collections.tether.fleet.plugins.module_utils.cluster.envoy_data import (
    CLUSTER,
    DEFAULT_LIMITS,
    POD,
    Host,
    Limits,
    Place,
    is_name,
)

# Where a cluster that is not asked for its hosts elsewhere has them.
_LISTED = "load_assignment"


@dataclass
class Files:
    """Rendered files by name: ``plain`` for the ConfigMap, ``secret`` for the Secret."""

    plain: Dict[str, str] = field(default_factory=dict)
    secret: Dict[str, str] = field(default_factory=dict)


def render(
    namespace: str,
    model: str,
    hosts: List[Host],
    token: str,
    drain_key: str,
    health_path: str = "/health",
    limits: Limits = DEFAULT_LIMITS,
    place: Place = POD,
    spread: balancing.Balancing = balancing.DEFAULT,
    service: Optional[services.Service] = None,
) -> Files:
    """Everything that one relay's Envoy reads.

    :param drain_key: what the kubelet shows when the pod is to end, letters and digits
    :param service: what differs from a model when it is a service
    """
    told = service or services.Service()
    hosts = sorted(hosts, key=lambda host: host.name)
    inline = by_name(hosts)
    files = Files(
        plain={
            "bootstrap.json": parts.dump(_bootstrap(namespace, model, limits, place)),
            "lds.json": parts.response(
                [
                    envoy_clients.service_listener(
                        place, limits, "service" if service else "model"
                    ),
                    envoy_clients.probe_listener(place),
                    envoy_metrics.listener(namespace, model, hosts, place),
                    drain.listener(place.listen, place.drain_port, drain_key, place.least_drain),
                ],
                "config.listener.v3.Listener",
            ),
            "rds.json": parts.response(
                [envoy_clients.routes(namespace, model, limits, spread, told.websocket)],
                "config.route.v3.RouteConfiguration",
            ),
        },
        secret={
            "cds.json": parts.response(
                [
                    envoy_hosts.cluster(
                        namespace,
                        model,
                        hosts,
                        token,
                        health_path,
                        place.folder,
                        envoy_hosts.load_assignment(hosts) if inline else None,
                        spread,
                        told.health_status,
                    ),
                    *envoy_metrics.clusters(hosts, place.admin_socket),
                ],
                "config.cluster.v3.Cluster",
            ),
            "sds.json": parts.response(
                [
                    {
                        "name": "token",
                        "generic_secret": {"secret": {"inline_string": token}},
                    }
                ],
                "extensions.transport_sockets.tls.v3.Secret",
            ),
        },
    )
    if not inline:
        files.plain["eds.json"] = endpoints(hosts)
    return files


def by_name(hosts: List[Host]) -> bool:
    """Whether the list of hosts is in ``cds.json``: ``eds.json`` takes no names."""
    return any(is_name(host.address) for host in hosts)


def endpoints(hosts: List[Host]) -> str:
    """The text of ``eds.json``."""
    assignment = envoy_hosts.load_assignment(hosts)
    return parts.response([assignment], "config.endpoint.v3.ClusterLoadAssignment")


def with_marks(text: str, hosts: List[Host]) -> str:
    """A live ``cds.json`` in which hosts drain or serve as they now do; all else stays as it is.

    :raises ValueError: when it is none
    """
    data = json.loads(text)
    clusters = data.get("resources") if isinstance(data, dict) else None
    if not isinstance(clusters, list) or not all(isinstance(item, dict) for item in clusters):
        raise ValueError("no list of clusters")
    inline = [item for item in clusters if item.get("name") == CLUSTER and _LISTED in item]
    if by_name(hosts) and not inline:
        raise ValueError("no cluster with a list of hosts")
    for item in inline:
        item[_LISTED] = envoy_hosts.load_assignment(hosts)
    data["resources"] = envoy_metrics.with_marks(clusters, hosts)
    return parts.dump(data)


def mask_token(text: str, mask: str) -> str:
    """A rendered file with every token in it replaced, for a diff.

    A text that cannot be read as JSON is masked as a whole: it might hold anything.
    """
    try:
        return parts.dump(_masked(json.loads(text), mask))
    except (ValueError, RecursionError):
        return mask


def _masked(data: Any, mask: str) -> Any:
    if isinstance(data, list):
        return [_masked(item, mask) for item in data]
    if not isinstance(data, dict):
        return data
    if str(data.get("key", "")).lower() == "x-relay-token":
        return dict(data, value=mask)
    return {
        key: mask
        if key in ("inline_string", "inline_bytes") and "BEGIN CERT" not in str(value)
        else _masked(value, mask)
        for key, value in data.items()
    }


def _bootstrap(namespace: str, model: str, limits: Limits, place: Place) -> Dict[str, Any]:
    return {
        "node": {"id": "%s/%s" % (namespace, model), "cluster": "tether-relay"},
        "admin": drain.admin(place.admin_socket),
        "static_resources": {"clusters": drain.clusters(place.admin_socket, place.drain_port)},
        "dynamic_resources": {
            "lds_config": parts.source("lds.json", place.folder),
            "cds_config": parts.source("cds.json", place.folder),
        },
        "overload_manager": _overload(limits),
        "layered_runtime": {"layers": [{"name": "relay", "static_layer": balancing.RUNTIME}]},
        "stats_config": envoy_metrics.stats(),
    }


def _overload(limits: Limits) -> Dict[str, Any]:
    """Refuse and reset before the kernel kills: slow bodies are kept until they are whole.

    Without it some thirty slow bodies of 31 MiB ended a relay of 1 GiB, and everybody's streams.
    """
    monitors, heap = "envoy.resource_monitors.", "envoy.resource_monitors.fixed_heap"

    def action(name: str, **trigger: Any) -> Dict[str, Any]:
        return {"name": "envoy.overload_actions." + name, "triggers": [dict(trigger, name=heap)]}

    return {
        "refresh_interval": "0.25s",
        # Streams that hold a megabyte and more are told apart by how much they hold.
        "buffer_factory_config": {"minimum_account_to_track_power_of_two": 20},
        "resource_monitors": [
            parts.extension(
                monitors + "global_downstream_max_connections",
                "resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
                {
                    "max_active_downstream_connections": 20000,
                },
            ),
            parts.extension(
                heap,
                "resource_monitors.fixed_heap.v3.FixedHeapConfig",
                {
                    "max_heap_size_bytes": limits.max_heap,
                },
            ),
        ],
        "actions": [
            action("shrink_heap", threshold={"value": 0.7}),
            action("stop_accepting_requests", threshold={"value": 0.8}),
            # The largest first, and more of them the fuller it is.
            action(
                "reset_high_memory_stream",
                scaled={"scaling_threshold": 0.85, "saturation_threshold": 0.95},
            ),
        ],
    }
