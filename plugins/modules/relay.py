#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Make each model answer at its Service, through relays."""

from __future__ import annotations

DOCUMENTATION = r"""
module: relay
short_description: Serve models at Kubernetes Services through Envoy relays
version_added: "0.1.0"
description:
  - Makes for each model, in its namespace, a Service with the model's name and, named
    C(<model>-relay), a Deployment of Envoy, its ConfigMap and Secret, a PodDisruptionBudget and a
    NetworkPolicy.
  - The Service's second port, C(metrics) (9464), gives the metrics of each host's engine and of the
    relay.
  - A relay dials only hosts whose registration record is valid, pins exactly the certificates in
    it, and presents the namespace's token. Changes of hosts, certificates and tokens reach it as
    files, without a roll.
  - One call serves all models. It reads with one list request a kind; when nothing differs it
    writes nothing at all. Otherwise it takes a Lease, reads again and writes with server-side
    apply.
  - An object of one of these names that is not this fleet's is never touched. That model is
    refused as a whole, with a Warning event on the object; other models are served, and the module
    fails in the end.
  - Runs on the controller. It needs the right to list ConfigMaps, Secrets, Services, Deployments,
    PodDisruptionBudgets, NetworkPolicies and Namespaces in the whole cluster.
author:
  - tether.fleet contributors (@tether-fleet)
options:
  image:
    description:
      - The Envoy image, pinned by digest (C(@sha256:...)), with C(envoy) in its path.
    type: str
    required: true
  ca_certificate:
    description:
      - The fleet's CA as PEM; several certificates while it is being replaced.
      - In check mode it may be empty, for a fleet that has no CA yet.
    type: str
    required: true
  models:
    description:
      - The models, as the validated plan has them. Read are C(name), C(namespace), C(hosts),
        C(port) (80), C(replicas) (2), C(health_path) (C(/health)), C(adopt) (V(false)),
        C(adopt_from) (C([])), C(clients), C(metrics_clients), C(parallel) (0, no limit), C(queue)
        (1000), C(balancing) (C(least_request)) and C(affinity_header); other keys are left alone.
      - With C(adopt) a Service of that name that is somebody else's and has a selector is handed
        over to the relays once they are ready and one of them has answered a real request. Its
        address, ports and labels stay. It is given back, not deleted, when the model or C(adopt)
        goes.
      - Services are among them, with V(kind=service). Read are also C(expose), C(host_port),
        C(websocket), C(health_status) and C(ingress). One with V(expose=direct) gets a Service
        without a selector, an EndpointSlice of its hosts and a ConfigMap with their addresses, in
        place of relays.
    type: list
    elements: dict
    required: true
  hosts:
    description:
      - Where each host is by the inventory, C(address) and C(port) by its name. A record that says
        otherwise is refused.
      - For a host that is not listed, any address that its certificate names is taken.
    type: dict
    default: {}
  predicted_records:
    description:
      - Records that M(tether.fleet.registration) predicts in this check mode. Read in check mode
        alone, where they stand for the records in the cluster.
    type: list
    elements: dict
    default: []
  create_namespaces:
    description:
      - Make a model's namespace when it is missing. Otherwise such a model is refused.
    type: bool
    default: false
  prune:
    description:
      - Remove the relays of models of this fleet that O(models) does not list.
      - When V(false) they are only returned as RV(orphans).
    type: bool
    default: false
  monitor:
    description:
      - V(pod) makes a PodMonitor of each model, V(service) a ServiceMonitor, for a Prometheus
        operator. It names C(/metrics/relay) and C(/metrics/<host>) of each host.
      - Where the cluster does not know the kind, a warning says so, and nothing else fails.
      - V(none) removes those that were made.
    type: str
    default: none
    choices: [none, pod, service]
  host_wait:
    description:
      - About how many seconds a request waits for a host of its model to come back, before it is
        answered with status 503. When no host has come back within that time the relays are no
        longer ready, and the Service refuses at once.
      - Waiting is trying again, with pauses of half a second on average. A host that does not even
        refuse holds each try for two seconds more.
    type: int
    default: 30
  max_body:
    description:
      - The largest request body in bytes that survives the loss of a host. A relay keeps a body
        until it has left; a larger one is passed on as it comes and is not tried on another host.
      - The pods' memory limit follows from it, one and a quarter of 96 MiB and sixteen such bodies.
        When memory runs out, a relay refuses new requests, then ends those that hold the most.
      - Give the ingress the same value.
    type: int
    default: 33554432
  drain_timeout:
    description:
      - How many seconds a pod that is to end may take to finish its running requests and streams.
        It ends as soon as none runs any more, after ten seconds at the earliest.
      - It is the pods' grace period. Kubernetes looks again at a namespace that is being deleted
        only after about half of it, however soon the pods have ended.
    type: int
    default: 120
  wait:
    description:
      - Wait until all relays of each model run and reach a host.
    type: bool
    default: true
  wait_timeout:
    description:
      - How many seconds to wait, for all models together.
    type: int
    default: 120
attributes:
  diff_mode:
    description: Shows each object as YAML with every secret value masked.
  idempotent:
    description: >-
      A second run makes seven list requests, one more where services have an Ingress and one where
      they are exposed directly, and no write.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - tether.fleet.cluster
  - tether.fleet.attributes
requirements:
  - cryptography >= 42
seealso:
  - module: tether.fleet.registration
  - module: tether.fleet.token
  - module: tether.fleet.relay_probe
"""

