#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: model_store
short_description: Bring model files to a host
version_added: "0.1.0"
description:
  - Keeps model files as C(/var/lib/tether/models/NAMESPACE/SHA256/NAME), readable by root and by
    the group of the namespace's engine account.
  - The host gets files by digest from the controller's depot, in chunks, and reads each whole
    before it is used. An interrupted transfer goes on where it stopped.
  - Two namespaces that use the same file keep two copies. Owner and mode belong to the file, so one
    copy would have to be readable by both; the second is copied on the host and not sent again.
  - Costs one call of the host when nothing changes.
author:
  - tether.fleet contributors (@tether-fleet)
extends_documentation_fragment:
  - tether.fleet.attributes
  - tether.fleet.model_store
  - tether.fleet.model_store.controller
  - tether.fleet.delivery
  - tether.fleet.delivery.controller
"""

EXAMPLES = r"""
- name: Bring a model
  tether.fleet.model_store:
    models:
      - namespace: team-a
        name: tiny.gguf
        sha256: 8fbf934df9db42063a5793333c8aa379aab0765ca40180966e8266a3fede9131
        group: tether-team-a
  become: true
"""

RETURN = r"""
changes:
  description: What was, or in check mode would be, changed; C(action), C(kind) and C(name).
  returned: always
  type: list
  elements: dict
models:
  description: Each present file's C(namespace), C(name), C(sha256) and C(path).
  returned: success
  type: list
  elements: dict
"""
