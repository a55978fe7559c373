#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: firewall
short_description: The fleet's own firewall rules on a host
version_added: "0.1.0"
description:
  - On Linux keeps an nftables table of its own, C(inet tether), and a unit that loads it at boot.
    No other table is touched and nothing is ever flushed.
  - On macOS keeps an anchor of pf of its own, C(com.apple/tether), a token that keeps pf enabled,
    and a LaunchDaemon that loads both at boot. No file of macOS is touched.
  - Compares the live rules, so that a table, anchor or rule that somebody removed is found and
    mended.
  - The way back in is never cut. When O(open_ports) does not list the port of the SSH session that
    the module runs over, that port is open from everywhere; when it lists the port for other
    networks alone, the module refuses.
  - The first time that O(policy=closed) is applied, the module refuses to cut what already listens,
    see O(listeners). It looks at TCP only.
  - Another firewall that would drop the fleet's traffic anyway (ufw, firewalld, a table with policy
    drop, a rule of pf before ours) is refused by name, with the command that opens the port in it.
author: tether.fleet contributors (@tether-fleet)
options:
  state:
    description: Whether the rules, what loads them at boot, and their files exist.
    type: str
    choices: [present, absent]
    default: present
  policy:
    description:
      - V(closed) drops every new incoming connection that nothing here allows, over IPv4 and IPv6.
      - V(guard) only guards O(ingress_port) and leaves all else alone.
    type: str
    choices: [closed, guard]
    default: closed
  ingress_port:
    description: Port of the ingress.
    type: int
    default: 9443
  ingress_sources:
    description: Networks that may connect to it. At least one when O(state=present).
    type: list
    elements: str
    default: []
  open_ports:
    description: More ports that are open with O(policy=closed).
    type: list
    elements: dict
    default: [{port: 22, proto: tcp, sources: []}]
    suboptions:
      port:
        description: The port.
        type: int
        required: true
      proto:
        description: Its protocol.
        type: str
        choices: [tcp, udp]
        default: tcp
      sources:
        description: Networks that may connect. Empty means all.
        type: list
        elements: str
        default: []
  loopback_ports:
    description: Ports of engines on loopback, over IPv4 and IPv6.
    type: list
    elements: dict
    default: []
    suboptions:
      port:
        description: The port.
        type: int
        required: true
      accounts:
        description: Accounts that may connect, beside root.
        type: list
        elements: str
        required: true
      server:
        description:
          - Account that the engine runs as. Given, another account's program that takes the port
            can answer nobody.
        type: str
  service_ports:
    description:
      - Ports of programs that others reach directly, without the ingress. Nobody else reaches them,
        with O(policy=guard) too. None may be in O(open_ports), nor be the SSH session's.
    type: list
    elements: dict
    default: []
    suboptions:
      port:
        description: The TCP port.
        type: int
        required: true
      sources:
        description: Networks that may connect. Empty means all.
        type: list
        elements: str
        default: []
  ssh_connection:
    description:
      - The text of E(SSH_CONNECTION) of the session. Found in the process tree when absent.
    type: str
  foreign:
    description: What to do about another active firewall that would drop the fleet's traffic.
    type: str
    choices: [refuse, ignore]
    default: refuse
  listeners:
    description:
      - What to do, before O(policy=closed) is applied to the host for the first time, about TCP
        ports that something listens on beside loopback and that neither O(open_ports) nor
        O(ingress_port) nor the SSH session's port covers.
      - V(refuse) names them all and changes nothing, V(cut) closes them.
      - Once the host is closed, a port that is opened later is closed off without a refusal.
        The ingress and the engines of the fleet never count.
    type: str
    choices: [refuse, cut]
    default: refuse
attributes:
  diff_mode:
    description: Shows the rules.
extends_documentation_fragment:
  - tether.fleet.attributes
"""

EXAMPLES = r"""
- name: Let the cluster's nodes reach the ingress, and nobody an engine
  tether.fleet.firewall:
    ingress_sources: [10.99.0.0/24]
    open_ports:
      - {port: 22}
      - {port: 9100, sources: [10.99.0.10]}
    loopback_ports:
      - {port: 8081, accounts: [tether-ingress], server: tether-team-a}
  become: true
"""

RETURN = r"""
session:
  description: Peer and port of the SSH session that the run uses, or null.
  returned: success
  type: dict
  sample: {"peer": "10.99.0.1", "port": 22}
changes:
  description: What was changed, or in check mode what the run would change.
  returned: always
  type: list
  elements: dict
  sample: [{"action": "load", "kind": "table", "name": "inet tether"}]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tether.fleet.plugins.module_utils import firewall_options
from ansible_collections.tether.fleet.plugins.module_utils.daemon import backends
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal, run_module


def main() -> None:
    module = AnsibleModule(argument_spec=firewall_options.ARGUMENT_SPEC, supports_check_mode=True)
    try:
        component = backends.component("firewall")
    except Refusal as refusal:
        module.fail_json(msg=str(refusal))
    run_module(module, component, dict(module.params))


if __name__ == "__main__":
    main()
