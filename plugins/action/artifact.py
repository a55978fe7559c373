# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Install pinned artifacts on a host: one call when nothing changes."""

from __future__ import annotations

from typing import Any, Dict

from ansible_collections.tether.fleet.plugins.module_utils import artifact
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal
from ansible_collections.tether.fleet.plugins.plugin_utils import lock, send
from ansible_collections.tether.fleet.plugins.plugin_utils.controller import (
    STORE_SPEC,
    ControllerAction,
)


class ActionModule(ControllerAction):
    TRANSFERS_FILES = False  # only when something is missing; a folder is then made for it
    ARGUMENT_SPEC = dict(
        STORE_SPEC,
        lock={"type": "raw"},
        names={"type": "list", "elements": "str", "required": True},
        platform={"type": "str"},
        state={"type": "str", "choices": ["present", "absent"], "default": "present"},
        root={"type": "path"},
        keep={"type": "int", "default": 0},
    )

    def act(self, arguments: Dict[str, Any], task_vars: Dict[str, Any]) -> Dict[str, Any]:
        if arguments["state"] == "absent":
            entries = [{"name": name, "state": "absent"} for name in arguments["names"]]
        else:
            pins = self.read_lock(arguments["lock"])
            platform = arguments["platform"] or _platform(task_vars)
            entries = lock.entries(pins, arguments["names"], platform)
        store = self.open_depot(arguments["depot_dir"], task_vars.get("inventory_hostname"))
        options = {"artifacts": entries}
        for key in ("root", "incoming", "keep", "verify"):
            if arguments[key] is not None:
                options[key] = arguments[key]
        return send.run(
            self,
            "tether.fleet.artifact_host",
            options,
            task_vars,
            send.offer(entries, artifact.title),
            store.locate,
            store.say,
            arguments["chunk_size"],
        )


def _platform(task_vars: Dict[str, Any]) -> str:
    facts = task_vars.get("ansible_facts") or {}
    system, machine = facts.get("system"), facts.get("architecture")
    if not system or not machine:
        raise Refusal(
            "platform of the host",
            "no facts 'system' and 'architecture'",
            "them, or the option 'platform'",
            "Gather facts before this task (ansible.builtin.setup with gather_subset: min)",
        )
    return lock.platform_of(system, machine)
