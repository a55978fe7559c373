#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: files
short_description: A set of files, directories and links on a host, in one call
version_added: "0.1.0"
description:
  - Writes a whole configuration in one round trip, directories first, then files and links, then
    removals.
  - Files are replaced by rename with owner and mode already set, so that a reader sees the old text
    or the new one, and a secret is never readable by anybody it is not meant for.
  - A path that leads through a link which somebody other than root made is refused.
author: tether.fleet contributors (@tether-fleet)
options:
  files:
    description: The entries. Their order does not matter.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path, without C(..) and without a slash at the end.
        type: path
        required: true
      state:
        description:
          - What the path is to be.
          - A directory is removed only when nothing is left in it.
        type: str
        choices: [file, directory, link, absent]
        default: file
      content:
        description: Text of the file. Shown in diffs.
        type: str
      secret_content:
        description: Text of the file, never shown. Exactly one of this and O(files[].content).
        type: str
      target:
        description: What a link points at.
        type: path
      owner:
        description: Owner of a file or directory.
        type: str
        default: root
      group:
        description: Group of a file or directory. The owner's primary group when absent.
        type: str
      mode:
        description: Mode in octal. V(0644) for files and V(0755) for directories when absent.
        type: str
attributes:
  diff_mode:
    description: Shows what changes; secret texts are masked, with a hint whether they change.
extends_documentation_fragment:
  - tether.fleet.attributes
"""

EXAMPLES = r"""
- name: Write the ingress' configuration and a namespace's token
  tether.fleet.files:
    files:
      - {path: /etc/tether, state: directory}
      - {path: /etc/tether/ingress, state: directory, group: tether-ingress, mode: "0750"}
      - path: /etc/tether/ingress/Caddyfile
        content: "{{ caddyfile }}"
        group: tether-ingress
        mode: "0640"
      - path: /etc/tether/ingress/token
        secret_content: "{{ token }}"
        group: tether-ingress
        mode: "0440"
      - {path: /etc/tether/ingress/old, state: absent}
  become: true
"""

RETURN = r"""
changes:
  description: What was changed, or in check mode what the run would change.
  returned: always
  type: list
  elements: dict
  sample: [{"action": "update", "kind": "file", "name": "/etc/tether/ingress/Caddyfile"}]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tether.fleet.plugins.module_utils import files
from ansible_collections.tether.fleet.plugins.module_utils.plan import run_module


def main() -> None:
    module = AnsibleModule(
        argument_spec=files.ARGUMENT_SPEC,
        supports_check_mode=True,
    )
    run_module(module, files, dict(module.params))


if __name__ == "__main__":
    main()
