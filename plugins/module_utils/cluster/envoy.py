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

FOLDER = "/etc/tether/relay"
SERVICE_PORT = 8080
PROBE_PORT = 8081
CLUSTER = "hosts"

# A route that may retry holds the request's body until it has left: five MiB prompts with one of
# two hosts dead failed under Envoy's default.
BODY_LIMIT = 32 * 1024 * 1024

_TYPE = "type.googleapis.com/envoy."
_MATCH = "envoy.transport_socket_match"
_NEVER = "00" * 32


@dataclass(frozen=True)
class Host:
    """One GPU host as a relay sees it.

    :ivar name: the inventory's name
    :ivar address: IP address or DNS name, the one that the certificates carry
    :ivar port: the ingress port
    :ivar pins: the accepted leaves as PEM, one or, during a change, two; none: nothing matches
    """

    name: str
    address: str
    port: int
    pins: Tuple[str, ...] = ()


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
    health_path: str = "/health",
    listen: str = "0.0.0.0",  # noqa: S104 - inside a pod, behind its Service
    folder: str = FOLDER,
    service_port: int = SERVICE_PORT,
    probe_port: int = PROBE_PORT,
) -> Files:
    """Everything that one relay's Envoy reads.

    :param listen: address to listen on; ``::`` for clusters whose pods have IPv6 first
    """
    hosts = sorted(hosts, key=lambda host: host.name)
    endpoints = _load_assignment(hosts)
    by_name = any(is_name(host.address) for host in hosts)
    files = Files(
        plain={
            "bootstrap.json": _dump(_bootstrap(namespace, model, folder)),
            "lds.json": _response(
                [
                    _service_listener(listen, service_port, folder),
                    _probe_listener(listen, probe_port),
                ],
                "config.listener.v3.Listener",
            ),
            "rds.json": _response(
                [_routes(namespace, model)], "config.route.v3.RouteConfiguration"
            ),
        },
        secret={
            "cds.json": _response(
                [
                    _cluster(
                        namespace,
                        model,
                        hosts,
                        token,
                        health_path,
                        folder,
                        endpoints if by_name else None,
                    )
                ],
                "config.cluster.v3.Cluster",
            ),
            "sds.json": _response(
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
        files.plain["eds.json"] = _response([endpoints], "config.endpoint.v3.ClusterLoadAssignment")
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
    return _dump(_masked(data, mask))


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


def _dump(data: Any) -> str:
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def _response(resources: List[Dict[str, Any]], kind: str) -> str:
    typed = [dict(item, **{"@type": _TYPE + kind}) for item in resources]
    return _dump({"resources": typed})


def _source(name: str, folder: str) -> Dict[str, Any]:
    """A file to watch. The kubelet replaces a volume's files by moving one link of its folder."""
    return {
        "path_config_source": {
            "path": "%s/%s" % (folder, name),
            "watched_directory": {"path": folder},
        },
        "resource_api_version": "V3",
    }


def _bootstrap(namespace: str, model: str, folder: str) -> Dict[str, Any]:
    return {
        "node": {"id": "%s/%s" % (namespace, model), "cluster": "tether-relay"},
        "dynamic_resources": {
            "lds_config": _source("lds.json", folder),
            "cds_config": _source("cds.json", folder),
        },
        "overload_manager": {
            "resource_monitors": [
                {
                    "name": "envoy.resource_monitors.global_downstream_max_connections",
                    "typed_config": {
                        "@type": _TYPE
                        + "extensions.resource_monitors.downstream_connections.v3"
                        + ".DownstreamConnectionsConfig",
                        "max_active_downstream_connections": 20000,
                    },
                }
            ]
        },
    }


def _load_assignment(hosts: List[Host]) -> Dict[str, Any]:
    return {
        "cluster_name": CLUSTER,
        "endpoints": [
            {
                "lb_endpoints": [
                    {
                        "endpoint": {
                            "address": _address(host.address, host.port),
                            "hostname": host.name,
                        },
                        "metadata": {"filter_metadata": {_MATCH: {"host": host.name}}},
                    }
                    for host in hosts
                ]
            }
        ],
    }


def _address(address: str, port: int) -> Dict[str, Any]:
    return {"socket_address": {"address": address, "port_value": port}}


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
        # 0 would answer 503 at once when no host is healthy; with 1 a request dials and waits
        # through its retries for a host that is about to come back.
        "common_lb_config": {"healthy_panic_threshold": {"value": 1}},
        "circuit_breakers": {
            "thresholds": [
                dict(limits, priority="DEFAULT"),
                dict(limits, priority="HIGH"),
            ]
        },
        # A link that dies under a silent request (a long prefill) is noticed after ten seconds.
        "upstream_connection_options": {
            "tcp_keepalive": {
                "keepalive_probes": 3,
                "keepalive_time": 5,
                "keepalive_interval": 2,
            }
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": _TYPE + "extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http_protocol_options": {}},
                # Shorter than the ingress keeps idle connections, so that it is never the one to
                # close a connection that a POST has just been put on.
                "common_http_protocol_options": {"idle_timeout": "60s"},
            }
        },
        "health_checks": [
            {
                "timeout": "2s",
                "interval": "2s",
                # Without these the interval is 60 s as long as there is no traffic.
                "no_traffic_interval": "2s",
                "no_traffic_healthy_interval": "2s",
                "interval_jitter": "0.2s",
                "initial_jitter": "0.1s",
                "unhealthy_threshold": 2,
                "healthy_threshold": 1,
                # A line when a host's state changes: it says why a relay is not ready.
                "event_logger": [
                    {
                        "name": "envoy.health_check.event_sink.file",
                        "typed_config": {
                            "@type": _TYPE
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
                        _header("X-Relay-Namespace", namespace),
                        _header("X-Relay-Model", model),
                        _header("X-Relay-Token", token),
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
            eds_cluster_config={"eds_config": _source("eds.json", folder)},
        )
    else:
        cluster.update(
            cluster_type={
                "name": "envoy.clusters.dns",
                "typed_config": {
                    "@type": _TYPE + "extensions.clusters.dns.v3.DnsCluster",
                    "dns_lookup_family": "V4_PREFERRED",
                    "dns_refresh_rate": "30s",
                },
            },
            load_assignment=inline,
        )
    return cluster


def _header(key: str, value: str) -> Dict[str, Any]:
    """A header that replaces whatever came under its name.

    Envoy reads ``%`` in a value as the start of a command; doubled, it is itself.
    """
    return {
        "header": {"key": key, "value": value.replace("%", "%%")},
        "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
    }


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
        "@type": _TYPE + "extensions.transport_sockets.tls.v3.UpstreamTlsContext",
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


def _routes(namespace: str, model: str) -> Dict[str, Any]:
    return {
        "name": "service",
        "virtual_hosts": [
            {
                "name": "service",
                "domains": ["*"],
                "request_body_buffer_limit": BODY_LIMIT,
                "routes": [
                    {
                        "match": {"prefix": "/"},
                        "request_headers_to_add": [
                            _header("X-Relay-Namespace", namespace),
                            _header("X-Relay-Model", model),
                        ],
                        "route": {
                            "cluster": CLUSTER,
                            # A prefill may be silent for ten minutes, a stream last an hour.
                            "timeout": "0s",
                            "idle_timeout": "0s",
                            "retry_policy": {
                                # Only a failed dial or handshake: nothing of the request has
                                # left then. A POST that left is never repeated.
                                "retry_on": "connect-failure",
                                "num_retries": 6,
                                "retry_back_off": {
                                    "base_interval": "0.25s",
                                    "max_interval": "1s",
                                },
                                "retry_host_predicate": [
                                    {
                                        "name": "envoy.retry_host_predicates.previous_hosts",
                                        "typed_config": {
                                            "@type": _TYPE
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


def _service_listener(listen: str, port: int, folder: str) -> Dict[str, Any]:
    manager = {
        "stat_prefix": "service",
        "rds": {"route_config_name": "service", "config_source": _source("rds.json", folder)},
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
                    "@type": _TYPE
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
                    "@type": _TYPE
                    + "extensions.filters.http.credential_injector.v3.CredentialInjector",
                    "overwrite": True,
                    "credential": {
                        "name": "envoy.http.injected_credentials.generic",
                        "typed_config": {
                            "@type": _TYPE
                            + "extensions.http.injected_credentials.generic.v3.Generic",
                            "header": "X-Relay-Token",
                            "credential": {
                                "name": "token",
                                "sds_config": _source("sds.json", folder),
                            },
                        },
                    },
                },
            },
            _router(),
        ],
    }
    return _listener("service", listen, port, manager)


def _probe_listener(listen: str, port: int) -> Dict[str, Any]:
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
                    "@type": _TYPE + "extensions.filters.http.health_check.v3.HealthCheck",
                    "pass_through_mode": False,
                    # The very state that the router acts on; one percent is one host.
                    "cluster_min_healthy_percentages": {CLUSTER: {"value": 1}},
                    "headers": [{"name": ":path", "string_match": {"exact": "/ready"}}],
                },
            },
            _router(),
        ],
    }
    return _listener("probe", listen, port, manager)


def _listener(name: str, listen: str, port: int, manager: Dict[str, Any]) -> Dict[str, Any]:
    address = _address(listen, port)
    if ":" in listen:
        address["socket_address"]["ipv4_compat"] = True
    kind = "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
    return {
        "name": name,
        "address": address,
        "filter_chains": [
            {
                "filters": [
                    {
                        "name": "envoy.filters.network.http_connection_manager",
                        "typed_config": dict(manager, **{"@type": _TYPE + kind}),
                    }
                ]
            }
        ],
    }


def _router() -> Dict[str, Any]:
    return {
        "name": "envoy.filters.http.router",
        "typed_config": {
            "@type": _TYPE + "extensions.filters.http.router.v3.Router",
            "suppress_envoy_headers": True,
        },
    }


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

    retry = [_header("Retry-After", "5")]
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
            "@type": _TYPE + "extensions.access_loggers.stream.v3.StdoutAccessLog",
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
