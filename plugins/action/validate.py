# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os
from typing import Any, Dict, Optional

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal
from ansible_collections.tether.fleet.plugins.plugin_utils import catalogue, inventory, lock
from ansible_collections.tether.fleet.plugins.plugin_utils.plain import plain
from ansible_collections.tether.fleet.plugins.plugin_utils.schema import MissingLibraryError

_OPTIONS = {
    "models": {"type": "raw"},
    "fleet_name": {"type": "raw"},
    "cluster_namespace": {"type": "raw"},
    "ingress_port": {"type": "raw"},
    "base_dir": {"type": "path"},
    "lock": {"type": "path"},
}
_ADDRESS_KEYS = ("fleet_address", "ansible_host")


class ActionModule(ActionBase):
    """Checks the inventory on the controller; opens no connection and changes nothing."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True

    def run(
        self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None
    ) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        _spec, args = self.validate_argument_spec(argument_spec=_OPTIONS)
        groups = plain(variables.get("groups", {}))
        try:
            plan = inventory.resolve(
                self._value(args, "models", variables, "fleet_models", None),
                self._addresses(variables, groups),
                groups,
                catalogue.load(),
                inventory.Fleet(
                    name=self._value(args, "fleet_name", variables, "fleet_name", None),
                    namespace=self._value(
                        args,
                        "cluster_namespace",
                        variables,
                        "fleet_cluster_namespace",
                        inventory.DEFAULT_NAMESPACE,
                    ),
                    ingress_port=self._value(
                        args,
                        "ingress_port",
                        variables,
                        "ingress_port",
                        inventory.INGRESS_PORT,
                    ),
                ),
                base=args.get("base_dir") or variables.get("inventory_dir") or os.getcwd(),
                expand=os.path.expanduser,
                pinned=self._pinned(args.get("lock") or variables.get("fleet_lock_file")),
            )
        except inventory.InventoryErrors as errors:
            # Returned rather than raised: the mistakes are a list for whoever wants to sort them.
            result.update(
                failed=True,
                msg=str(errors),
                mistakes=[
                    {"model": item.model, "key": item.key, "message": item.message}
                    for item in errors.mistakes
                ],
            )
            return result
        except (catalogue.CatalogueError, MissingLibraryError, Refusal) as error:
            raise AnsibleActionFail(str(error)) from error
        result.update(changed=False, plan=plan)
        return result

    def _pinned(self, path: Any) -> Dict[str, str]:
        """Artifact -> version, from the lock of the option, the variable or the collection."""
        where = lock.DEFAULT
        if path:
            text = plain(self._templar.template(path))
            where = os.path.join(self._loader.get_basedir(), os.path.expanduser(text))
        return {name: item["version"] for name, item in lock.load(where)["artifacts"].items()}

    def _value(
        self, args: Dict[str, Any], key: str, variables: Dict[str, Any], name: str, default: Any
    ) -> Any:
        """An option, else the variable of that name (an inventory's own, so it is templated)."""
        if args.get(key) is not None:
            return plain(args[key])
        if variables.get(name) is None:
            return default
        return plain(self._templar.template(variables[name]))

    def _addresses(
        self, variables: Dict[str, Any], groups: Dict[str, Any]
    ) -> Dict[str, Dict[str, Any]]:
        """The hosts' own addresses, of those outside ``--limit`` too.

        ``ansible_host`` is taken from the host, never from a task's delegation.
        """
        hostvars = variables.get("hostvars", {})
        found: Dict[str, Dict[str, Any]] = {}
        for host in groups.get(inventory.HOSTS_GROUP, []):
            own = hostvars[host]
            found[host] = {key: plain(own[key]) for key in _ADDRESS_KEYS if key in own}
        return found
