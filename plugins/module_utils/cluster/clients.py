# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who may call a model: a list in the inventory's words, as peers of a NetworkPolicy. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Dict, List, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import forms

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

# The API server gives each namespace this label.
_NAME_LABEL = "kubernetes.io/metadata.name"


def mistakes(clients: Any) -> List[Tuple[str, str]]:
    """Everything that is wrong with a list: the place in it, and what was found and expected."""
    if not isinstance(clients, list) or not clients:
        return [("", "is no list of at least one client; leave it out where everybody may call")]
    found: List[Tuple[str, str]] = []
    for index, client in enumerate(clients):
        found += [("[%d]%s" % (index, key), text) for key, text in _of_one(client)]
    return found


def peers(clients: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The ``from`` of an ingress rule. The list has no mistakes, so it is not empty: an empty one
    would let everybody in."""
    return [_peer(client) for client in clients]


def _peer(client: Dict[str, Any]) -> Dict[str, Any]:
    if "cidr" in client:
        return {"ipBlock": {"cidr": client["cidr"]}}
    peer: Dict[str, Any] = {}
    if "namespace" in client:
        peer["namespaceSelector"] = {"matchLabels": {_NAME_LABEL: client["namespace"]}}
    if "pods" in client:
        peer["podSelector"] = {"matchLabels": dict(client["pods"])}
    return peer


def _of_one(client: Any) -> List[Tuple[str, str]]:
    if not isinstance(client, dict):
        return [("", "is no mapping with namespace, pods or cidr")]
    found = [
        (".%s" % key, "no such key; keys are namespace, pods, cidr")
        for key in client
        if key not in ("namespace", "pods", "cidr")
    ]
    if "cidr" in client:
        if len(client) > 1:
            found.append((".cidr", "stands alone; expected it without namespace and pods"))
        text = _network(client["cidr"])
        if text:
            found.append((".cidr", text))
    elif not {"namespace", "pods"} & set(client):
        found.append(("", "names nobody; expected namespace, pods or both, or cidr"))
    namespace, pods = client.get("namespace"), client.get("pods")
    if "namespace" in client and not (
        isinstance(namespace, str) and _NAMESPACE.fullmatch(namespace)
    ):
        found.append((".namespace", "is no namespace's name"))
    if "pods" in client:
        found += _labels(pods)
    return found


def _labels(pods: Any) -> List[Tuple[str, str]]:
    if not isinstance(pods, dict) or not pods:
        return [
            (".pods", "is no mapping of labels to values; leave it out for all of the namespace")
        ]
    return [
        (".pods", "%s is no label with a text as its value" % _shown(key))
        for key, value in pods.items()
        if not forms.is_label(key, value)
    ]


def _shown(value: Any) -> str:
    """A value of somebody's, short and in quotes."""
    return ascii(str(value)[:80])


def _network(value: Any) -> str:
    """Why a text is no network, or nothing."""
    if not isinstance(value, str):
        return "is no network such as 10.0.0.0/8, in quotes"
    try:
        network = ipaddress.ip_network(value, strict=False)
    except ValueError:
        return "%s is no network such as 10.0.0.0/8" % _shown(value)
    if str(network) != value:
        return "%s is no network in its usual form; expected %s" % (_shown(value), network)
    return ""
