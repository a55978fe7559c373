#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: depot
short_description: Fetch pinned artifacts and models into the controller's depot
version_added: "0.1.0"
description:
  - Fetches what the lock pins, and model files, into a store on the controller that keeps files by
    their digest. A file is there only after it was read whole and found right.
  - Runs on the controller alone, whatever host the task is for; run it once.
  - Downloads from URLs go on where an earlier run stopped. Runs that share a depot take turns.
  - A second run compares size and time with what was noted when the file was verified.
attributes:
  check_mode:
    description: Predicts what would be fetched, and downloads nothing.
  diff_mode:
    description: Shows which digests come.
  idempotent:
    description: A second run fetches nothing.
options:
  lock:
    description:
      - Path of the lock, relative to the playbook, or its content.
      - Default is the lock that the collection brings.
    type: raw
  depot_dir:
    description:
      - Folder of the depot.
      - Default is C(tether.fleet/depot) in the user's cache folder.
    type: path
  artifacts:
    description: Names of artifacts in the lock.
    type: list
    elements: str
    default: []
  platforms:
    description: Platforms that each of them is fetched for.
    type: list
    elements: str
    default: [linux-x86_64]
  models:
    description: Model files.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: File name, for people.
        type: str
        required: true
      sha256:
        description: Digest of the file.
        type: str
        required: true
      source:
        description: A path on the controller, relative to the playbook, or a URL.
        type: str
        required: true
      size:
        description: Size in bytes. With it a wrong file is noticed before it is downloaded.
        type: int
  verify:
    description: Read every file of the depot that is asked for, and fetch it anew if it is damaged.
    type: bool
    default: false
notes:
  - Wheels come through the pip of the controller's Python, so its configuration (index, proxy,
    certificates) holds.
author:
  - tether.fleet contributors (@tether-fleet)
extends_documentation_fragment:
  - tether.fleet.attributes
"""

EXAMPLES = r"""
- name: Fetch what the fleet runs
  tether.fleet.depot:
    artifacts: [caddy, llama_server]
    platforms: [linux-x86_64]
    models:
      - name: tiny.gguf
        source: /srv/models/tiny.gguf
        sha256: 8fbf934df9db42063a5793333c8aa379aab0765ca40180966e8266a3fede9131
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
changes:
  description: What was, or in check mode would be, fetched; C(action), C(kind) and C(name).
  returned: always
  type: list
  elements: dict
depot_dir:
  description: The depot's folder.
  returned: success
  type: str
files:
  description: Each file's C(kind), C(name), C(sha256), C(size) and C(path) in the depot.
  returned: success
  type: list
  elements: dict
"""
