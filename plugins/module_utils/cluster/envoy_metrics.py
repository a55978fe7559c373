# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Envoy's side towards Prometheus: each host's engine by its name, and the relay itself. Pure.

Nothing here shares a cluster, and so a queue or a limit, with clients' requests. A tenant's engine
writes what it likes into its page, so its answer is bounded in size and time, and its headers lead
a scraper nowhere else.
"""

from __future__ import annotations

from typing import Any, Dict, List

from ansible_collections.tether.fleet.plugins.module_utils import marks
from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    envoy_clients,
    envoy_hosts,
)
from ansible_collections.tether.fleet.plugins.module_utils.cluster import envoy_parts as parts
from ansible_collections.tether.fleet.plugins.module_utils.cluster.envoy_data import (
    Host,
    Place,
    is_name,
)

PATH = "/metrics"
# The last part of the path of the relay's own; no host may have this name.
RELAY = "relay"

# Prometheus gives up after ten seconds.
_TIMEOUT = "8s"
_MOST_BYTES = 1024 * 1024
# Reading from Envoy's own admin interface is work for the thread that reads its configuration too.
_RELAY_CLUSTER = "relay-metrics"
_HOST_CLUSTER = "metrics-"
_RELAY_PATH = "/stats/prometheus"

# The keys of a cluster that say where it leads.
_DIALLED = ("load_assignment", "type", "cluster_type")

# A scraper sends no body, and Envoy's admin interface would keep one of any size.
_MOST_ASKED = 1

_LUA = "envoy.filters.http.lua"
# The whole answer is awaited, so that the listener's limit applies: beyond it Envoy answers 500.
_BOUND = """
function envoy_on_response(handle)
  handle:body(true)
end
"""

_SEVERAL = "# There are several hosts: ask for each by its name, %s/<host>.\n" % PATH

# Of a scraper: what is no engine's business. Of an engine: what would lead a scraper elsewhere or
# make much out of little.
_NOT_FOR_ENGINES = ["authorization", "cookie", "accept-encoding", "proxy-authorization"]
_NOT_FROM_ENGINES = ["location", "set-cookie", "refresh", "link", "content-encoding"]


def path_of(host: str) -> str:
    """Where a host's metrics are, at the metrics port."""
    return "%s/%s" % (PATH, host)


def stats() -> Dict[str, Any]:
    """What Envoy counts: not the scrapes of each host, 400 lines a host (Envoy 1.40)."""
    left_out = [{"prefix": "cluster." + name} for name in (_HOST_CLUSTER, _RELAY_CLUSTER)]
    return {"stats_matcher": {"exclusion_list": {"patterns": left_out}}}


def clusters(hosts: List[Host], admin_socket: str) -> List[Dict[str, Any]]:
    """One a host and the relay's own."""
    own = {
        "name": _RELAY_CLUSTER,
        "type": "STATIC",
        "connect_timeout": "1s",
        "circuit_breakers": _limits(1),
        "load_assignment": _assignment(_RELAY_CLUSTER, parts.pipe(admin_socket)),
    }
    return [_cluster(host) for host in hosts] + [own]


def listener(namespace: str, model: str, hosts: List[Host], place: Place) -> Dict[str, Any]:
    """``/metrics/<host>`` and ``/metrics/relay``. ``/metrics`` is the host's where there is one,
    and an empty page where there are several."""
    routes = [_route(path_of(RELAY), _to_relay())]
    routes += [_route(path_of(host.name), _to_host(host, namespace, model)) for host in hosts]
    if len(hosts) == 1:
        routes.append(_route(PATH, _to_host(hosts[0], namespace, model)))
    else:
        routes.append(_route(PATH, _empty_page()))
    routes.append({"match": {"prefix": "/"}, "direct_response": {"status": 404}})
    manager = {
        "stat_prefix": "metrics",
        "route_config": {
            "name": "metrics",
            # A new host's route may be here before its cluster is.
            "validate_clusters": False,
            "virtual_hosts": [{"name": "metrics", "domains": ["*"], "routes": routes}],
        },
        "request_timeout": _TIMEOUT,
        "request_headers_timeout": _TIMEOUT,
        "stream_idle_timeout": _TIMEOUT,
        "common_http_protocol_options": {"idle_timeout": "180s"},
        "normalize_path": False,
        "early_header_mutation_extensions": [envoy_clients.without_forged_headers()],
        "local_reply_config": envoy_clients.local_replies(),
        "http_filters": [
            parts.extension(
                "envoy.filters.http.buffer",
                "filters.http.buffer.v3.Buffer",
                {"max_request_bytes": _MOST_ASKED},
            ),
            envoy_clients.token_injector(place.folder),
            parts.extension(
                _LUA, "filters.http.lua.v3.Lua", {"default_source_code": {"inline_string": _BOUND}}
            ),
            parts.router(),
        ],
    }
    item = parts.listener("metrics", place.listen, place.metrics_port, manager)
    item["per_connection_buffer_limit_bytes"] = _MOST_BYTES
    return item


