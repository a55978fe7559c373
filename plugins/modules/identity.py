#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: identity
short_description: A host's key and a certificate that the fleet's CA signs for it
version_added: "0.1.0"
description:
  - Makes the key on the host, signs its request on the controller, and installs the certificate.
    The key never leaves the host, the CA's key never leaves the controller.
  - The certificate says what the inventory says, whatever the request asks for. It is for server
    use only, for exactly the given names and addresses.
  - A new certificate is made when there is none, when key, names, addresses or CA differ, or when
    less than O(renew_fraction) of its life remains.
  - An unchanged host costs one round trip, and no passphrase.
  - Relays pin the certificate itself. To change it under traffic, first run with
    O(activate=false), let the relays learn RV(certificates), then run again and reload the ingress.
author: tether.fleet contributors (@tether-fleet)
options:
  names:
    description: DNS names of the host that relays may dial.
    type: list
    elements: str
    default: []
  addresses:
    description: IP addresses of the host that relays may dial. At least one name or address.
    type: list
    elements: str
    default: []
  ca_dir:
    description: Folder of the CA on the controller, see M(tether.fleet.fleet_ca).
    type: path
    required: true
  lifetime_days:
    description: Life of a new certificate. Never beyond the CA's.
    type: float
    default: 90
  renew_fraction:
    description: Renew when less than this part of the certificate's life remains.
    type: float
    default: 0.3333
  rekey:
    description: Make a new key too. Use it for one run; each run with it makes a new key.
    type: bool
    default: false
  activate:
    description:
      - Put a new certificate in use at once.
      - With V(false), one that replaces a certificate which still serves is kept beside it.
    type: bool
    default: true
attributes:
  check_mode:
    description: Predicts exactly what the run then changes, also before there is a key or a CA.
  diff_mode:
    description: Shows what changes and why, never a key.
  idempotent:
    description: A second run changes nothing, unless O(rekey=true) asks for a new key each time.
    support: partial
seealso:
  - module: tether.fleet.fleet_ca
extends_documentation_fragment:
  - tether.fleet.attributes
  - tether.fleet.host_key
  - tether.fleet.ca_passphrase
"""

EXAMPLES = r"""
- name: Give the host its identity
  tether.fleet.identity:
    host: "{{ inventory_hostname }}"
    addresses: ["{{ identity_address }}"]
    ca_dir: "{{ inventory_dir }}/.tether/ca"
    ca_passphrase_file: ~/.config/tether/ca.passphrase
  become: true
  register: identity
  notify: Reload the ingress
"""

RETURN = r"""
certificate:
  description: The certificate in use, PEM. Empty in check mode when it would be made.
  returned: always
  type: str
staged:
  description:
    - Whether a new certificate lies beside the one in use, or in check mode would. Let relays learn
      of both before the task runs again with O(activate=true).
  returned: always
  type: bool
next_certificate:
  description: A certificate that is installed but not in use yet, PEM.
  returned: always
  type: str
certificates:
  description: What relays should pin, PEM texts, the one in use first.
  returned: always
  type: list
  elements: str
ca_certificate:
  description: The CA's certificate, PEM.
  returned: always
  type: str
not_after:
  description: When the certificate in use ends (ISO 8601, UTC).
  returned: always
  type: str
fingerprint_sha256:
  description: SHA-256 of the certificate in use (DER), hexadecimal; what relays pin.
  returned: always
  type: str
public_key_sha256:
  description: SHA-256 of the newest public key (DER), hexadecimal.
  returned: always
  type: str
reason:
  description: Why a certificate was signed or would be.
  returned: always
  type: str
  sample: it names 10.0.0.7, the inventory says 10.0.0.8
changes:
  description: What was changed, or in check mode what the run would change.
  returned: always
  type: list
  elements: dict
  sample: [{"action": "sign", "kind": "certificate", "name": "gpu1"}]
"""
