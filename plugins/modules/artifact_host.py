#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: artifact_host
short_description: The part of tether.fleet.artifact that runs on the host
version_added: "0.1.0"
description:
  - Installs pinned archives that have been delivered to the host, and switches links between
    versions.
  - M(tether.fleet.artifact) calls it with entries from the lock and delivers what it asks for. Use
    that one in playbooks.
options:
  artifacts:
    description: Artifacts, each once.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the artifact, and of its folder.
        type: str
        required: true
      state:
        description: V(absent) removes all versions and links.
        type: str
        choices: [present, absent]
        default: present
      version:
        description: Version, and name of its folder.
        type: str
      sha256:
        description: Digest of the archive.
        type: str
      size:
        description: Size of the archive in bytes.
        type: int
      format:
        description: Kind of the archive.
        type: str
        choices: [wheel, zip, tar, raw]
      binary:
        description: Main program, relative to the version's folder.
        type: str
      extract:
        description: What to unpack, and where to.
        type: list
        elements: dict
        suboptions:
          from:
            description: A member, or a prefix with a slash at its end; V(./) for all.
            type: str
            required: true
          to:
            description: Path in the version's folder, or a folder with a slash at its end.
            type: str
            required: true
          mode:
            description: Octal mode; else V(0755) for programs and V(0644) for the rest.
            type: str
author:
  - tether.fleet contributors (@tether-fleet)
extends_documentation_fragment:
  - tether.fleet.attributes
  - tether.fleet.artifact
  - tether.fleet.delivery
  - tether.fleet.delivery.host
"""

EXAMPLES = r"""
- name: Remove an artifact
  tether.fleet.artifact_host:
    artifacts:
      - name: caddy
        state: absent
  become: true
"""

RETURN = r"""
changes:
  description: What was, or in check mode would be, changed; C(action), C(kind) and C(name).
  returned: always
  type: list
  elements: dict
artifacts:
  description: Per present artifact its C(version), C(sha256), C(path), C(current) and C(binary).
  returned: always
  type: dict
needs:
  description: Files that have to be delivered first. While there are any, nothing is changed.
  returned: always
  type: list
  elements: dict
have:
  description: Bytes of each delivered file that are on the host.
  returned: with O(deliver.only)
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tether.fleet.plugins.module_utils import artifact, delivery
from ansible_collections.tether.fleet.plugins.module_utils.plan import (
    Refusal,
    as_refusal,
    run_module,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec=artifact.ARGUMENT_SPEC,
        supports_check_mode=True,
    )
    try:
        artifact.check_entries(module.params["artifacts"])
        delivery.take(module)
    except (Refusal, OSError) as error:
        module.fail_json(msg=str(as_refusal(error)), changed=False)
    run_module(module, artifact, module.params)


if __name__ == "__main__":
    main()