def _route(path: str, action: Dict[str, Any]) -> Dict[str, Any]:
    """GET of exactly this, without a query: Envoy's own interface would read one."""
    headers = [
        {"name": name, "string_match": {"exact": value}}
        for name, value in ((":method", "GET"), (":path", path))
    ]
    return dict(action, match={"path": path, "headers": headers})


def _to_host(host: Host, namespace: str, model: str) -> Dict[str, Any]:
    return {
        "route": _forward(_name(host), marks.METRICS_PATH),
        "request_headers_to_add": [
            parts.header("X-Relay-Namespace", namespace),
            parts.header("X-Relay-Model", model),
        ],
        "request_headers_to_remove": _NOT_FOR_ENGINES,
        "response_headers_to_remove": _NOT_FROM_ENGINES,
    }


def _to_relay() -> Dict[str, Any]:
    """Without the token, which is the hosts' alone, and without a limit: this page is Envoy's."""

    def off(kind: str) -> Dict[str, Any]:
        return {"@type": parts.TYPE + kind, "disabled": True}

    return {
        "route": _forward(_RELAY_CLUSTER, _RELAY_PATH),
        # Envoy may read a form as the query that the route does not let through. (Its page of
        # metrics does not, Envoy 1.40; others do.)
        "request_headers_to_remove": ["content-type"],
        "typed_per_filter_config": {
            envoy_clients.INJECTOR: off("config.route.v3.FilterConfig"),
            _LUA: off("extensions.filters.http.lua.v3.LuaPerRoute"),
        },
    }


def _forward(cluster: str, path: str) -> Dict[str, Any]:
    return {"cluster": cluster, "prefix_rewrite": path, "timeout": _TIMEOUT}


def _empty_page() -> Dict[str, Any]:
    """Not quite empty: Envoy gives an empty answer no type, and Prometheus 3 wants one."""
    return {
        "direct_response": {"status": 200, "body": {"inline_string": _SEVERAL}},
        "response_headers_to_add": [parts.header("Content-Type", marks.METRICS_TYPE)],
    }


def _name(host: Host) -> str:
    return _HOST_CLUSTER + host.name


def with_marks(clusters: List[Dict[str, Any]], hosts: List[Host]) -> List[Dict[str, Any]]:
    """Live clusters, asked for metrics or not as their hosts' marks say; any other as it is."""
    dialled = {_name(host): _dialled(host) for host in hosts}
    return [
        {**{key: value for key, value in cluster.items() if key not in _DIALLED}, **where}
        if (where := dialled.get(str(cluster.get("name"))))
        else cluster
        for cluster in clusters
    ]


def _cluster(host: Host) -> Dict[str, Any]:
    return {
        "name": _name(host),
        "connect_timeout": "2s",
        "circuit_breakers": _limits(4),
        "typed_extension_protocol_options": envoy_hosts.http1(max_requests_per_connection=1),
        "transport_socket": envoy_hosts.tls(host),
        **_dialled(host),
    }


def _dialled(host: Host) -> Dict[str, Any]:
    """Where a host is asked, as ``_DIALLED`` of its cluster.

    One that drains is not asked: the drain waits until nobody is connected to it.
    """
    asked = envoy_hosts.NOBODY if host.draining else host
    where = _assignment(_name(host), parts.address(asked.address, asked.port))
    if is_name(asked.address):
        return {"load_assignment": where, "cluster_type": envoy_hosts.by_dns()}
    return {"load_assignment": where, "type": "STATIC"}


def _assignment(name: str, where: Dict[str, Any]) -> Dict[str, Any]:
    return {
        "cluster_name": name,
        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": where}}]}],
    }


def _limits(requests: int) -> Dict[str, Any]:
    most = {
        "max_connections": requests,
        "max_requests": requests,
        "max_pending_requests": 16,
        "max_retries": 0,
    }
    return {"thresholds": [dict(most, priority="DEFAULT")]}