EXAMPLES = r"""
- name: Relays of all models
  tether.fleet.relay:
    fleet: demo
    kubeconfig: ~/.kube/config
    image: docker.io/envoyproxy/envoy@sha256:{{ envoy_digest }}
    ca_certificate: "{{ lookup('ansible.builtin.file', 'fleet-ca.crt') }}"
    models:
      - {name: tiny, namespace: team-a, port: 80, replicas: 2, hosts: [gpu1]}
    hosts:
      gpu1: {address: 192.0.2.11, port: 9443}
    create_namespaces: true
    prune: true
"""

RETURN = r"""
models:
  description: What became of each model.
  returned: always, once the cluster was read
  type: dict
  contains:
    state:
      description:
        - V(served), V(waiting), V(refused) or, in check mode with changes, V(planned).
        - V(drained) while all of its hosts drain. Its relays are not waited for then.
      type: str
    reason:
      description: Why it is not served.
      type: str
    hosts:
      description: For each host V(accepted), or why relays do not dial it.
      type: dict
    draining:
      description: The accepted hosts that get no request now.
      type: list
      elements: str
    changes:
      description: What was changed for this model.
      type: list
orphans:
  description: Models of the fleet in the cluster that are not in O(models).
  returned: always, once the cluster was read
  type: list
  elements: str
not_released:
  description: Models of RV(orphans) whose adopted Service cannot be given back, and why. All their
    objects stay.
  returned: always, once the cluster was read
  type: dict
changes:
  description: What was changed, or in check mode would be.
  returned: always, once the cluster was read
  type: list
  elements: dict
  sample:
    - {action: create, kind: Service, name: team-a/tiny}
requests:
  description: How many requests were made to the API server, by method.
  returned: always, once the cluster was read
  type: dict
  sample: {GET: 7}
"""

from typing import Any, Dict

from ansible.module_utils.basic import missing_required_lib

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    arguments,
    certificates,
    monitors,
    registration,
    relay,
    transfer,
    wait,
)
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client
from ansible_collections.tether.fleet.plugins.module_utils.cluster.writer import (
    Outcome,
    converge,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

# Seconds for a relay's answer where nothing is waited for.
_LOOK = 10


def main() -> None:
    spec = dict(
        arguments.FLEET_ARG_SPEC,
        **arguments.LIMITS_ARG_SPEC,
        image={"type": "str", "required": True},
        ca_certificate={"type": "str", "required": True},
        models={"type": "list", "elements": "dict", "required": True},
        hosts={"type": "dict", "default": {}},
        predicted_records={"type": "list", "elements": "dict", "default": []},
        create_namespaces={"type": "bool", "default": False},
        prune={"type": "bool", "default": False},
        monitor={"type": "str", "default": monitors.NONE, "choices": list(monitors.CHOICES)},
        wait={"type": "bool", "default": True},
        wait_timeout={"type": "int", "default": 120},
    )
    module = arguments.start(spec)
    if certificates.CRYPTOGRAPHY_ERROR is not None:
        module.fail_json(msg=missing_required_lib("cryptography >= 42"))
    try:
        result = run(module)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), **refusal.facts)
    failed = {key: model for key, model in result["models"].items() if relay.needs_attention(model)}
    if failed:
        module.fail_json(msg=describe(failed, len(result["models"])), **result)
    module.exit_json(**result)


