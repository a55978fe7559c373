# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Envoy's side towards clients and the kubelet: listeners, routes, answers, the log. Pure."""

from __future__ import annotations

from typing import Any, Dict, List

from ansible_collections.tether.fleet.plugins.module_utils import marks
from ansible_collections.tether.fleet.plugins.module_utils.cluster import envoy_parts as parts
from ansible_collections.tether.fleet.plugins.module_utils.cluster.envoy_data import (
    CLUSTER,
    Limits,
    Place,
)

_WEBSOCKET = {"upgrade_type": "websocket", "enabled": True}


def service_listener(place: Place, noun: str = "model") -> Dict[str, Any]:
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
            parts.extension(
                "envoy.http.early_header_mutation.header_mutation",
                "http.early_header_mutation.header_mutation.v3.HeaderMutation",
                {
                    "mutations": [
                        {"remove_on_match": {"key_matcher": {"prefix": prefix}}}
                        for prefix in ("x-relay-", "x-envoy-")
                    ],
                },
            )
        ],
        "local_reply_config": _local_replies(noun),
        "access_log": [_access_log()],
        "http_filters": [
            parts.extension(
                "envoy.filters.http.credential_injector",
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
                                "sds_config": parts.source("sds.json", place.folder),
                            },
                        },
                    ),
                },
            ),
            parts.router(),
        ],
    }
    item = parts.listener("service", place.listen, place.service_port, manager)
    # What a drain is for: the kubelet's own questions go on while it lasts.
    item["traffic_direction"] = "INBOUND"
    return item


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


def routes(namespace: str, model: str, limits: Limits, websocket: bool = False) -> Dict[str, Any]:
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
                                "host_selection_retry_max_attempts": 5,
                            },
                        },
                    }
                ],
            }
        ],
    }


def _local_replies(noun: str) -> Dict[str, Any]:
    """What the relay itself answers, in the form that OpenAI clients read.

    Envoy's own text names addresses and TLS reasons, so none of it is passed on.
    """

    def reply(
        lowest: int, kind: str, message: str, headers: List[Dict[str, Any]]
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
