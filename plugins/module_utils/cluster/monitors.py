# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What tells a Prometheus operator to scrape relays: a PodMonitor or a ServiceMonitor. Pure.

Most clusters have neither kind. So that a run without them asks for none, the model's network
policy says in an annotation which there may be; it is written before the monitor and after its
removal.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Set

from ansible_collections.tether.fleet.plugins.module_utils.cluster import envoy_metrics, labels

NONE = "none"
KINDS = {"pod": "PodMonitor", "service": "ServiceMonitor"}
CHOICES = (NONE, *KINDS)

API = "monitoring.coreos.com/v1"
_ENDPOINTS = {"PodMonitor": "podMetricsEndpoints", "ServiceMonitor": "endpoints"}

# A scraped page's own host label, which a tenant's engine writes, does not count.
_HOST_LABEL = "tether_host"


def noted(items: Iterable[Dict[str, Any]]) -> Set[str]:
    """The kinds of monitors that there may be, by these network policies."""
    notes = [(item["metadata"].get("annotations") or {}).get(labels.MONITOR) for item in items]
    return {kind for kind in KINDS.values() if kind in notes}


def missing(kind: str) -> str:
    """What is said where the cluster does not know the kind."""
    return (
        "relays get no %s, which relay_monitor asks for: the cluster does not know that kind."
        " Install the Prometheus operator's CRDs and run again, or set relay_monitor: none" % kind
    )


def foreign(kind: str, namespace: str, name: str, owner: str) -> str:
    """What is said where somebody else has a monitor of the name."""
    return (
        "%s %s/%s exists and is not this fleet's (%s): it stays as it is, and relay_monitor makes"
        " none. Remove or rename it and run again, if it does not scrape these relays"
        % (kind, namespace, name, owner)
    )


def blind(namespace: str, model: str) -> str:
    """What is said where the Service was somebody else's: it has neither labels nor port."""
    return (
        "ServiceMonitor %s/%s finds nothing: Service %s is one that is adopted, without a port for"
        " metrics. Set relay_monitor: pod" % (namespace, labels.relay_name(model), model)
    )


def monitor(kind: str, fleet: str, namespace: str, model: str, hosts: List[str]) -> Dict[str, Any]:
    """The object: a target for each host's engine and one for the relay itself, in each pod."""
    paths = [(envoy_metrics.path_of(envoy_metrics.RELAY), "")]
    paths += [(envoy_metrics.path_of(host), host) for host in sorted(hosts)]
    return {
        "apiVersion": API,
        "kind": kind,
        "metadata": {
            "name": labels.relay_name(model),
            "namespace": namespace,
            "labels": labels.model_labels(fleet, model),
        },
        "spec": {
            "selector": {"matchLabels": labels.model_labels(fleet, model)},
            "jobLabel": labels.NAME,
            "podTargetLabels": [labels.MODEL],
            _ENDPOINTS[kind]: [
                {
                    "port": "metrics",
                    "path": path,
                    "relabelings": [
                        {"action": "replace", "targetLabel": _HOST_LABEL, "replacement": host}
                    ],
                }
                for path, host in paths
            ],
        },
    }
