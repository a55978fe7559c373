# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Envoy's side towards clients and the kubelet: listeners, routes, answers, the log. Pure."""

from __future__ import annotations

import re
from typing import Any, Dict, List

from ansible_collections.tether.fleet.plugins.module_utils import marks
from ansible_collections.tether.fleet.plugins.module_utils.cluster import balancing
from ansible_collections.tether.fleet.plugins.module_utils.cluster import envoy_parts as parts
from ansible_collections.tether.fleet.plugins.module_utils.cluster.envoy_data import (
    CLUSTER,
    Limits,
    Place,
)

INJECTOR = "envoy.filters.http.credential_injector"

# Seconds after which a client is given up whose node died, or that takes nothing of what waits for
# it. Longer than towards hosts: TCP_USER_TIMEOUT also ends a stream whose reader pauses (Linux 6).
_CLIENT_IDLE, _CLIENT_INTERVAL, _CLIENT_QUESTIONS = 30, 10, 3

_WEBSOCKET = {"upgrade_type": "websocket", "enabled": True}


def service_listener(place: Place, limits: Limits, noun: str = "model") -> Dict[str, Any]:
    manager = {
        "stat_prefix": "service",
        "rds": {
            "route_config_name": "service",
            "config_source": parts.source("rds.json", place.folder),
        },
        "stream_idle_timeout": "0s",
        # Of a request's reception alone: neither its wait for a host nor its answer counts.
        "request_timeout": "%ds" % limits.reception,
        "request_headers_timeout": "30s",
        "common_http_protocol_options": {"idle_timeout": "0s"},
        "server_header_transformation": "PASS_THROUGH",
        "preserve_external_request_id": True,
        # The path goes on exactly as it came: what is allowed is the ingress's decision.
        "normalize_path": False,
        "merge_slashes": False,
        "path_with_escaped_slashes_action": "KEEP_UNCHANGED",
        "early_header_mutation_extensions": [without_forged_headers()],
        "local_reply_config": local_replies(noun),
        "access_log": [_access_log()],
        "http_filters": [
            token_injector(place.folder),
            parts.router(),
        ],
    }
    item = parts.listener("service", place.listen, place.service_port, manager)
    # What a drain is for: the kubelet's own questions go on while it lasts.
    item["traffic_direction"] = "INBOUND"
    item["socket_options"] = _given_up_when_dead()
    return item


def _given_up_when_dead() -> List[Dict[str, Any]]:
    """Options of the listening socket, which Linux hands on to each connection."""
    whole = _CLIENT_IDLE + _CLIENT_INTERVAL * _CLIENT_QUESTIONS
    return [
        parts.socket_option("SO_KEEPALIVE", 1),
        parts.socket_option("TCP_KEEPIDLE", _CLIENT_IDLE),
        parts.socket_option("TCP_KEEPINTVL", _CLIENT_INTERVAL),
        parts.socket_option("TCP_KEEPCNT", _CLIENT_QUESTIONS),
        parts.socket_option("TCP_USER_TIMEOUT", 1000 * whole),
    ]


def without_forged_headers() -> Dict[str, Any]:
    """Takes away, before anything else looks at a request, what only the relay may say, and the
    x-envoy- headers with which a client could order retries of a POST."""
    return parts.extension(
        "envoy.http.early_header_mutation.header_mutation",
        "http.early_header_mutation.header_mutation.v3.HeaderMutation",
        {
            "mutations": [
                {"remove_on_match": {"key_matcher": {"prefix": prefix}}}
                for prefix in ("x-relay-", "x-envoy-")
            ],
        },
    )


def token_injector(folder: str) -> Dict[str, Any]:
    """Adds the namespace's token, which Envoy reads from a file."""
    return parts.extension(
        INJECTOR,
        "filters.http.credential_injector.v3.CredentialInjector",
        {
            "overwrite": True,
            "credential": parts.extension(
                "envoy.http.injected_credentials.generic",
                "http.injected_credentials.generic.v3.Generic",
                {
                    "header": "X-Relay-Token",
                    "credential": {
                        "name": "token",
                        "sds_config": parts.source("sds.json", folder),
                    },
                },
            ),
        },
    )


