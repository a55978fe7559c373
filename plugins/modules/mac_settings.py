#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: mac_settings
short_description: Power and GPU memory of a Mac that serves unattended
version_added: "0.1.0"
description:
  - Sets what C(pmset) keeps, and how much memory the GPU may take, where it is set otherwise.
  - Was never run on a real Mac; docs/macs.md says what that means.
author: tether.fleet contributors (@tether-fleet)
options:
  power:
    description:
      - Settings of C(pmset) and their numbers, for every source of power. A setting that this Mac
        does not have is left out.
    type: dict
    default: {}
  gpu_memory_mb:
    description:
      - MiB of memory that the GPU may take (the kernel's C(iogpu.wired_limit_mb)), until the next
        boot. V(0) leaves it as it is.
    type: int
    default: 0
extends_documentation_fragment:
  - tether.fleet.attributes
"""

EXAMPLES = r"""
- name: Never sleep, and start again after a power failure
  tether.fleet.mac_settings:
    power: {sleep: 0, autorestart: 1}
  become: true
"""

RETURN = r"""
changes:
  description: What was changed, or in check mode what the run would change.
  returned: always
  type: list
  elements: dict
  sample: [{"action": "update", "kind": "power setting", "name": "sleep"}]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tether.fleet.plugins.module_utils import mac_settings
from ansible_collections.tether.fleet.plugins.module_utils.plan import run_module


def main() -> None:
    module = AnsibleModule(
        argument_spec=mac_settings.ARGUMENT_SPEC,
        supports_check_mode=True,
    )
    run_module(module, mac_settings, dict(module.params))


if __name__ == "__main__":
    main()
