#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write or remove the records by which the cluster side knows hosts."""

from __future__ import annotations

DOCUMENTATION = r"""
module: registration
short_description: Write, mark or remove registration records of hosts
version_added: "0.1.0"
description:
  - A record is a ConfigMap C(host-<host>) in the fleet's namespace with the host's address, port,
    certificates, ingress and engines. It is all that M(tether.fleet.relay) knows of a host.
  - All records are checked before the first is written; one that is as it should be is not
    written. A record that is somebody else's stays as it is; the others are written, and the module
    fails in the end.
  - Where hosts are marked, relays and directly exposed services are told in the same call. That
    works from what is in the cluster, whatever any inventory says, and changes nothing else of
    them. It needs the right to list and patch ConfigMaps, Secrets and EndpointSlices, and to list
    and patch Pods, in the whole cluster.
  - Runs on the controller.
author:
  - tether.fleet contributors (@tether-fleet)
options:
  state:
    description:
      - V(present) writes O(records); V(absent) removes the records of O(hosts).
      - V(draining) notes in the records of O(hosts) since when they drain, and refuses all of them
        when one has no record. V(serving) takes that away where it is. Relays leave out the hosts
        that drain, and directly exposed services those that drain otherwise than for a restart; it
        does not wait until that has taken effect (M(tether.fleet.drained) does). A host that is
        registered anew goes on to drain.
      - With these three, what of relays stands otherwise than the marks say is brought to them, of
        hosts that are not in O(hosts), too.
      - V(restarting) is V(draining) for the time of a restart. Exactly O(hosts) are marked so;
        whoever else was serves again, and hosts that drain otherwise stay as they are. With no
        hosts it takes all such marks away, as V(present) does for the hosts that it registers.
    type: str
    choices: [present, absent, draining, restarting, serving]
    default: present
  records:
    description:
      - The records, each with C(schema) (1), C(host), C(address), C(port), C(certificates) (one
        PEM certificate, two during a change), C(ingress) (C(version)) and C(engines) (a list of
        C(namespace), C(model), C(engine) and C(version)).
      - In check mode C(certificates) may be empty, for a host whose key does not exist yet.
    type: list
    elements: dict
    default: []
  hosts:
    description:
      - Inventory names of the hosts whose records are removed or marked.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Predicts what a run changes and returns the records as they would be.
  diff_mode:
    description: Shows the records, and where hosts are marked the lists of endpoints.
  idempotent:
    description: >-
      A second run makes one list request, or three where hosts are marked, and changes nothing.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - tether.fleet.cluster
  - tether.fleet.attributes
seealso:
  - module: tether.fleet.relay
  - module: tether.fleet.drained
"""

EXAMPLES = r"""
- name: Register a host
  tether.fleet.registration:
    fleet: demo
    kubeconfig: ~/.kube/config
    records:
      - schema: 1
        host: gpu1
        address: 192.0.2.11
        port: 9443
        certificates: ["{{ lookup('ansible.builtin.file', 'gpu1.crt') }}"]
        ingress: {version: 2.11.7}
        engines:
          - {namespace: team-a, model: tiny, engine: llama_server, version: 0.10068.0}

- name: Forget a host
  tether.fleet.registration:
    fleet: demo
    kubeconfig: ~/.kube/config
    state: absent
    hosts: [gpu2]

- name: Note that a host drains, and have relays leave it out
  tether.fleet.registration:
    fleet: demo
    kubeconfig: ~/.kube/config
    state: draining
    hosts: [gpu1]

- name: Note that a host serves again
  tether.fleet.registration:
    fleet: demo
    kubeconfig: ~/.kube/config
    state: serving
    hosts: [gpu1]
"""

RETURN = r"""
records:
  description: The records that were given, by host.
  returned: success
  type: dict
refused:
  description: Why records could not be written, by host.
  returned: always
  type: dict
endpoints:
  description:
    - What was changed of each model or service that sends requests to other hosts than before, by
      namespace and name. In check mode what would be.
  returned: success, where hosts are marked
  type: dict
  sample:
    team-a/tiny:
      changes:
        - {action: update, kind: ConfigMap, name: team-a/tiny-relay}
        - {action: update, kind: Secret, name: team-a/tiny-relay}
marked:
  description: The hosts of which it is new that they drain (V(draining)) or serve (V(serving)).
  returned: success, where hosts are marked
  type: dict
  sample: {gpu1: draining}
untold:
  description:
    - Why models and services could not be told, or not wholly, by namespace and name. Their
      requests may go where they went before. The module warns of them, and does not fail.
  returned: success, where hosts are marked
  type: dict
changes:
  description: What was changed, or in check mode would be.
  returned: success
  type: list
  elements: dict
  sample:
    - {action: create, kind: ConfigMap, name: tether-fleet/host-gpu1}
requests:
  description: How many requests were made to the API server, by method.
  returned: success
  type: dict
  sample: {GET: 1}
"""

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    arguments,
    marking,
    registration,
)
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client
from ansible_collections.tether.fleet.plugins.module_utils.cluster.writer import converge
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

# The states that mark records.
MARKS = (*marking.BY_HAND, "restarting")


def main() -> None:
    spec = dict(
        arguments.FLEET_ARG_SPEC,
        state={
            "type": "str",
            "choices": ["present", "absent", *MARKS],
            "default": "present",
        },
        records={"type": "list", "elements": "dict", "default": []},
        hosts={"type": "list", "elements": "str", "default": []},
    )
    module = arguments.start(spec)
    try:
        arguments.check_names(module.params)
        # Only what is to be written has to have a form.
        given = module.params["records"] if module.params["state"] == "present" else []
        records, refused = registration.sort_out(given, module.check_mode)
        client = Client(module)
        desired = dict(module.params, records=records)
        marks = module.params["state"] in MARKS
        component = marking if marks else registration
        outcome = converge(client, component, desired, module.check_mode)
        result = outcome.result()
        if marks:
            result.update(marking.told(outcome))
            for text in result.pop("warnings"):
                module.warn(text)
        result["refused"] = {**refused, **result["refused"]}
        result["requests"] = arguments.counts(client)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), **refusal.facts)
    if result["refused"]:
        module.fail_json(
            msg="%d of %d hosts could not be registered, the others are.\n%s"
            % (
                len(result["refused"]),
                len(module.params["records"]),
                "\n".join("%s: %s" % item for item in sorted(result["refused"].items())),
            ),
            **result,
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
