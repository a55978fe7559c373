#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: artifact
short_description: Install pinned artifacts on a host
version_added: "0.1.0"
description:
  - Installs artifacts that the lock pins as C(/opt/tether/NAME/VERSION), with links C(current) and
    C(previous) that are switched by one rename each.
  - The host gets archives by digest from the controller's depot, in chunks, and verifies them again
    before it unpacks them. An interrupted transfer goes on where it stopped.
  - An installed version of which a file was changed, added or removed is installed anew.
  - Versions that neither link names are removed.
  - Costs one call of the host when nothing changes.
attributes:
  diff_mode:
    description: Shows each change, and why a version is installed anew.
options:
  names:
    description: Names in the lock.
    type: list
    elements: str
    required: true
  state:
    description: V(absent) removes all versions and links.
    type: str
    choices: [present, absent]
    default: present
  lock:
    description:
      - Path of the lock, relative to the playbook, or its content.
      - Default is the lock that the collection brings.
    type: raw
  platform:
    description: Platform in the lock. Default is the host's, from its facts.
    type: str
author:
  - tether.fleet contributors (@tether-fleet)
extends_documentation_fragment:
  - tether.fleet.attributes
  - tether.fleet.artifact
  - tether.fleet.delivery
  - tether.fleet.delivery.controller
"""

EXAMPLES = r"""
- name: Install the ingress
  tether.fleet.artifact:
    names: [caddy]
  become: true
  register: installed

- name: Show its version
  ansible.builtin.command:
    cmd: "{{ installed.artifacts.caddy.binary }} version"
  changed_when: false
"""

RETURN = r"""
changes:
  description: What was, or in check mode would be, changed; C(action), C(kind) and C(name).
  returned: always
  type: list
  elements: dict
artifacts:
  description: What holds after the run; in check mode, what would hold.
  returned: success
  type: dict
  contains:
    version:
      description: Version that C(current) names.
      type: str
      returned: always
    sha256:
      description: Digest of the archive.
      type: str
      returned: always
    path:
      description: Folder of the version.
      type: str
      returned: always
    current:
      description: The link C(current).
      type: str
      returned: always
    binary:
      description: Main program in the version's folder.
      type: str
      returned: when the lock names one
"""
