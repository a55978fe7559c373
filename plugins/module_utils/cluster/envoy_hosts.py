# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Envoy's side towards the hosts: where requests go, over which TLS, and who is healthy. Pure."""

from __future__ import annotations

import hashlib
import ipaddress
import ssl
from typing import Any, Dict, List

from ansible_collections.tether.fleet.plugins.module_utils.cluster import balancing
from ansible_collections.tether.fleet.plugins.module_utils.cluster import envoy_parts as parts
from ansible_collections.tether.fleet.plugins.module_utils.cluster.envoy_data import (
    CLUSTER,
    Host,
    is_name,
)

# Seconds after which a link that died is noticed: silence, then two questions without an answer.
_LINK_IDLE, _LINK_INTERVAL, _LINK_QUESTIONS = 4, 2, 2
_MATCH = "envoy.transport_socket_match"
_NEVER = "00" * 32

# Port 1 of the pod itself, where nobody listens: it refuses at once.
NOBODY = Host("nobody", "127.0.0.1", 1)


def pin_hash(pem: str) -> str:
    """The SHA-256 of a certificate's DER form, as Envoy's ``verify_certificate_hash`` takes it."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def load_assignment(hosts: List[Host]) -> Dict[str, Any]:
    """Where requests may go.

    A host that drains is left out rather than given Envoy's state DRAINING: with every other host
    gone a panic would send to it all the same, and without a panic nothing would wait. When all
    drain, an address takes their place that refuses at once: so requests wait as for hosts that are
    down.
    """
    serving = [host for host in hosts if not host.draining] or [NOBODY]
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
                        "metadata": {
                            "filter_metadata": {
                                _MATCH: {"host": host.name},
                                **balancing.endpoint_metadata(host.name),
                            }
                        },
                    }
                    for host in serving
                ]
            }
        ],
    }


def cluster(
    namespace: str,
    model: str,
    hosts: List[Host],
    token: str,
    health_path: str,
    folder: str,
    inline: Any,
    spread: balancing.Balancing,
    health_status: int = 200,
) -> Dict[str, Any]:
    cluster: Dict[str, Any] = {
        "name": CLUSTER,
        # Of all hosts, draining or not: a drain changes the list of hosts and nothing else.
        "connect_timeout": "2s",
        **balancing.policy(spread, len(hosts)),
        # Else one that is left out would get requests as long as it passes its checks.
        "ignore_health_on_host_removal": True,
        # 0 would answer 503 at once when no host is healthy; with 1 a request dials and waits
        # through its retries for a host that is about to come back.
        "common_lb_config": {"healthy_panic_threshold": {"value": 1}},
        "circuit_breakers": balancing.circuit_breakers(spread, len(hosts)),
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
                parts.socket_option(
                    "TCP_USER_TIMEOUT",
                    1000 * (_LINK_IDLE + _LINK_INTERVAL * _LINK_QUESTIONS),
                )
            ]
        },
        "typed_extension_protocol_options": http1(),
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
                    parts.extension(
                        "envoy.health_check.event_sink.file",
                        "health_check.event_sinks.file.v3.HealthCheckEventFileSink",
                        {
                            "event_log_path": "/dev/stdout",
                        },
                    )
                ],
                "http_health_check": {
                    "host": "relay",
                    "path": health_path,
                    **_expected(health_status),
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
                "transport_socket": tls(host),
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
            cluster_type=by_dns(),
            load_assignment=inline,
        )
    return cluster


def http1(**more: int) -> Dict[str, Any]:
    """How to speak with an ingress.

    :param more: further options of each connection
    """
    return {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": parts.TYPE + "extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http_protocol_options": {}},
            # Shorter than the ingress keeps idle connections, so that it is never the one to
            # close a connection that a POST has just been put on.
            "common_http_protocol_options": dict(more, idle_timeout="60s"),
        }
    }


def by_dns() -> Dict[str, Any]:
    """The type of a cluster that has a host's name and not its address."""
    return parts.extension(
        "envoy.clusters.dns",
        "clusters.dns.v3.DnsCluster",
        {
            "dns_lookup_family": "V4_PREFERRED",
            "dns_refresh_rate": "30s",
        },
    )


def tls(host: Host) -> Dict[str, Any]:
    """TLS that accepts this host alone."""
    return _tls(_validation(host), host.address)


def _expected(status: int) -> Dict[str, Any]:
    """200 is what Envoy itself expects."""
    return {} if status == 200 else {"expected_statuses": [{"start": status, "end": status + 1}]}


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
    return parts.extension(
        "envoy.transport_sockets.tls", "transport_sockets.tls.v3.UpstreamTlsContext", config
    )
