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
author:
  - tether.fleet contributors (@tether-fleet)
extends_documentation_fragment:
  - tether.fleet.attributes
  - tether.fleet.model_store
  - tether.fleet.model_store.host
  - tether.fleet.delivery
  - tether.fleet.delivery.host
"""

EXAMPLES = r"""
- name: Empty the store
  tether.fleet.model_store_host:
    models: []
    prune: true
  become: true
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
from ansible_collections.tether.fleet.plugins.module_utils.plan import (
    Refusal,
    as_refusal,
    run_module,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec=model_store.ARGUMENT_SPEC,
        supports_check_mode=True,
    )
    try:
        model_store.check_entries(module.params["models"])
        delivery.take(module)
    except (Refusal, OSError) as error:
        module.fail_json(msg=str(as_refusal(error)), changed=False)
    run_module(module, model_store, module.params)


if __name__ == "__main__":
    main()
