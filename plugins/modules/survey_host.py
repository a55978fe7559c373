#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: survey_host
short_description: The part of tether.fleet.survey that runs on the host
version_added: "0.1.0"
description:
  - Runs the plans of all parts of a host in one call and says what differs. It never changes
    anything.
  - M(tether.fleet.survey) calls it. Use that one in playbooks.
author: tether.fleet contributors (@tether-fleet)
options:
  parts:
    description: For each part the options that its own module would get.
    type: dict
    required: true
attributes:
  check_mode:
    description: It never changes anything, so there is no difference.
  diff_mode:
    support: none
    description: It changes nothing.
  idempotent:
    description: It changes nothing.
extends_documentation_fragment:
  - tether.fleet.attributes
"""

EXAMPLES = r"""
- name: Ask whether an account and a folder are as they should be
  tether.fleet.survey_host:
    parts:
      accounts:
        accounts: [{name: tether-ingress}]
      directories:
        files: [{path: /etc/tether, state: directory}]
  become: true
"""

RETURN = r"""
parts:
  description: What was found of each part.
  returned: success
  type: dict
  contains:
    differs:
      description: What differs, or why it cannot be said; empty when nothing does.
      type: str
    actions:
      description: What the steps of its plan do; empty when there is no plan.
      type: list
    facts:
      description: What the part's own module would return beside its changes.
      type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tether.fleet.plugins.module_utils import survey


def main() -> None:
    module = AnsibleModule(
        argument_spec={"parts": {"type": "dict", "required": True}},
        supports_check_mode=True,
        # The whole of a host's configuration would be one line of its system log at each run.
        no_log=True,
    )
    unknown = sorted(set(module.params["parts"]) - set(survey.PARTS))
    if unknown:
        module.fail_json(
            msg="parts: found %s; expected some of %s. Remove what is not known."
            % (", ".join(unknown), ", ".join(survey.PARTS))
        )
    module.exit_json(changed=False, parts=survey.survey(module.params["parts"]))


if __name__ == "__main__":
    main()
