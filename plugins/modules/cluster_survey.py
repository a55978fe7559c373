#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_survey
short_description: What differs in the cluster from what the fleet declares
version_added: "0.1.0"
description:
  - Runs the plan of M(tether.fleet.relay) without carrying it out, and asks each model for one
    token through its Service when nothing differs. It never writes.
  - Returns the hosts' records and the digests of the tokens too, so that a converge knows with this
    one call whether anything is to be done.
  - Runs on the controller, with the rights to read that M(tether.fleet.relay) needs, and in the
    Python that runs Ansible.
author:
  - tether.fleet contributors (@tether-fleet)
options:
  image:
    description: As in M(tether.fleet.relay).
    type: str
    required: true
  ca_certificate:
    description: As in M(tether.fleet.relay). Empty as long as there is no CA.
    type: str
    required: true
  models:
    description: As in M(tether.fleet.relay).
    type: list
    elements: dict
    required: true
  hosts:
    description: As in M(tether.fleet.relay).
    type: dict
    default: {}
  namespaces:
    description: The namespaces whose tokens are looked for.
    type: list
    elements: str
    required: true
  create_namespaces:
    description: As in M(tether.fleet.relay).
    type: bool
    default: false
  prune:
    description: As in M(tether.fleet.relay).
    type: bool
    default: false
  monitor:
    description: As in M(tether.fleet.relay).
    type: str
    default: none
    choices: [none, pod, service]
  host_wait:
    description: As in M(tether.fleet.relay).
    type: int
    default: 30
  max_body:
    description: As in M(tether.fleet.relay).
    type: int
    default: 33554432
  drain_timeout:
    description: As in M(tether.fleet.relay).
    type: int
    default: 120
  probe_timeout:
    description: Seconds within which a model has to answer.
    type: int
    default: 60
attributes:
  diff_mode:
    support: none
    description: It changes nothing.
  idempotent:
    description: It changes nothing.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - tether.fleet.cluster
  - tether.fleet.attributes
requirements:
  - cryptography >= 42
seealso:
  - module: tether.fleet.relay
  - module: tether.fleet.survey
"""

EXAMPLES = r"""
- name: Ask whether the cluster is as declared
  tether.fleet.cluster_survey:
    fleet: demo
    kubeconfig: ~/.kube/config
    image: docker.io/envoyproxy/envoy@sha256:{{ envoy_digest }}
    ca_certificate: "{{ lookup('ansible.builtin.file', 'fleet-ca.crt') }}"
    namespaces: [team-a]
    models:
      - {name: tiny, namespace: team-a, port: 80, replicas: 2, hosts: [gpu1, gpu2]}
"""

RETURN = r"""
differs:
  description: What differs, or which model does not answer; empty when nothing is to be done.
  returned: success
  type: str
models:
  description: As M(tether.fleet.relay) returns them.
  returned: success
  type: dict
orphans:
  description: Models of the fleet in the cluster that are not in O(models).
  returned: success
  type: list
  elements: str
blocked:
  description: By model, why it will not be served whatever is done on its hosts; warned of as well.
  returned: success
  type: dict
asked:
  description:
    - The models that were asked whether they answer. None is while something differs; one that
      drains, and a service that is exposed directly, never is.
  returned: success
  type: list
  elements: str
draining:
  description:
    - Hosts that relays leave alone, with the time since when; warned of as well. One that drains
      for the time of a restart is not among them.
  returned: success
  type: dict
registered:
  description: The hosts that have a registration record, those among them that is to be renewed.
  returned: success
  type: list
  elements: str
records:
  description: The hosts' registration records, by host, but for those that are to be renewed.
  returned: success
  type: dict
tokens:
  description: The sha256 of each namespace's token, as far as there is one.
  returned: success
  type: dict
requests:
  description: How many requests were made to the API server, by method.
  returned: success
  type: dict
  sample: {GET: 9, POST: 2}
"""
