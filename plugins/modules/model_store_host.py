#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: model_store_host
short_description: The part of tether.fleet.model_store that runs on the host
version_added: "0.1.0"
description:
  - Puts model files that have been delivered to the host into the store, for one namespace each.
  - M(tether.fleet.model_store) calls it and delivers what it asks for. Use that one in playbooks.
attributes:
  check_mode:
    description: Predicts the changes that the run then makes.
    support: full
  diff_mode:
    description: Shows each change.
    support: full
  idempotent:
    description: A second run changes nothing.
    support: full
options:
  models:
    description: Model files.
    type: list
    elements: dict
    required: true
    suboptions:
      namespace:
        description: Namespace whose engines use the file.
        type: str
        required: true
      name:
        description: File name, without folders.
        type: str
        required: true
      sha256:
        description: Digest of the file.
        type: str
        required: true
      size:
        description: Size of the file in bytes.
        type: int
      group:
        description: Group of the namespace's engine account. Without it only root reads the file.
        type: str
      state:
        description: V(absent) removes the file.
        type: str
        choices: [present, absent]
        default: present
  store:
    description: Folder of the store.
    type: path
    default: /var/lib/tether/models
  incoming:
    description: Folder for files on their way.
    type: path
    default: /var/lib/tether/incoming
  prune:
    description: Remove all files of the store that O(models) does not list.
    type: bool
    default: false
  verify:
    description: Read every file instead of comparing size and time.
    type: bool
    default: false
  deliver:
    description: Chunks that have been put on the host.
    type: dict
    suboptions:
      only:
        description: Take the chunks and do nothing else.
        type: bool
        default: false
      chunks:
        description: Chunks of files.
        type: list
        elements: dict
        required: true
        suboptions:
          file:
            description: Digest of the whole file.
            type: str
            required: true
          total:
            description: Size of the whole file in bytes.
            type: int
            required: true
          offset:
            description: Where the chunk starts.
            type: int
            required: true
          size:
            description: Size of the chunk in bytes.
            type: int
            required: true
          sha256:
            description: Digest of the chunk.
            type: str
            required: true
          path:
            description: Where the chunk was put; it is removed from there.
            type: path
            required: true
author:
  - tether.fleet contributors (@tether-fleet)
"""

EXAMPLES = r"""
- name: Empty the store
  tether.fleet.model_store_host:
    models: []
    prune: true
"""

RETURN = r"""
changes:
  description: What was, or in check mode would be, changed; C(action), C(kind) and C(name).
  returned: always
  type: list
  elements: dict
models:
  description: Per present file its C(namespace), C(name), C(sha256) and C(path).
  returned: always
  type: list
  elements: dict
needs:
  description: Files that have to be delivered first. While there are any, nothing is changed.
  returned: always
  type: list
  elements: dict
have:
  description: Bytes of each delivered file that are on the host.
  returned: with O(deliver.only)
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tether.fleet.plugins.module_utils import delivery, model_store
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal, run_module


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "models": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": model_store.ENTRY_SPEC,
            },
            "store": {"type": "path", "default": model_store.STORE},
            "incoming": {"type": "path", "default": delivery.INCOMING},
            "prune": {"type": "bool", "default": False},
            "verify": {"type": "bool", "default": False},
            "deliver": delivery.DELIVER_SPEC,
        },
        supports_check_mode=True,
    )
    try:
        model_store.check_entries(module.params["models"])
        delivery.take(module)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), changed=False)
    run_module(module, model_store, module.params)


if __name__ == "__main__":
    main()
