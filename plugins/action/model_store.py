# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring model files to a host: one call when nothing changes."""

from __future__ import annotations

import os
from typing import Any, Dict

from ansible_collections.tether.fleet.plugins.module_utils import model_store
from ansible_collections.tether.fleet.plugins.plugin_utils import depot, send
from ansible_collections.tether.fleet.plugins.plugin_utils.controller import (
    STORE_SPEC,
    ControllerAction,
)


class ActionModule(ControllerAction):
    TRANSFERS_FILES = False  # only when something is missing; a folder is then made for it
    ARGUMENT_SPEC = dict(
        STORE_SPEC,
        models={
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "namespace": {"type": "str", "required": True},
                "name": {"type": "str", "required": True},
                "sha256": {"type": "str", "required": True},
                "size": {"type": "int"},
                "source": {"type": "str"},
                "group": {"type": "str"},
                "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            },
        },
        store={"type": "path"},
        prune={"type": "bool", "default": False},
    )

    def act(self, arguments: Dict[str, Any], task_vars: Dict[str, Any]) -> Dict[str, Any]:
        store = self.open_depot(arguments["depot_dir"], task_vars.get("inventory_hostname"))
        options: Dict[str, Any] = {"models": []}
        for model in arguments["models"]:
            entry = depot.without_source(model)
            path = depot.path_of(store.folder, entry["sha256"])
            if entry.get("size") is None and os.path.exists(path):
                entry["size"] = os.path.getsize(path)
            options["models"].append(entry)
        for key in ("store", "incoming", "prune", "verify"):
            if arguments[key] is not None:
                options[key] = arguments[key]
        return send.run(
            self,
            "tether.fleet.model_store_host",
            options,
            task_vars,
            send.offer(options["models"], model_store.title),
            store.locate,
            store.say,
            arguments["chunk_size"],
        )
