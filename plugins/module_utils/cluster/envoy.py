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

import hashlib
import ipaddress
import json
import ssl
from dataclasses import dataclass, field
from typing import Any, Dict, List, Tuple

from ansible_collections.tether.fleet.plugins.module_utils import marks
from ansible_collections.tether.fleet.plugins.module_utils.cluster import drain
from ansible_collections.tether.fleet.plugins.module_utils.cluster import envoy_parts as parts

FOLDER = "/etc/tether/relay"
SERVICE_PORT = 8080
PROBE_PORT = 8081
CLUSTER = "hosts"

# Retries wait up to a second each, half of one on average (full jitter).
_RETRY_SECONDS = 0.5

# Seconds after which a link that died is noticed: silence, then two questions without an answer.
_LINK_IDLE, _LINK_INTERVAL, _LINK_QUESTIONS = 4, 2, 2
_TCP = 6  # IPPROTO_TCP
_TCP_USER_TIMEOUT = 18  # Linux

_MATCH = "envoy.transport_socket_match"
_NEVER = "00" * 32


@dataclass(frozen=True)
class Host:
    """One GPU host as a relay sees it.

    :ivar name: the inventory's name
    :ivar address: IP address or DNS name, the one that the certificates carry
    :ivar port: the ingress port
    :ivar pins: the accepted leaves as PEM, one or, during a change, two; none: nothing matches
    :ivar draining: it gets no new request; those that run there go on
    """

    name: str
    address: str
    port: int
    pins: Tuple[str, ...] = ()
    draining: bool = False


@dataclass(frozen=True)
class Limits:
    """What one request may take.

    :ivar host_wait: seconds that it waits for a host to come back, about
    :ivar max_body: bytes of its body that are kept, so that another host can have it
    :ivar drain_timeout: seconds that it may go on when its relay is to end
    """

    host_wait: int = 30
    max_body: int = 32 * 1024 * 1024
    drain_timeout: int = 120

    @property
    def retries(self) -> int:
        return max(2, round(self.host_wait / _RETRY_SECONDS))

    @property
    def max_heap(self) -> int:
        """Bytes that one Envoy may use: itself, and sixteen bodies of the largest size."""
        return 96 * 1024 * 1024 + 16 * self.max_body

    @property
    def memory(self) -> int:
        """Bytes that the pod may use: a quarter above what Envoy allows itself."""
        return self.max_heap * 5 // 4


@dataclass(frozen=True)
class Place:
    """Where one Envoy runs: in a pod, or, in tests, beside others on a machine.

    :ivar listen: address to listen on; ``::`` for clusters whose pods have IPv6 first
    :ivar folder: of the files that it reads
    :ivar least_drain: seconds that a drain takes at least
    """

    listen: str = "0.0.0.0"  # noqa: S104 - inside a pod, behind its Service
    folder: str = FOLDER
    service_port: int = SERVICE_PORT
    probe_port: int = PROBE_PORT
    drain_port: int = drain.PORT
    admin_socket: str = drain.ADMIN_SOCKET
    least_drain: float = drain.LEAST_SECONDS


# Port 1 of the pod itself, where nobody listens.
_NOBODY = Host("nobody", "127.0.0.1", 1)

