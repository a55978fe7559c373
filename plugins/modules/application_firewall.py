#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: application_firewall
short_description: Programs that a Mac's application firewall lets in
version_added: "0.1.0"
description:
  - Lets other hosts reach programs of the fleet through the application firewall of macOS, which is
    beside pf and asks for the program.
  - Changes nothing where that firewall is off, and never switches it on or off.
  - Entries of other programs below C(/opt/tether), those of former versions, are removed. Nobody
    else's are touched.
  - What it says after a change is not believed; its list is read back.
author: tether.fleet contributors (@tether-fleet)
options:
  programs:
    description:
      - Absolute paths of the programs, without links in them. A program that was replaced at the
        same path is let in anew.
    type: list
    elements: path
    required: true
attributes:
  diff_mode:
    description: Shows which entries are made and removed.
extends_documentation_fragment:
  - tether.fleet.attributes
seealso:
  - module: tether.fleet.firewall
"""

EXAMPLES = r"""
- name: Let other hosts reach the ingress
  tether.fleet.application_firewall:
    programs: [/opt/tether/caddy/2.11.7/caddy]
  become: true
"""

RETURN = r"""
state:
  description: What that firewall does, V(off), V(on) or V(blocks all).
  returned: success
  type: str
  sample: "on"
changes:
  description: What was changed, or in check mode what the run would change.
  returned: always
  type: list
  elements: dict
  sample:
    - action: add
      kind: application firewall entry
      name: /opt/tether/caddy/2.11.7/caddy
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tether.fleet.plugins.module_utils import application_firewall
from ansible_collections.tether.fleet.plugins.module_utils.plan import run_module


def main() -> None:
    module = AnsibleModule(
        argument_spec=application_firewall.ARGUMENT_SPEC, supports_check_mode=True
    )
    run_module(module, application_firewall, dict(module.params))


if __name__ == "__main__":
    main()
