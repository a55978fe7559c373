# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The Kubernetes objects that serve one model. Pure: data in, manifests out."""

from __future__ import annotations

import base64
import ipaddress
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple, Union

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    balancing,
    clients,
    drain,
    envoy,
    envoy_data,
    host_list,
    labels,
    monitors,
    services,
)

USER = 65532

# ``config:error``: Envoy's warning about a configuration file that it refuses prints the file's
# text, and with it the token.
ENVOY_ARGUMENTS = [
    "-c",
    envoy_data.FOLDER + "/bootstrap.json",
    "--disable-hot-restart",
    "--concurrency",
    "1",
    # From the first second of a drain on, every answer closes its connection.
    "--drain-strategy",
    "immediate",
    "--log-level",
    "warn",
    "--component-log-level",
    "config:error",
]


@dataclass(frozen=True)
class Model:
    """One model as the cluster side sees it.

    :ivar hosts: the hosts that may serve it, already checked
    :ivar adopt: whether a Service of its name that is somebody else's may be handed over to it
    :ivar adopt_from: who has been told to leave that Service's selector alone
    :ivar clients: who may call it, in the inventory's words; None for everybody
    :ivar metrics_clients: who may read its metrics, where there are clients; None for those
    :ivar monitor: the kind of monitor that it gets, or nothing
    :ivar service: what else there is to know when it is a service and not a model
    """

    name: str
    namespace: str
    port: int = 80
    replicas: int = 2
    health_path: str = "/health"
    limits: envoy_data.Limits = envoy_data.DEFAULT_LIMITS
    hosts: List[envoy_data.Host] = field(default_factory=list)
    adopt: bool = False
    adopt_from: Tuple[str, ...] = ()
    spread: balancing.Balancing = balancing.DEFAULT
    clients: Optional[List[Dict[str, Any]]] = None
    metrics_clients: Optional[List[Dict[str, Any]]] = None
    monitor: str = ""
    service: Optional[services.Service] = None

    @property
    def key(self) -> str:
        return "%s/%s" % (self.namespace, self.name)

    @property
    def direct(self) -> bool:
        """Whether it is reached without relays."""
        return self.service is not None and self.service.direct


def model_objects(
    model: Model, fleet: str, image: str, token: str, drain_key: str
) -> List[Dict[str, Any]]:
    """All objects of one model, in the order in which they are to be written.

    The network policy comes first so that no pod ever runs without it, the Service last.
    """
    files = envoy.render(
        model.namespace,
        model.name,
        model.hosts,
        token,
        drain_key,
        model.health_path,
        model.limits,
        spread=model.spread,
        service=model.service,
    )
    scraped = (
        [
            monitors.monitor(
                model.monitor,
                fleet,
                model.namespace,
                model.name,
                [host.name for host in model.hosts],
            )
        ]
        if model.monitor
        else []
    )
    return [
        network_policy(model, fleet),
        config_map(model, fleet, files.plain),
        secret(
            model,
            fleet,
            {key: base64.b64encode(text.encode()).decode() for key, text in files.secret.items()},
            model.hosts,
        ),
        _object(
            model,
            fleet,
            "policy/v1",
            "PodDisruptionBudget",
            spec={
                "maxUnavailable": 1,
                # Relays whose hosts are all down are not ready; they must not block a node's
                # drain.
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
                "selector": {"matchLabels": labels.pod_selector(fleet, model.name)},
            },
        ),
        deployment(model, fleet, image, drain_key, sorted(files.plain), sorted(files.secret)),
        service(model, fleet),
        *scraped,
    ]


def config_map(model: Model, fleet: str, data: Dict[str, str]) -> Dict[str, Any]:
    """The files of a model's relays that hold no secret."""
    return _object(model, fleet, "v1", "ConfigMap", data=data)


def secret(
    model: Model, fleet: str, data: Dict[str, str], hosts: List[envoy_data.Host]
) -> Dict[str, Any]:
    """The other files, in base64, and the list of all hosts."""
    item = _object(model, fleet, "v1", "Secret", type="Opaque", data=data)
    item["metadata"]["annotations"] = host_list.noted(hosts)
    return item