DEFAULT_LIMITS = Limits()
POD = Place()


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
) -> Files:
    """Everything that one relay's Envoy reads.

    :param drain_key: what the kubelet shows when the pod is to end, letters and digits
    """
    hosts = sorted(hosts, key=lambda host: host.name)
    endpoints = _load_assignment(hosts)
    by_name = any(is_name(host.address) for host in hosts)
    files = Files(
        plain={
            "bootstrap.json": parts.dump(_bootstrap(namespace, model, limits, place)),
            "lds.json": parts.response(
                [
                    _service_listener(place),
                    _probe_listener(place),
                    drain.listener(place.listen, place.drain_port, drain_key, place.least_drain),
                ],
                "config.listener.v3.Listener",
            ),
            "rds.json": parts.response(
                [_routes(namespace, model, limits)], "config.route.v3.RouteConfiguration"
            ),
        },
        secret={
            "cds.json": parts.response(
                [
                    _cluster(
                        namespace,
                        model,
                        hosts,
                        token,
                        health_path,
                        place.folder,
                        endpoints if by_name else None,
                    )
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
    if not by_name:
        files.plain["eds.json"] = parts.response(
            [endpoints], "config.endpoint.v3.ClusterLoadAssignment"
        )
    return files


def is_name(address: str) -> bool:
    """Whether an address is a DNS name rather than an IP address."""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return True
    return False


def pin_hash(pem: str) -> str:
    """The SHA-256 of a certificate's DER form, as Envoy's ``verify_certificate_hash`` takes it."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def mask_token(text: str, mask: str) -> str:
    """A rendered file with every token in it replaced, for a diff.

    A text that cannot be read as JSON is masked as a whole: it might hold anything.
    """
    try:
        data = json.loads(text)
    except ValueError:
        return mask
    return parts.dump(_masked(data, mask))


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
            {
                "name": monitors + "global_downstream_max_connections",
                "typed_config": {
                    "@type": parts.TYPE
                    + "extensions.resource_monitors.downstream_connections.v3"
                    + ".DownstreamConnectionsConfig",
                    "max_active_downstream_connections": 20000,
                },
            },
            {
                "name": heap,
                "typed_config": {
                    "@type": parts.TYPE
                    + "extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig",
                    "max_heap_size_bytes": limits.max_heap,
                },
            },
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


def _load_assignment(hosts: List[Host]) -> Dict[str, Any]:
    """Where requests may go.

    A host that drains is left out rather than given Envoy's state DRAINING: with every other host
    gone a panic would send to it all the same, and without a panic nothing would wait. When all
    drain, an address takes their place that refuses at once: so requests wait as for hosts that are
    down.
    """
    serving = [host for host in hosts if not host.draining] or [_NOBODY]
    return {
        "cluster_name": CLUSTER,
        "endpoints": [
            {
                "lb_endpoints": [
                    {
                        "endpoint": {
                            "address": parts.address(host.address, host.port),
                            "hostname": host.name,
                        },
                        "metadata": {"filter_metadata": {_MATCH: {"host": host.name}}},
                    }
                    for host in serving
                ]
            }
        ],
    }


def _cluster(
    namespace: str,
    model: str,
    hosts: List[Host],
    token: str,
    health_path: str,
    folder: str,
    inline: Any,
) -> Dict[str, Any]:
    limits = {
        "max_connections": 100000,
        "max_pending_requests": 100000,
        "max_requests": 100000,
        "max_retries": 10000,
    }
    cluster: Dict[str, Any] = {
        "name": CLUSTER,
        "connect_timeout": "2s",
        "lb_policy": "LEAST_REQUEST",
        # Else one that is left out would get requests as long as it passes its checks.
        "ignore_health_on_host_removal": True,
        # 0 would answer 503 at once when no host is healthy; with 1 a request dials and waits
        # through its retries for a host that is about to come back.
        "common_lb_config": {"healthy_panic_threshold": {"value": 1}},
        "circuit_breakers": {
            "thresholds": [
                dict(limits, priority="DEFAULT"),
                dict(limits, priority="HIGH"),
            ]
        },
        # A link that dies under a silent request (a long prefill) or under one that is being sent:
        # both are noticed within ten seconds (5 s + 3 x 2 s took 10.2 s with Envoy 1.40).
        "upstream_connection_options": {
            "tcp_keepalive": {
                "keepalive_time": _LINK_IDLE,
                "keepalive_interval": _LINK_INTERVAL,
                "keepalive_probes": _LINK_QUESTIONS,
            }
        },
        "upstream_bind_config": {
            "socket_options": [
                {
                    "description": "TCP_USER_TIMEOUT",
                    "level": _TCP,
                    "name": _TCP_USER_TIMEOUT,
                    "int_value": 1000 * (_LINK_IDLE + _LINK_INTERVAL * _LINK_QUESTIONS),
                    "state": "STATE_PREBIND",
                }
            ]
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": parts.TYPE + "extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http_protocol_options": {}},
                # Shorter than the ingress keeps idle connections, so that it is never the one to
                # close a connection that a POST has just been put on.
                "common_http_protocol_options": {"idle_timeout": "60s"},
            }
        },
        "health_checks": [
            {
                # Two misses: a host that is gone gets no more requests within three seconds.
                "timeout": "1s",
                "interval": "1s",
                # Without these the interval is 60 s as long as there is no traffic.
                "no_traffic_interval": "1s",
                "no_traffic_healthy_interval": "1s",
                "interval_jitter": "0.1s",
                "initial_jitter": "0.1s",
                "unhealthy_threshold": 2,
                "healthy_threshold": 1,
                # A line when a host's state changes: it says why a relay is not ready.
                "event_logger": [
                    {
                        "name": "envoy.health_check.event_sink.file",
                        "typed_config": {
                            "@type": parts.TYPE
                            + "extensions.health_check.event_sinks.file.v3"
                            + ".HealthCheckEventFileSink",
                            "event_log_path": "/dev/stdout",
                        },
                    }
                ],
                "http_health_check": {
                    "host": "relay",
                    "path": health_path,
                    "request_headers_to_add": [
                        parts.header("X-Relay-Namespace", namespace),
                        parts.header("X-Relay-Model", model),
                        parts.header("X-Relay-Token", token),
                    ],
                },
            }
        ],
        "transport_socket_matches": [
            {
                "name": host.name,
                "match": {"host": host.name},
                "transport_socket": _tls(_validation(host), host.address),
            }
            for host in hosts
        ],
        # An endpoint that no match claims would otherwise be dialled in clear text.
        "transport_socket": _tls({"verify_certificate_hash": [_NEVER]}, ""),
    }
    if inline is None:
        cluster.update(
            type="EDS",
            eds_cluster_config={"eds_config": parts.source("eds.json", folder)},
        )
    else:
        cluster.update(
            cluster_type={
                "name": "envoy.clusters.dns",
                "typed_config": {
                    "@type": parts.TYPE + "extensions.clusters.dns.v3.DnsCluster",
                    "dns_lookup_family": "V4_PREFERRED",
                    "dns_refresh_rate": "30s",
                },
            },
            load_assignment=inline,
        )
    return cluster


def _validation(host: Host) -> Dict[str, Any]:
    """Accept exactly the pinned leaves, still valid, and only for the address that is dialled.

    The hash alone would accept an expired leaf; the leaf as trusted CA brings the check of dates.
    """
    if not host.pins:
        return {"verify_certificate_hash": [_NEVER]}
    if is_name(host.address):
        name = {"san_type": "DNS", "matcher": {"exact": host.address}}
    else:
        exact = str(ipaddress.ip_address(host.address))
        name = {"san_type": "IP_ADDRESS", "matcher": {"exact": exact}}
    return {
        "trusted_ca": {"inline_string": "".join(_pem(pin) for pin in host.pins)},
        "verify_certificate_hash": [pin_hash(pin) for pin in host.pins],
        "match_typed_subject_alt_names": [name],
    }


def _pem(text: str) -> str:
    return text.strip() + "\n"


def _tls(validation: Dict[str, Any], address: str) -> Dict[str, Any]:
    config: Dict[str, Any] = {
        "@type": parts.TYPE + "extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {
            "tls_params": {
                "tls_minimum_protocol_version": "TLSv1_3",
                "tls_maximum_protocol_version": "TLSv1_3",
            },
            "validation_context": validation,
        },
    }
    if address and is_name(address):
        config["sni"] = address
    return {"name": "envoy.transport_sockets.tls", "typed_config": config}


def _routes(namespace: str, model: str, limits: Limits) -> Dict[str, Any]:
    return {
        "name": "service",
        "virtual_hosts": [
            {
                "name": "service",
                "domains": ["*"],
                "request_body_buffer_limit": limits.max_body,
                "routes": [
                    {
                        "match": {"prefix": "/"},
                        "request_headers_to_add": [
                            parts.header("X-Relay-Namespace", namespace),
                            parts.header("X-Relay-Model", model),
                        ],
                        "route": {
                            "cluster": CLUSTER,
                            # A prefill may be silent for ten minutes, a stream last an hour.
                            "timeout": "0s",
                            "idle_timeout": "0s",
                            "retry_policy": {
                                # Only a failed dial or handshake, and an ingress that says that
                                # it reached no engine: nothing of the request has left then. A
                                # POST that left is never repeated.
                                "retry_on": "connect-failure,retriable-headers",
                                "retriable_headers": [
                                    {
                                        "name": marks.INGRESS_ERROR,
                                        "string_match": {"exact": marks.ENGINE_UNREACHABLE},
                                    }
                                ],
                                "num_retries": limits.retries,
                                # The first is soon, for another host; the rest wait for one.
                                "retry_back_off": {
                                    "base_interval": "0.05s",
                                    "max_interval": "1s",
                                },
                                "retry_host_predicate": [
                                    {
                                        "name": "envoy.retry_host_predicates.previous_hosts",
                                        "typed_config": {
                                            "@type": parts.TYPE
                                            + "extensions.retry.host.previous_hosts.v3"
                                            + ".PreviousHostsPredicate"
                                        },
                                    }
                                ],
                                "host_selection_retry_max_attempts": 5,
                            },
                        },
                    }
                ],
            }
        ],
    }


def _service_listener(place: Place) -> Dict[str, Any]:
    manager = {
        "stat_prefix": "service",
        "rds": {
            "route_config_name": "service",
            "config_source": parts.source("rds.json", place.folder),
        },
        "stream_idle_timeout": "0s",
        "request_timeout": "0s",
        "request_headers_timeout": "30s",
        "common_http_protocol_options": {"idle_timeout": "0s"},
        "server_header_transformation": "PASS_THROUGH",
        "preserve_external_request_id": True,
        # The path goes on exactly as it came: what is allowed is the ingress's decision.
        "normalize_path": False,
        "merge_slashes": False,
        "path_with_escaped_slashes_action": "KEEP_UNCHANGED",
        # Before anything else looks at the request: what only the relay may say, and the x-envoy-
        # headers with which a client could order retries of a POST.
        "early_header_mutation_extensions": [
            {
                "name": "envoy.http.early_header_mutation.header_mutation",
                "typed_config": {
                    "@type": parts.TYPE
                    + "extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
                    "mutations": [
                        {"remove_on_match": {"key_matcher": {"prefix": prefix}}}
                        for prefix in ("x-relay-", "x-envoy-")
                    ],
                },
            }
        ],
        "local_reply_config": _local_replies(),
        "access_log": [_access_log()],
        "http_filters": [
            {
                "name": "envoy.filters.http.credential_injector",
                "typed_config": {
                    "@type": parts.TYPE
                    + "extensions.filters.http.credential_injector.v3.CredentialInjector",
                    "overwrite": True,
                    "credential": {
                        "name": "envoy.http.injected_credentials.generic",
                        "typed_config": {
                            "@type": parts.TYPE
                            + "extensions.http.injected_credentials.generic.v3.Generic",
                            "header": "X-Relay-Token",
                            "credential": {
                                "name": "token",
                                "sds_config": parts.source("sds.json", place.folder),
                            },
                        },
                    },
                },
            },
            parts.router(),
        ],
    }
    item = parts.listener("service", place.listen, place.service_port, manager)
    # What a drain is for: the kubelet's own questions go on while it lasts.
    item["traffic_direction"] = "INBOUND"
    return item


def _probe_listener(place: Place) -> Dict[str, Any]:
    """``/ready``: whether at least one host passes its checks. ``/live``: whether Envoy answers."""
    answer = {
        "name": "probe",
        "virtual_hosts": [
            {
                "name": "probe",
                "domains": ["*"],
                "routes": [
                    {"match": {"path": "/live"}, "direct_response": {"status": 200}},
                    {"match": {"prefix": "/"}, "direct_response": {"status": 404}},
                ],
            }
        ],
    }
    manager = {
        "stat_prefix": "probe",
        "route_config": answer,
        "http_filters": [
            {
                "name": "envoy.filters.http.health_check",
                "typed_config": {
                    "@type": parts.TYPE + "extensions.filters.http.health_check.v3.HealthCheck",
                    "pass_through_mode": False,
                    # The very state that the router acts on; one percent is one host.
                    "cluster_min_healthy_percentages": {CLUSTER: {"value": 1}},
                    "headers": [{"name": ":path", "string_match": {"exact": "/ready"}}],
                },
            },
            parts.router(),
        ],
    }
    return parts.always_answers(parts.listener("probe", place.listen, place.probe_port, manager))


def _local_replies() -> Dict[str, Any]:
    """What the relay itself answers, in the form that OpenAI clients read.

    Envoy's own text names addresses and TLS reasons, so none of it is passed on.
    """

    def reply(
        lowest: int, kind: str, message: str, headers: List[Dict[str, Any]]
    ) -> Dict[str, Any]:
        body = {
            "error": {"message": message, "type": kind, "code": "%RESPONSE_CODE%", "param": None}
        }
        return {
            "filter": {
                "status_code_filter": {
                    "comparison": {
                        "op": "GE",
                        "value": {
                            "default_value": lowest,
                            "runtime_key": "tether.local_reply.%d" % lowest,
                        },
                    }
                }
            },
            "body_format_override": {"json_format": body, "content_type": "application/json"},
            "headers_to_add": headers,
        }

    retry = [parts.header("Retry-After", "5")]
    return {
        "mappers": [
            reply(504, "server_error", "The model's host did not answer in time.", retry),
            reply(
                503,
                "server_error",
                "The relay reached no host of this model; try again in a few seconds.",
                retry,
            ),
            reply(500, "server_error", "The relay could not pass this request on.", []),
            reply(400, "invalid_request_error", "The relay refused this request.", []),
        ]
    }


def _access_log() -> Dict[str, Any]:
    """One JSON line a request to the container's output; no header that carries a secret."""
    return {
        "name": "envoy.access_loggers.stdout",
        "typed_config": {
            "@type": parts.TYPE + "extensions.access_loggers.stream.v3.StdoutAccessLog",
            "log_format": {
                "json_format": {
                    "time": "%START_TIME%",
                    "method": "%REQ(:METHOD)%",
                    # Without the query, which may carry a client's key.
                    "path": "%PATH(NQ)%",
                    "status": "%RESPONSE_CODE%",
                    "flags": "%RESPONSE_FLAGS%",
                    "details": "%RESPONSE_CODE_DETAILS%",
                    "received": "%BYTES_RECEIVED%",
                    "sent": "%BYTES_SENT%",
                    "ms": "%DURATION%",
                    "host": "%UPSTREAM_HOST%",
                    "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
                    "request_id": "%REQ(X-REQUEST-ID)%",
                }
            },
        },
    }
