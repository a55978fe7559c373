# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask the cluster once what differs; documented in plugins/modules/cluster_survey.py.

It runs in Ansible's own process for the task. As a module it took twice as long: all that plans a
relay was packed into one file, unpacked and compiled again, in every run.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Optional

from ansible.errors import AnsibleActionFail
from ansible.module_utils.basic import missing_required_lib
from ansible.plugins.action import ActionBase

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal
from ansible_collections.tether.fleet.plugins.plugin_utils.plain import plain


class ActionModule(ActionBase):
    """Reads the cluster on the controller; opens no connection to hosts and changes nothing."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True

    def run(
        self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None
    ) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        # Here, in the task's process: Ansible loads this file in the one that all tasks wait for,
        # and the kubernetes package alone takes half a second.
        from ansible_collections.tether.fleet.plugins.plugin_utils import cluster_question

        missing = cluster_question.missing_library()
        if missing:
            raise AnsibleActionFail(missing_required_lib(missing))
        _spec, given = self.validate_argument_spec(argument_spec=cluster_question.ARGUMENT_SPEC)
        # What a module would find there: kubernetes.core reads K8S_AUTH_*.
        environment: Dict[str, Any] = {}
        self._compute_environment_string(environment)
        os.environ.update({key: str(value) for key, value in environment.items()})
        try:
            result.update(cluster_question.ask(plain(given)))
        except Refusal as refusal:
            result.update(refusal.facts, failed=True, msg=str(refusal))
        return result