def namespace(name: str, fleet: str) -> Dict[str, Any]:
    """A namespace that the collection makes where none is."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels.fleet_labels(fleet)},
    }


def http_port(model: Model, target: Union[int, str]) -> Dict[str, Any]:
    """The port of a Service at which a model answers."""
    return {
        "name": "http",
        "port": model.port,
        "protocol": "TCP",
        "targetPort": target,
        "appProtocol": "http",
    }


def service(model: Model, fleet: str) -> Dict[str, Any]:
    item = _object(
        model,
        fleet,
        "v1",
        "Service",
        spec={
            "type": "ClusterIP",
            "selector": labels.pod_selector(fleet, model.name),
            "ports": [
                http_port(model, "http"),
                {
                    "name": "metrics",
                    "port": envoy_data.METRICS_PORT,
                    "protocol": "TCP",
                    "targetPort": "metrics",
                    "appProtocol": "http",
                },
            ],
        },
    )
    item["metadata"]["name"] = model.name
    return item


def network_policy(model: Model, fleet: str) -> Dict[str, Any]:
    """Relay pods reach their hosts' ingress and nothing else; the model's clients reach them.

    A host that is a DNS name may be anywhere, so its port is open to any address, and DNS with it.
    """
    egress: List[Dict[str, Any]] = []
    named = sorted({host.port for host in model.hosts if envoy_data.is_name(host.address)})
    for host in sorted(model.hosts, key=lambda item: item.name):
        if not envoy_data.is_name(host.address):
            address = ipaddress.ip_address(host.address)
            egress.append(
                {
                    "to": [{"ipBlock": {"cidr": "%s/%d" % (address, address.max_prefixlen)}}],
                    "ports": [{"protocol": "TCP", "port": host.port}],
                }
            )
    for port in named:
        egress.append({"ports": [{"protocol": "TCP", "port": port}]})
    if named:
        egress.append(
            {"ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]}
        )
    ingress = _ingress(model)
    item = _object(
        model,
        fleet,
        "networking.k8s.io/v1",
        "NetworkPolicy",
        spec={
            "podSelector": {"matchLabels": labels.pod_selector(fleet, model.name)},
            "policyTypes": ["Ingress", "Egress"] if ingress else ["Egress"],
            "egress": egress,
            **({"ingress": ingress} if ingress else {}),
        },
    )
    if model.monitor:
        item["metadata"]["annotations"] = {labels.MONITOR: model.monitor}
    return item


def _ingress(model: Model) -> List[Dict[str, Any]]:
    """Who reaches the relays; nothing where nobody is named, and everybody may.

    A rule for everybody would open the model's port over a tenant's own policies, since policies
    add up. So there is none, and metrics have readers of their own only where there are clients.
    """
    if model.clients is None:
        return []

    def rule(listed: Optional[List[Dict[str, Any]]], *ports: int) -> Dict[str, Any]:
        allowed: Dict[str, Any] = {"ports": [{"protocol": "TCP", "port": port} for port in ports]}
        return dict(allowed, **({} if listed is None else {"from": clients.peers(listed)}))

    readers = model.clients if model.metrics_clients is None else model.metrics_clients
    return [
        rule(model.clients, envoy_data.SERVICE_PORT),
        rule(readers, envoy_data.METRICS_PORT),
        # The kubelet's questions. Most policy engines let a node reach its own pods anyway, but
        # the API does not promise it; and these ports tell nobody anything.
        rule(None, envoy_data.PROBE_PORT, drain.PORT),
    ]


def deployment(
    model: Model, fleet: str, image: str, drain_key: str, plain: List[str], secret: List[str]
) -> Dict[str, Any]:
    """The relay pods. Nothing in here changes with hosts, certificates or tokens.

    :param plain: names of the files in the ConfigMap
    :param secret: names of the files in the Secret
    """
    selector = labels.pod_selector(fleet, model.name)
    pod_labels = labels.model_labels(fleet, model.name)
    container = {
        "name": "envoy",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["envoy"],
        "args": ENVOY_ARGUMENTS,
        "ports": [
            {"name": "http", "containerPort": envoy_data.SERVICE_PORT, "protocol": "TCP"},
            {"name": "probe", "containerPort": envoy_data.PROBE_PORT, "protocol": "TCP"},
            {"name": "drain", "containerPort": drain.PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": envoy_data.METRICS_PORT, "protocol": "TCP"},
        ],
        "startupProbe": _probe("/live", 1, 30),
        "livenessProbe": _probe("/live", 10, 3),
        # As long as requests wait for a host, the Service goes on sending them.
        "readinessProbe": _probe("/ready", 2, max(2, -(-model.limits.host_wait // 2))),
        "lifecycle": {"preStop": drain.pre_stop(drain_key)},
        "resources": {
            "requests": {"cpu": "50m", "memory": "64Mi"},
            "limits": {"memory": "%dMi" % (model.limits.memory // 1024**2)},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": envoy_data.FOLDER, "readOnly": True},
            {"name": "run", "mountPath": "/run/tether"},
        ],
    }
    # One volume from both sources: the kubelet replaces its files in one step, so Envoy never sees
    # one half of a change for long, and each change of either half makes it read both again.
    name = labels.relay_name(model.name)
    sources = [
        {"configMap": {"name": name, "items": _items(plain)}},
        {"secret": {"name": name, "items": _items(secret)}},
    ]
    return _object(
        model,
        fleet,
        "apps/v1",
        "Deployment",
        spec={
            "replicas": model.replicas,
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": selector},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
            },
            "template": {
                "metadata": {"labels": pod_labels},
                "spec": {
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": model.limits.drain_timeout,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": USER,
                        "runAsGroup": USER,
                        "fsGroup": USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "affinity": {
                        "podAntiAffinity": {
                            "preferredDuringSchedulingIgnoredDuringExecution": [
                                {
                                    "weight": 100,
                                    "podAffinityTerm": {
                                        "topologyKey": "kubernetes.io/hostname",
                                        "labelSelector": {"matchLabels": selector},
                                    },
                                }
                            ]
                        }
                    },
                    "topologySpreadConstraints": [
                        {
                            "maxSkew": 1,
                            "topologyKey": "topology.kubernetes.io/zone",
                            "whenUnsatisfiable": "ScheduleAnyway",
                            "labelSelector": {"matchLabels": selector},
                        }
                    ],
                    "containers": [container],
                    "volumes": [
                        {
                            "name": "config",
                            "projected": {"defaultMode": 0o440, "sources": sources},
                        },
                        {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                    ],
                },
            },
        },
    )


def _items(names: List[str]) -> List[Dict[str, str]]:
    return [{"key": name, "path": name} for name in names]


def _probe(path: str, period: int, failures: int) -> Dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "probe", "scheme": "HTTP"},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": 2,
    }


def _object(model: Model, fleet: str, api: str, kind: str, **rest: Any) -> Dict[str, Any]:
    marks = labels.model_labels(fleet, model.name)
    return of_model(model, api, kind, labels.relay_name(model.name), marks, **rest)


def of_model(
    model: Model, api: str, kind: str, name: str, marks: Dict[str, str], **rest: Any
) -> Dict[str, Any]:
    """An object in a model's namespace, with the labels ``marks``."""
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": name, "namespace": model.namespace, "labels": marks},
        **rest,
    }
