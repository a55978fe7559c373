#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ensure the tokens that relays present and hosts accept."""

from __future__ import annotations

DOCUMENTATION = r"""
module: token
short_description: Ensure one token a namespace in the fleet's own namespace
version_added: "0.1.0"
description:
  - Makes a Secret C(token-<namespace>) with 256 random bits for each namespace that has none, and
    returns the tokens of all of them.
  - Makes the fleet's namespace when it is missing.
  - A token that exists is never changed here.
  - Runs on the controller.
author:
  - tether.fleet contributors (@tether-fleet)
options:
  namespaces:
    description:
      - The namespaces that have models.
    type: list
    elements: str
    required: true
attributes:
  check_mode:
    description: Predicts what a run changes; a token that does not exist yet is returned as a
      random stand-in that is written nowhere.
  diff_mode:
    description: Shows the objects with every secret value masked.
  idempotent:
    description: A second run makes one list request and changes nothing.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - tether.fleet.cluster
  - tether.fleet.attributes
seealso:
  - module: tether.fleet.relay
"""

EXAMPLES = r"""
- name: Tokens of all namespaces
  tether.fleet.token:
    fleet: demo
    namespaces: [team-a, team-b]
    kubeconfig: ~/.kube/config
  no_log: true
  register: fleet_tokens
"""

RETURN = r"""
tokens:
  description: The token of each namespace. Use C(no_log) on the task.
  returned: success
  type: dict
  sample:
    team-a:
      current: Zm9yIHRoZSBkb2N1bWVudGF0aW9uLCBub3QgcmVhbCE
      generation: "1"
changes:
  description: What was changed, or in check mode would be.
  returned: success
  type: list
  elements: dict
  sample:
    - {action: create, kind: Secret, name: tether-fleet/token-team-a}
requests:
  description: How many requests were made to the API server, by method.
  returned: success
  type: dict
  sample: {GET: 1}
"""

from ansible_collections.tether.fleet.plugins.module_utils.cluster import arguments, tokens
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client
from ansible_collections.tether.fleet.plugins.module_utils.cluster.writer import converge
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal


def main() -> None:
    spec = dict(
        arguments.FLEET_ARG_SPEC,
        namespaces={"type": "list", "elements": "str", "required": True},
    )
    module = arguments.start(spec)
    try:
        arguments.check_names(module.params)
        for namespace in module.params["namespaces"]:
            arguments.check_names({"fleet_namespace": namespace})
        client = Client(module)
        outcome = converge(client, tokens, dict(module.params), module.check_mode)
        result = outcome.result()
        result["requests"] = arguments.counts(client)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), **refusal.facts)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
