# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Arguments that all cluster modules share, and how they start and end."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_SPEC
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.core import AnsibleK8SModule

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    envoy_data,
)
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

FLEET_ARG_SPEC: Dict[str, Any] = {
    "fleet": {"type": "str", "required": True},
    "fleet_namespace": {"type": "str", "default": "tether-fleet"},
    "lease_timeout": {"type": "int", "default": 60},
}

# What relays allow a request; the names are those of ``envoy_data.Limits``.
LIMITS_ARG_SPEC: Dict[str, Any] = {
    item.name: {"type": "int", "default": item.default} for item in fields(envoy_data.Limits)
}

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def start(spec: Dict[str, Any]) -> AnsibleK8SModule:
    """A module with kubernetes.core's authentication arguments and ours."""
    full = dict(AUTH_ARG_SPEC)
    full.update(spec)
    module = AnsibleK8SModule(
        module_class=AnsibleModule, argument_spec=full, supports_check_mode=True
    )
    try:
        check_kubeconfig(module.params["kubeconfig"])
    except Refusal as refusal:
        module.fail_json(msg=str(refusal))
    return module


def check_kubeconfig(value: Any) -> None:
    """Refuse a whole kubeconfig, which kubernetes.core takes too: one may name a program, which is
    run here.

    :raises Refusal: when it is more than a path
    """
    if not isinstance(value, (str, type(None))):
        raise Refusal(
            "kubeconfig",
            "a mapping",
            "the path of a file on the controller",
            "Write it into a file that only you can read, and name that",
        )


def check_names(params: Dict[str, Any]) -> None:
    """Refuse a fleet or namespace that Kubernetes would refuse later, in the middle of a run."""
    if "fleet" in params and not _LABEL_VALUE.fullmatch(params["fleet"]):
        raise Refusal(
            "fleet %r" % params["fleet"],
            "a name that no label can hold",
            "at most 63 letters, digits, -, _ and .",
            "Choose another fleet_name",
        )
    if "fleet_namespace" in params and not _NAMESPACE.fullmatch(params["fleet_namespace"]):
        raise Refusal(
            "fleet_namespace %r" % params["fleet_namespace"],
            "a name that no namespace can have",
            "at most 63 lower-case letters, digits and -",
            "Choose another fleet_cluster_namespace",
        )


def counts(client: Client) -> Dict[str, int]:
    """How many requests were made, by method, for the result of a module."""
    return dict(sorted(client.counts.items()))
