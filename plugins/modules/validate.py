#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: validate
short_description: Check the fleet's inventory and turn it into a plan
version_added: "0.1.0"
description:
  - Checks C(fleet_models), C(fleet_services) and the groups C(fleet_hosts) and C(fleet_cluster)
    against the inventory contract, and reports every mistake at once, by model and key. A value
    whose template cannot be evaluated is one of them.
  - Checks the fleet's variables that later roles need with them, such as C(relay_image) and
    C(fleet_cluster_networks); docs/inventory.md lists all. They are taken from the hosts that use
    them, else from the task. Of the passphrase only its presence is looked at.
  - Runs on the controller alone, before any host is touched. It needs the whole inventory, not the
    hosts of the play, so it gives the same plan under C(--limit).
  - Warns of what has the right form and was hardly meant, such as placeholders of an example
    (addresses and names kept for documents, a digest of one digit) and files that are not on the
    controller.
  - Values are taken as data. Nothing in them is evaluated beyond what Ansible itself does with the
    variables of an inventory.
author: tether.fleet contributors (@tether-fleet)
requirements:
  - jsonschema (on the controller)
options:
  models:
    description:
      - The models, as in C(fleet_models), which is the default.
      - Taken raw, so that the contract's own messages name what is wrong with it.
    type: raw
  services:
    description:
      - The services, as in C(fleet_services), which is the default.
      - For each that is exposed directly there is a warning.
    type: raw
  fleet_name:
    description: The fleet's name. The default is the variable C(fleet_name).
    type: raw
  cluster_namespace:
    description:
      - The fleet's own namespace in the cluster. The default is the variable
        C(fleet_cluster_namespace), else V(tether-fleet).
    type: raw
  ingress_port:
    description:
      - The port of the hosts' ingress. The default is the variable C(ingress_port), else
        V(9443).
    type: raw
  base_dir:
    description:
      - The folder that relative paths under C(files[].source) are relative to. The default is the
        folder of the inventory.
    type: path
  lock:
    description:
      - Path of the lock; each engine's version there must be the one that its table of accepted
        arguments is for. The default is the variable C(fleet_lock_file), else the collection's own.
    type: path
attributes:
  check_mode:
    description: Changes nothing, in check mode or out of it.
  diff_mode:
    description: Has nothing to show, since it changes nothing.
  idempotent:
    description: Equal inventories give equal plans.
extends_documentation_fragment:
  - tether.fleet.attributes
"""

EXAMPLES = r"""
- name: Check the inventory
  tether.fleet.validate:
  run_once: true
  register: validated

- name: Check models that come from elsewhere
  tether.fleet.validate:
    fleet_name: demo
    models:
      - name: tiny
        namespace: team-a
        engine: llama_server
        hosts: [gpu1]
        files:
          - name: tiny.gguf
            source: models/tiny.gguf
            sha256: 8fbf934df9db42063a5793333c8aa379aab0765ca40180966e8266a3fede9131
  run_once: true
"""

RETURN = r"""
plan:
  description: What every part of the collection works from; docs/inventory.md describes it.
  returned: success
  type: dict
  sample:
    namespaces: [team-a]
    versions: {caddy: "2.11.7", llama_server: 0.10068.0}
"""
