#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask each model a real question through its Service."""

from __future__ import annotations

DOCUMENTATION = r"""
module: relay_probe
short_description: Send a real request through each model's Service
version_added: "0.1.0"
description:
  - Asks each model for C(/v1/models) and for a chat completion of one token, by the API server's
    service proxy, so a controller outside the cluster's network can do it.
  - Fails when a model does not answer, and says who answered instead.
  - Runs on the controller and changes nothing.
author:
  - tether.fleet contributors (@tether-fleet)
options:
  models:
    description:
      - The models, as the validated plan has them. Read are C(name), C(namespace) and C(port)
        (80); other keys are left alone.
      - Of services (V(kind=service)) C(health_path) and C(health_status) too; that is all that they
        are asked for.
    type: list
    elements: dict
    required: true
  timeout:
    description:
      - How many seconds each model may take, both requests together.
    type: int
    default: 60
  chat:
    description:
      - Whether to ask for a token; otherwise C(/v1/models) alone.
    type: bool
    default: true
attributes:
  check_mode:
    description: The same, since nothing is changed.
  diff_mode:
    description: There is nothing to show.
    support: none
  idempotent:
    description: Nothing is changed, ever.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - tether.fleet.attributes
requirements:
  - kubernetes >= 24.2.0
  - PyYAML
seealso:
  - module: tether.fleet.relay
"""

EXAMPLES = r"""
- name: Every model answers
  tether.fleet.relay_probe:
    kubeconfig: ~/.kube/config
    models:
      - {name: tiny, namespace: team-a, port: 80}
    timeout: 60
"""

RETURN = r"""
models:
  description: What each model answered.
  returned: always
  type: dict
  contains:
    ok:
      description: Whether it answered both requests.
      type: bool
    status:
      description: The last answer's status, 0 for none.
      type: int
    latency:
      description: How many seconds the last answer took.
      type: float
    excerpt:
      description: The beginning of the last answer.
      type: str
    reason:
      description: Which request failed, and who answered.
      type: str
    model:
      description: The name by which the engine knows the model.
      type: str
"""

from ansible_collections.tether.fleet.plugins.module_utils.cluster import arguments, probe, relay
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal


def main() -> None:
    module = arguments.start(
        {
            "models": {"type": "list", "elements": "dict", "required": True},
            "timeout": {"type": "int", "default": 60},
            "chat": {"type": "bool", "default": True},
        }
    )
    try:
        models = relay.read_models(
            [dict(entry, hosts=entry.get("hosts") or ["-"]) for entry in module.params["models"]]
        )
        client = Client(module)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), **refusal.facts)
    results = probe.probe_all(client, models, module.params["timeout"], module.params["chat"])
    failed = sorted(key for key, answer in results.items() if not answer["ok"])
    if failed:
        module.fail_json(
            msg="%d of %d models do not answer.\n%s"
            % (
                len(failed),
                len(results),
                "\n".join("%s: %s" % (key, results[key]["reason"]) for key in failed),
            ),
            changed=False,
            models=results,
        )
    module.exit_json(changed=False, models=results)


if __name__ == "__main__":
    main()
