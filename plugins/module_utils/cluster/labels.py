# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The labels and names that mark what belongs to a fleet in the cluster.

Everything that the collection reads back is found by these labels, with one request a kind, so a
run costs the same number of requests for one model and for a hundred.
"""

from __future__ import annotations

from typing import Any, Dict, Optional

MANAGER = "tether.fleet"
MANAGED_BY = "app.kubernetes.io/managed-by"
FLEET = "tether.fleet/fleet"
MODEL = "tether.fleet/model"
RECORD = "tether.fleet/record"
COMPONENT = "app.kubernetes.io/component"
NAME = "app.kubernetes.io/name"
# What COMPONENT says of an object: that relays serve, or that nothing stands before its hosts.
RELAY, DIRECT = "relay", "direct"

# Touched on relay pods when their files change: the kubelet then looks at once instead of within
# its sync period of about a minute.
CONFIG_ANNOTATION = "tether.fleet/config"

# Set on a Deployment so that its pods are tried again; under a field manager of its own, or the
# next plan would find a field that nobody wants.
RETRY_ANNOTATION = "tether.fleet/retry"
RETRY_MANAGER = MANAGER + "-retry"

# On objects of a service that has an Ingress too: what every run lists says so.
INGRESS = "tether.fleet/ingress"

# Kubernetes' own, of EndpointSlices: whose they are, and of which Service.
SLICE_MANAGER = "endpointslice.kubernetes.io/managed-by"
SLICE_SERVICE = "kubernetes.io/service-name"

# On a host's record, with the time since when: relays send that host nothing new.
DRAINING = "tether.fleet/draining"

# On the Secret of relays and on the EndpointSlice of a directly exposed service: all of its hosts,
# those that drain among them.
HOSTS = "tether.fleet/hosts"

# On a Service that was somebody else's: what it selected before relays served it. Beside it are the
# labels FLEET and MODEL; all other labels stay its owner's.
ADOPTED = "tether.fleet/adopted"
# On a model's network policy: the kind of monitor that the model may have.
MONITOR = "tether.fleet/monitor"

STATE_NAME = "state"
LEASE_NAME = "tether-writer"


def fleet_labels(fleet: str) -> Dict[str, str]:
    """The labels that every object of a fleet carries."""
    return {MANAGED_BY: MANAGER, FLEET: fleet}


def model_labels(fleet: str, model: str) -> Dict[str, str]:
    """The labels of an object that serves one model."""
    labels = fleet_labels(fleet)
    labels.update({MODEL: model, NAME: relay_name(model), COMPONENT: RELAY})
    return labels


def service_labels(fleet: str, name: str, component: str) -> Dict[str, str]:
    """The labels of an object of a service that no relay needs."""
    return dict(fleet_labels(fleet), **{MODEL: name, NAME: name, COMPONENT: component})


def record_labels(fleet: str, kind: str) -> Dict[str, str]:
    """The labels of a fleet's own records; ``kind`` is ``host``, ``token`` or ``state``."""
    labels = fleet_labels(fleet)
    labels[RECORD] = kind
    return labels


def pod_selector(fleet: str, model: str) -> Dict[str, str]:
    """What selects the relay pods of a model inside its namespace."""
    return {FLEET: fleet, MODEL: model, COMPONENT: RELAY}


def fleet_selector(fleet: str, record: Optional[str] = None) -> str:
    """A label selector for the API: everything of a fleet, or its records of one kind."""
    return query(record_labels(fleet, record) if record else fleet_labels(fleet))


def query(labels: Dict[str, str]) -> str:
    """A label selector for the API: all of these."""
    return ",".join("%s=%s" % item for item in sorted(labels.items()))


def is_ours(item: Dict[str, Any], fleet: str) -> bool:
    """Whether an object carries the labels of this fleet."""
    labels = item.get("metadata", {}).get("labels") or {}
    return all(labels.get(key) == value for key, value in fleet_labels(fleet).items())


def relay_name(model: str) -> str:
    """The name of all objects of a model except its Service, which has the model's own."""
    return model + "-relay"


def direct_name(service: str) -> str:
    """The name of a directly exposed service's objects, except its Service."""
    return service + "-direct"


def record_host(name: str) -> str:
    """The host whose record has this name; nothing where no host's has."""
    prefix = record_name("")
    return name[len(prefix) :] if name.startswith(prefix) else ""


def token_name(namespace: str) -> str:
    return "token-" + namespace


def record_name(host: str) -> str:
    return "host-" + host
