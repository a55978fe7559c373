# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The question to the cluster with which a converge begins, and what people are told then."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Dict, List

from ansible.module_utils.common.parameters import remove_values
from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_SPEC

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    arguments,
    certificates,
    monitors,
    survey,
)
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client
from ansible_collections.tether.fleet.plugins.module_utils.plan import printable

ARGUMENT_SPEC: Dict[str, Any] = {
    **AUTH_ARG_SPEC,
    **arguments.FLEET_ARG_SPEC,
    **arguments.LIMITS_ARG_SPEC,
    "image": {"type": "str", "required": True},
    "ca_certificate": {"type": "str", "required": True},
    "models": {"type": "list", "elements": "dict", "required": True},
    "hosts": {"type": "dict", "default": {}},
    "namespaces": {"type": "list", "elements": "str", "required": True},
    "create_namespaces": {"type": "bool", "default": False},
    "prune": {"type": "bool", "default": False},
    "monitor": {"type": "str", "default": monitors.NONE, "choices": list(monitors.CHOICES)},
    "probe_timeout": {"type": "int", "default": 60},
}


def missing_library() -> str:
    """A Python library that the controller lacks, or ""."""
    if find_spec("kubernetes") is None:
        return "kubernetes"
    return "" if certificates.CRYPTOGRAPHY_ERROR is None else "cryptography >= 42"


def ask(options: Dict[str, Any]) -> Dict[str, Any]:
    """Ask it.

    :param options: as ``ARGUMENT_SPEC`` has them
    :return: the fields that plugins/modules/cluster_survey.py documents, and ``warnings``
    :raises Refusal: when there is no answer
    """
    arguments.check_kubeconfig(options["kubeconfig"])
    arguments.check_names(options)
    access = {key: options[key] for key in AUTH_ARG_SPEC if options[key] is not None}
    client = Client(None, access)
    result = survey.survey(client, options)
    # Now, and not only after its hosts have been provisioned.
    warnings: List[str] = list(result.pop("told", []))
    for key, reason in result["blocked"].items():
        warnings.append("%s will not be served: %s" % (key, printable(reason)))
    for host, since in result["draining"].items():
        end = "until undrain.yml is run"
        if options["hosts"] and host not in options["hosts"]:
            end = "and it is not in the inventory any more; docs/remove.md says what is left"
        warnings.append(
            "host %s is draining since %s: relays send it nothing, %s"
            % (host, printable(since), end)
        )
    return dict(result, changed=False, requests=arguments.counts(client), warnings=warnings)


def without_secrets(result: Dict[str, Any], options: Dict[str, Any]) -> Dict[str, Any]:
    """A result in which no credential among the options stands, as a module's has none."""
    headers = options.get("proxy_headers") or {}
    values = [headers.get(key) for key in _secret(AUTH_ARG_SPEC["proxy_headers"]["options"])]
    # A path is no secret, and people need it; a whole kubeconfig is refused.
    values += [options[key] for key in _secret(AUTH_ARG_SPEC) if key != "kubeconfig"]
    return dict(remove_values(result, [value for value in values if value]))


def _secret(spec: Dict[str, Any]) -> List[str]:
    return [key for key, item in spec.items() if item.get("no_log")]
