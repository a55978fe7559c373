#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: accounts
short_description: System accounts of the fleet on a Linux host
version_added: "0.1.0"
description:
  - Makes system accounts, each with a group of its own name, without login shell, home or password.
  - One call takes all accounts of a host.
  - An account or group of that name that is a person's (an id of 1000 or more, or a login shell) is
    refused, never adopted.
author: tether.fleet contributors (@tether-fleet)
options:
  accounts:
    description: The accounts.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of account and group. V(tether-) and 1 to 25 of a-z, 0-9, - and _.
        type: str
        required: true
      groups:
        description:
          - Supplementary groups.
          - Groups that start with V(tether-) are set exactly to this list; memberships in other
            groups are added and never taken away.
        type: list
        elements: str
        default: []
      comment:
        description: The comment field of the account.
        type: str
        default: tether.fleet
      state:
        description: Whether the account and its group exist.
        type: str
        choices: [present, absent]
        default: present
extends_documentation_fragment:
  - tether.fleet.attributes
"""

EXAMPLES = r"""
- name: Make the accounts of the ingress and of one namespace's engines
  tether.fleet.accounts:
    accounts:
      - name: tether-ingress
      - name: tether-team-a
        groups: [video]
  become: true
"""

RETURN = r"""
changes:
  description: What was changed, or in check mode what the run would change.
  returned: always
  type: list
  elements: dict
  sample: [{"action": "create", "kind": "account", "name": "tether-ingress"}]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tether.fleet.plugins.module_utils import accounts
from ansible_collections.tether.fleet.plugins.module_utils.plan import run_module


def main() -> None:
    module = AnsibleModule(
        argument_spec=accounts.ARGUMENT_SPEC,
        supports_check_mode=True,
    )
    run_module(module, accounts, dict(module.params))


if __name__ == "__main__":
    main()
