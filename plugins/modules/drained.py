#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: drained
short_description: Wait until no other machine is connected to a host's ingress
version_added: "0.1.0"
description:
  - Waits, on a host that relays have been told to leave alone, until none of them has a connection
    to it any more. Each that is left carries a request that still runs, or belongs to a relay that
    has not been told yet.
  - Connections of the machine with itself do not count. Connections of anybody else do, so whoever
    may connect to the ingress can make it wait until O(timeout), and no longer.
  - Never fails for requests that take longer than O(timeout). It says how many there are.
author: tether.fleet contributors (@tether-fleet)
options:
  port:
    description: The ingress's port.
    type: int
    default: 9443
  timeout:
    description: Seconds after which it waits no longer.
    type: int
    default: 300
attributes:
  check_mode:
    description: Does not wait.
  diff_mode:
    description: Nothing changes, so there is nothing to show.
    support: none
  idempotent:
    description: Nothing changes.
extends_documentation_fragment:
  - tether.fleet.attributes
seealso:
  - module: tether.fleet.registration
"""

EXAMPLES = r"""
- name: Wait for the requests that run
  tether.fleet.drained:
    timeout: 60
"""

RETURN = r"""
waited:
  description: Seconds that it took.
  returned: success
  type: float
  sample: 12.5
connected:
  description: Addresses of those who were connected when the time was over, one a connection.
  returned: success
  type: list
  elements: str
  sample: [198.51.100.7]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tether.fleet.plugins.module_utils import drained
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "port": {"type": "int", "default": 9443},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    port, timeout = module.params["port"], module.params["timeout"]
    wrong = []
    if not 0 < port < 65536:
        wrong.append("port %d" % port)
    if timeout < 0:
        wrong.append("timeout %d" % timeout)
    if wrong:
        module.fail_json(
            msg=str(
                Refusal(
                    "options",
                    ", ".join(wrong),
                    "a port from 1 to 65535 and a timeout of 0 seconds or more",
                    "Correct what is named",
                )
            )
        )
    try:
        found = drained.wait(port, 0 if module.check_mode else timeout)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal))
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