def run(module: Any) -> Dict[str, Any]:
    """Converge and, outside check mode, wait."""
    params = module.params
    arguments.check_names(params)
    relay.check_image(params["image"])
    # A check of a fresh fleet comes before its CA: predicted records carry no certificates then.
    if params["ca_certificate"].strip() or not module.check_mode:
        certificates.check_ca(params["ca_certificate"])
    predicted = params["predicted_records"] if module.check_mode else []
    sound, _refused = registration.sort_out(predicted, module.check_mode)
    desired = relay.wishes(params, sound, module.check_mode)
    client = Client(module)
    # A Service of somebody else waits until its relays have shown that they serve.
    first = desired if module.check_mode else dict(desired, hand_over=())
    outcome = converge(client, relay, first, module.check_mode)
    verdicts = outcome.plan.facts["verdicts"]
    refuse(verdicts, outcome)
    settle(client, module, verdicts, outcome)
    if not module.check_mode:
        timeout = params["wait_timeout"] if params["wait"] else _LOOK
        transfer.transfer(client, relay, desired, outcome, timeout)
        refuse(verdicts, outcome)
    tell(module, outcome, verdicts)
    result = outcome.result()
    for key in ("verdicts", "told"):
        result.pop(key)
    for key, verdict in verdicts.items():
        verdict.steps = [item for item in outcome.steps if item.data.get("model") == key]
    result["models"] = {key: verdict.result() for key, verdict in verdicts.items()}
    result["requests"] = arguments.counts(client)
    return result


def refuse(verdicts: Dict[str, Any], outcome: Outcome) -> None:
    """Note of each model that could not be written what stopped it."""
    for key, error in outcome.errors.items():
        if key in verdicts:
            verdicts[key].state, verdicts[key].reason = "refused", str(error)


def tell(module: Any, outcome: Outcome, verdicts: Dict[str, Any]) -> None:
    """Warn of what failed without stopping a model that is wanted."""
    for warning in [*outcome.warnings, *outcome.plan.facts["told"]]:
        module.warn(warning)
    kept = outcome.plan.facts["not_released"]
    lost = {key: str(error) for key, error in outcome.errors.items() if key not in verdicts}
    # Models that are no longer wanted, and could not be removed.
    for key, reason in {**kept, **lost}.items():
        module.warn("%s: %s" % (key, reason))


def settle(client: Client, module: Any, verdicts: Dict[str, Any], outcome: Outcome) -> None:
    """Say of each model that is to be served whether its relays run, waiting where asked to."""
    if module.check_mode:
        for verdict in verdicts.values():
            if verdict.state == "served" and (verdict.steps or verdict.transfer):
                verdict.state = "planned"
        return
    pending = [
        (key.split("/")[0], key.split("/")[1])
        for key, verdict in verdicts.items()
        if verdict.state == "served" and (verdict.steps or not verdict.ready) and not verdict.direct
    ]
    if not pending:
        return
    timeout = module.params["wait_timeout"] if module.params["wait"] else 0
    for model, lack in wait.wait(client, module.params["fleet"], pending, timeout).items():
        if lack is not None:
            verdict = verdicts["%s/%s" % model]
            verdict.state = "waiting"
            verdict.reason = "its relays are not ready, and ask %s: %s" % (
                ", ".join(verdict.dials),
                lack,
            )


def describe(failed: Dict[str, Any], total: int) -> str:
    """One line a model that is not served, or not by all of its hosts."""
    lines = []
    for key, model in sorted(failed.items()):
        if model["state"] in ("refused", "waiting"):
            lines.append("%s (%s): %s" % (key, model["state"], model["reason"]))
        else:
            refused = [item for item in sorted(model["hosts"].items()) if item[1] != "accepted"]
            lines.append(
                "%s (served without %s): %s"
                % (
                    key,
                    ", ".join(item[0] for item in refused),
                    "; ".join("%s: %s" % item for item in refused),
                )
            )
    needs = "model needs" if total == 1 else "models need"
    rest = ", the others are served as declared" if len(failed) < total else ""
    head = "%d of %d %s attention%s." % (len(failed), total, needs, rest)
    return "\n".join([head, *lines])


if __name__ == "__main__":
    main()
