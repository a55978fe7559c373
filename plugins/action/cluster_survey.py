# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask the cluster once what differs; documented in plugins/modules/cluster_survey.py.

It runs in Ansible's own process for the task. As a module it took twice as long: all that plans a
relay was packed into one file, unpacked and compiled again, in every run.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from typing import Any, Dict, Optional

from ansible import constants
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
        environment = self._prepare()
        # Here, in the task's process: Ansible loads this file in the one that all tasks wait for,
        # and the kubernetes package alone takes half a second.
        try:
            from ansible_collections.tether.fleet.plugins.plugin_utils import cluster_question
        except ImportError as error:
            raise AnsibleActionFail(missing_required_lib(error.name or str(error))) from error
        missing = cluster_question.missing_library()
        if missing:
            raise AnsibleActionFail(missing_required_lib(missing))
        _spec, given = self.validate_argument_spec(argument_spec=cluster_question.ARGUMENT_SPEC)
        options = plain(given)
        if options["kubeconfig"] is None and "K8S_AUTH_KUBECONFIG" not in os.environ:
            # The library has read the variable already where somebody loaded it before.
            options["kubeconfig"] = environment.get("KUBECONFIG")
        # A program that a kubeconfig names, and the library's log, write where a module's went.
        aside = io.StringIO()
        with contextlib.redirect_stdout(aside), contextlib.redirect_stderr(aside):
            try:
                result.update(cluster_question.ask(options))
            except Refusal as refusal:
                result.update(refusal.facts, failed=True, msg=str(refusal))
        return dict(cluster_question.without_secrets(result, options))

    def _prepare(self) -> Dict[str, str]:
        """Give the task's process what a module's would have; returns the task's environment."""
        environment: Dict[str, Any] = {}
        self._compute_environment_string(environment)
        texts = {str(key): str(value) for key, value in environment.items()}
        os.environ.update(texts)
        # The kubernetes library writes a kubeconfig's certificate and key into files, and takes
        # them away when its process ends in order, which a task's does not: Ansible takes this
        # folder away at the end of the run, and nobody else may enter it.
        tempfile.tempdir = constants.DEFAULT_LOCAL_TMP
        return texts
