# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the action plugins of the depot and of the stores on hosts have in common."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional, Union

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal, as_refusal
from ansible_collections.tether.fleet.plugins.plugin_utils import answer, depot, lock, send

DISPLAY = Display()

# Options that both stores on hosts take.
STORE_SPEC: Dict[str, Any] = {
    "depot_dir": {"type": "path"},
    "incoming": {"type": "path"},
    "verify": {"type": "bool", "default": False},
    "chunk_size": {"type": "int", "default": send.CHUNK},
}


class ControllerAction(ActionBase):
    """Checks the task's options, calls ``act`` and turns refusals into failed results."""

    ARGUMENT_SPEC: Dict[str, Any] = {}
    _supports_check_mode = True
    _supports_async = False

    def run(
        self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None
    ) -> Dict[str, Any]:
        result = super().run(tmp, task_vars)
        _unused, arguments = self.validate_argument_spec(argument_spec=self.ARGUMENT_SPEC)
        try:
            result.update(self.act(arguments, task_vars or {}))
        except (Refusal, OSError) as error:
            refusal = as_refusal(error)
            result.update(refusal.facts, failed=True, changed=False, msg=str(refusal))
        except send.FailedError as failed:
            result.update(answer.cleaned(failed.result, failed=True))
        return dict(result)

    def act(self, arguments: Dict[str, Any], task_vars: Dict[str, Any]) -> Dict[str, Any]:
        """Do the work.

        :return: the result's fields
        """
        raise NotImplementedError

    def say(self, text: str) -> None:
        """One line of progress."""
        DISPLAY.display("  %s" % text)

    def base_folder(self) -> str:
        """Where relative paths of the task start: the playbook's folder."""
        return str(self._loader.get_basedir())

    def read_lock(self, value: Union[str, Dict[str, Any], None]) -> Dict[str, Any]:
        """The task's lock: a path, its content, or the one that the collection brings."""
        if value is None:
            return lock.load(lock.DEFAULT)
        if isinstance(value, str):
            return lock.load(os.path.join(self.base_folder(), os.path.expanduser(value)))
        return lock.load(value)

    def open_depot(self, folder: Optional[str], host: Optional[str] = None) -> depot.Depot:
        """The depot of ``depot_dir``, or the user's own."""
        start = "%s: " % host if host else ""
        path = os.path.join(self.base_folder(), folder) if folder else depot.default_folder()
        return depot.Depot(path, lambda text: self.say(start + text))
