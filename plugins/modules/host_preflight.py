#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: host_preflight
short_description: Is a host fit to serve models
version_added: "0.1.0"
description:
  - Reads facts of a host and checks them in one round trip. It never changes anything.
  - Fails with everything that is wrong in one message. Each finding says what was found, what was
    expected and what to do.
author: tether.fleet contributors (@tether-fleet)
options:
  space:
    description:
      - Free space that is needed. What is wanted of paths on one file system is added up.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path; it need not exist yet.
        type: path
        required: true
      bytes:
        description: Bytes that must be free there.
        type: int
        required: true
  missing_space:
    description:
      - Whether too little space, or too few inodes, is only returned as RV(short), or fails. A host
        that needs nothing installed needs no room for it either.
    type: str
    choices: [report, fail]
    default: fail
  port:
    description: TCP port that must be free or held by O(port_daemon). 0 checks none.
    type: int
    default: 9443
  port_daemon:
    description: The daemon that may hold the port.
    type: str
    default: tether-ingress
  system:
    description:
      - The system that the inventory says the host has (C(fleet_system)); another one is a finding.
        Without it any will do.
    type: str
    choices: [linux, macos]
  controller_time:
    description: The controller's clock, in seconds since the epoch. The clock is checked with it.
    type: float
  max_skew:
    description: Seconds that the two clocks may differ.
    type: int
    default: 60
  libraries:
    description: Shared libraries that are needed.
    type: list
    elements: dict
    default: []
    suboptions:
      library:
        description: Its soname, as C(ldconfig -p) lists it.
        type: str
        required: true
      packages:
        description: The package that brings it, by family of operating systems.
        type: dict
        required: true
  commands:
    description: Commands that are needed, as package name and command.
    type: dict
    default: {openssl: openssl, nftables: nft}
  missing_packages:
    description: Whether a missing package is only returned, for a later task to install, or fails.
    type: str
    choices: [report, fail]
    default: report
  platforms:
    description: Platforms that all artifacts are pinned for. Empty allows any.
    type: list
    elements: str
    default: []
  min_glibc:
    description: Oldest glibc that the artifacts run with.
    type: str
attributes:
  check_mode:
    description: Does the same in check mode.
  diff_mode:
    description: Nothing changes, so there is nothing to show.
    support: none
  idempotent:
    description: Nothing changes.
extends_documentation_fragment:
  - tether.fleet.attributes
"""

EXAMPLES = r"""
- name: Look whether the host is fit
  tether.fleet.host_preflight:
    space:
      - {path: /opt/tether, bytes: 500000000}
      - {path: /var/lib/tether, bytes: 8000000000}
    controller_time: "{{ now().timestamp() }}"
    libraries:
      - library: libvulkan.so.1
        packages: {Debian: libvulkan1, RedHat: vulkan-loader}
    platforms: [linux-x86_64]
    min_glibc: "2.30"
  become: true
  register: preflight
"""

RETURN = r"""
platform:
  description: Operating system and processor, as fleet.lock.yml names them.
  returned: always
  type: str
  sample: linux-x86_64
glibc:
  description: Version of glibc, or null.
  returned: always
  type: str
python:
  description: Version of the Python that modules run with.
  returned: always
  type: str
supervisor:
  description: What supervises processes there, or null.
  returned: always
  type: str
  sample: systemd
clock_skew:
  description: Seconds that the host's clock is ahead of the controller's, or null.
  returned: always
  type: float
missing_packages:
  description: Packages of which something needed is missing.
  returned: always
  type: list
  elements: str
gpu_devices:
  description: GPU devices that were seen.
  returned: always
  type: list
  elements: str
space:
  description: Free and total bytes at each path.
  returned: always
  type: list
  elements: dict
short:
  description: File systems with too little space or too few inodes, in the words of a finding.
  returned: always
  type: list
  elements: dict
findings:
  description: Everything that is wrong; the module fails when there is any.
  returned: always
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tether.fleet.plugins.module_utils import preflight
from ansible_collections.tether.fleet.plugins.module_utils.plan import run_module


def main() -> None:
    module = AnsibleModule(
        argument_spec=preflight.ARGUMENT_SPEC,
        supports_check_mode=True,
    )
    run_module(module, preflight, dict(module.params))


if __name__ == "__main__":
    main()
