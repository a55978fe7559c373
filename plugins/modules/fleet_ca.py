#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: fleet_ca
short_description: The fleet's certificate authority, on the controller
version_added: "0.1.0"
description:
  - Makes the fleet's CA once (EC P-256, ten years, for leaves only) and returns its certificate.
  - Its key is encrypted with a passphrase and stays on the controller. The passphrase is needed to
    make the CA and to sign; a run that signs nothing needs none.
  - Half of a CA, or a passphrase that does not open it, is refused.
  - Runs on the controller and touches no host; run it once, before M(tether.fleet.identity).
author: tether.fleet contributors (@tether-fleet)
options:
  ca_dir:
    description: Folder of the CA. Keep it and its backup off the cluster.
    type: path
    required: true
  fleet:
    description: The fleet's name; becomes part of the CA's common name.
    type: str
    required: true
attributes:
  check_mode:
    description: Predicts whether the run makes the CA.
  diff_mode:
    description: Says that a CA is made.
  idempotent:
    description: A CA is made once and never replaced.
extends_documentation_fragment:
  - tether.fleet.attributes
  - tether.fleet.ca_passphrase
"""

EXAMPLES = r"""
- name: Make the fleet's CA
  tether.fleet.fleet_ca:
    ca_dir: "{{ inventory_dir }}/.tether/ca"
    fleet: "{{ fleet_name }}"
    ca_passphrase_file: ~/.config/tether/ca.passphrase
  run_once: true
  register: fleet_ca
"""

RETURN = r"""
ca_certificate:
  description: The CA's certificate, PEM. Empty in check mode when it would be made.
  returned: always
  type: str
fingerprint_sha256:
  description: SHA-256 of the CA's certificate (DER), hexadecimal.
  returned: always
  type: str
not_after:
  description: When the CA's certificate ends (ISO 8601, UTC).
  returned: always
  type: str
changes:
  description: What was changed, or in check mode what the run would change.
  returned: always
  type: list
  elements: dict
  sample: [{"action": "create", "kind": "ca", "name": "/srv/fleet/.tether/ca"}]
"""