def probe_listener(place: Place) -> Dict[str, Any]:
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
            parts.extension(
                "envoy.filters.http.health_check",
                "filters.http.health_check.v3.HealthCheck",
                {
                    "pass_through_mode": False,
                    # The very state that the router acts on; one percent is one host.
                    "cluster_min_healthy_percentages": {CLUSTER: {"value": 1}},
                    "headers": [{"name": ":path", "string_match": {"exact": "/ready"}}],
                },
            ),
            parts.router(),
        ],
    }
    return parts.always_answers(parts.listener("probe", place.listen, place.probe_port, manager))


def routes(
    namespace: str,
    model: str,
    limits: Limits,
    spread: balancing.Balancing,
    websocket: bool = False,
) -> Dict[str, Any]:
    return {
        "name": "service",
        "virtual_hosts": [
            {
                "name": "service",
                "domains": ["*"],
                "request_body_buffer_limit": limits.max_body,
                "routes": [
                    # The ingress serves more there than clients may have.
                    {
                        "match": {"safe_regex": {"regex": _reserved()}},
                        "direct_response": {"status": 403},
                    },
                    {
                        "match": {"prefix": "/"},
                        "request_headers_to_add": [
                            parts.header("X-Relay-Namespace", namespace),
                            parts.header("X-Relay-Model", model),
                        ],
                        "route": {
                            "cluster": CLUSTER,
                            **balancing.hash_policy(spread),
                            # A prefill may be silent for ten minutes, a stream last an hour.
                            "timeout": "0s",
                            "idle_timeout": "0s",
                            # Without it, and any other upgrade, Envoy answers 403.
                            **({"upgrade_configs": [_WEBSOCKET]} if websocket else {}),
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
                                    parts.extension(
                                        "envoy.retry_host_predicates.previous_hosts",
                                        "retry.host.previous_hosts.v3.PreviousHostsPredicate",
                                        {},
                                    )
                                ],
                                "host_selection_retry_max_attempts": balancing.REDRAWS,
                            },
                        },
                    },
                ],
            }
        ],
    }


def _reserved() -> str:
    """Matches a path with the reserved part anywhere in it, in any case and percent-encoding.

    The ingress takes the one exact spelling and refuses all others; this does not rest on that.
    """
    part = marks.RESERVED_PREFIX.strip("/")
    spelt = ["(?:%s|%%%02x|%%%02x)" % (re.escape(c), ord(c), ord(c.upper())) for c in part]
    return "(?i).*" + "".join(spelt) + ".*"


def local_replies(noun: str = "model") -> Dict[str, Any]:
    """What the relay itself answers, in the form that OpenAI clients read.

    Envoy's own text names addresses and TLS reasons, so none of it is passed on.
    """

    def at_least(lowest: int) -> Dict[str, Any]:
        key = "tether.local_reply.%d" % lowest
        value = {"default_value": lowest, "runtime_key": key}
        return {"status_code_filter": {"comparison": {"op": "GE", "value": value}}}

    def reply(
        when: Dict[str, Any], kind: str, message: str, headers: List[Dict[str, Any]]
    ) -> Dict[str, Any]:
        body = {
            "error": {
                "message": message.replace("model", noun),
                "type": kind,
                "code": "%RESPONSE_CODE%",
                "param": None,
            }
        }
        return {
            "filter": when,
            "body_format_override": {"json_format": body, "content_type": "application/json"},
            "headers_to_add": headers,
        }

    retry = [parts.header("Retry-After", "5")]
    return {
        "mappers": [
            reply(
                # Envoy's flag for a limit of its own.
                {"response_flag_filter": {"flags": ["UO"]}},
                "server_error",
                "The model is busy and its queue is full; try again in a few seconds.",
                retry,
            ),
            reply(at_least(504), "server_error", "The model's host did not answer in time.", retry),
            reply(
                at_least(503),
                "server_error",
                "The relay reached no host of this model; try again in a few seconds.",
                retry,
            ),
            reply(at_least(500), "server_error", "The relay could not pass this request on.", []),
            reply(at_least(400), "invalid_request_error", "The relay refused this request.", []),
        ]
    }


def _access_log() -> Dict[str, Any]:
    """One JSON line a request to the container's output; no header that carries a secret."""
    return parts.extension(
        "envoy.access_loggers.stdout",
        "access_loggers.stream.v3.StdoutAccessLog",
        {
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
    )
