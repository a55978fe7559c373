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
attributes:
  check_mode:
    description: Predicts the changes that the run then makes, on a fresh host too.
    support: full
  diff_mode:
    description: Shows each change.
    support: full
  idempotent:
    description: A second run changes nothing.
    support: full
options:
  models:
    description: Model files.
    type: list
    elements: dict
    required: true
    suboptions:
      namespace:
        description: Namespace whose engines use the file.
        type: str
        required: true
      name:
        description: File name, without folders.
        type: str
        required: true
      sha256:
        description: Digest of the file.
        type: str
        required: true
      size:
        description: Size in bytes. Default is the size of the file in the depot.
        type: int
      source:
        description: Of no meaning here, so that entries of M(tether.fleet.depot) can be given.
        type: str
      group:
        description: Group of the namespace's engine account. Without it only root reads the file.
        type: str
      state:
        description: V(absent) removes the file.
        type: str
        choices: [present, absent]
        default: present
  depot_dir:
    description: Folder of the depot on the controller; see M(tether.fleet.depot).
    type: path
  store:
    description: Folder of the store. Default is V(/var/lib/tether/models).
    type: path
  incoming:
    description: Folder for files on their way. Default is V(/var/lib/tether/incoming).
    type: path
  prune:
    description: Remove all files of the store that O(models) does not list.
    type: bool
    default: false
  verify:
    description: Read every file instead of comparing size and time.
    type: bool
    default: false
  chunk_size:
    description: Bytes that are sent at once.
    type: int
    default: 67108864
notes:
  - Needs root on the host.
author:
  - tether.fleet contributors (@tether-fleet)
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
