#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: host_key
short_description: Key, certificate request and certificate of a host's ingress
version_added: "0.1.0"
description:
  - Makes an EC P-256 key on the host, with the OpenSSL or LibreSSL that the system ships. The key
    never leaves the host.
  - Makes a certificate request for it, or installs the certificate that was signed for it.
  - M(tether.fleet.identity) uses this module for everything; use that one in playbooks.
author: tether.fleet contributors (@tether-fleet)
options:
  rekey:
    description:
      - Make a new key beside the one in use. It takes over when its certificate is installed.
      - A new key that already waits for its certificate is kept.
    type: bool
    default: false
  certificate:
    description:
      - PEM text of a certificate to install. It must belong to the newest key.
      - Without it the module looks after key and request.
    type: str
  activate:
    description:
      - Put the certificate in use, together with its key.
      - With V(false) it is written beside the one in use, so that relays can learn of it first.
    type: bool
    default: true
attributes:
  diff_mode:
    description: Shows what changes, never a key.
  idempotent:
    description: A second run changes nothing, unless O(rekey=true) asks for a new key each time.
    support: partial
extends_documentation_fragment:
  - tether.fleet.attributes
  - tether.fleet.host_key
"""

EXAMPLES = r"""
- name: Make the host's key and request
  tether.fleet.host_key:
    host: "{{ inventory_hostname }}"
  become: true
  register: host_key
"""

RETURN = r"""
csr:
  description: The certificate request, PEM. Empty in check mode when it would be made.
  returned: always
  type: str
public_key_sha256:
  description: SHA-256 of the newest public key (DER), hexadecimal.
  returned: always
  type: str
certificate:
  description: The certificate in use, PEM.
  returned: always
  type: str
certificate_matches_key:
  description: Whether the certificate in use belongs to the newest key.
  returned: always
  type: bool
next_certificate:
  description: A certificate that is installed but not in use yet, PEM.
  returned: always
  type: str
pending_key:
  description: Whether a new key waits for its certificate to be put in use.
  returned: always
  type: bool
changes:
  description: What was changed, or in check mode what the run would change.
  returned: always
  type: list
  elements: dict
  sample: [{"action": "create", "kind": "key", "name": "/etc/tether/identity/host.key"}]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tether.fleet.plugins.module_utils import host_key
from ansible_collections.tether.fleet.plugins.module_utils.plan import run_module


def main() -> None:
    module = AnsibleModule(argument_spec=host_key.ARGUMENT_SPEC, supports_check_mode=True)
    run_module(module, host_key, dict(module.params))


if __name__ == "__main__":
    main()
