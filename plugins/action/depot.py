# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Fill the controller's depot; nothing here touches a host."""

from __future__ import annotations

from typing import Any, Dict

from ansible_collections.tether.fleet.plugins.plugin_utils import depot
from ansible_collections.tether.fleet.plugins.plugin_utils.controller import ControllerAction


class ActionModule(ControllerAction):
    TRANSFERS_FILES = False
    _requires_connection = False
    ARGUMENT_SPEC = {
        "lock": {"type": "raw"},
        "depot_dir": {"type": "path"},
        "artifacts": {"type": "list", "elements": "str", "default": []},
        "platforms": {"type": "list", "elements": "str", "default": ["linux-x86_64"]},
        "models": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "name": {"type": "str", "required": True},
                "sha256": {"type": "str", "required": True},
                "source": {"type": "str", "required": True},
                "size": {"type": "int"},
            },
        },
        "verify": {"type": "bool", "default": False},
    }

    def act(self, arguments: Dict[str, Any], task_vars: Dict[str, Any]) -> Dict[str, Any]:
        lock = self.read_lock(arguments["lock"]) if arguments["artifacts"] else None
        store = self.open_depot(arguments["depot_dir"])
        artifacts = [
            {"name": name, "platform": platform}
            for name in arguments["artifacts"]
            for platform in arguments["platforms"]
        ]
        desired = depot.wants(lock, artifacts, arguments["models"], self.base_folder())
        plan = store.plan(desired, store.observe(desired, arguments["verify"]))
        failures = store.check_sources(plan)
        if not self._task.check_mode:
            failures += store.apply(plan)
        result = dict(plan.result(), depot_dir=store.folder, files=store.facts(desired))
        if failures:
            result.update(failed=True, msg=depot.all_of(failures))
        return result
