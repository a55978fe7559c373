# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Dict, List, Optional

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal
from ansible_collections.tether.fleet.plugins.plugin_utils import (
    catalogue,
    depot,
    doubts,
    inventory,
    lock,
    mistakes,
    services,
    settings,
)
from ansible_collections.tether.fleet.plugins.plugin_utils.host_variables import HostVariables
from ansible_collections.tether.fleet.plugins.plugin_utils.plain import plain
from ansible_collections.tether.fleet.plugins.plugin_utils.schema import MissingLibraryError

_OPTIONS = {
    "models": {"type": "raw"},
    "services": {"type": "raw"},
    "fleet_name": {"type": "raw"},
    "cluster_namespace": {"type": "raw"},
    "ingress_port": {"type": "raw"},
    "base_dir": {"type": "path"},
    "lock": {"type": "path"},
}

_KUBECONFIG = "fleet_kubeconfig"
_UNREADABLE = "cannot be evaluated: %s"
_HOST_KEYS = ("fleet_address", "ansible_host", "fleet_system", *settings.PER_HOST)


def _why(error: AnsibleError) -> str:
    return _UNREADABLE % " ".join(str(error).split())


def _has(depot_dir: Optional[str]) -> Callable[[str, str], bool]:
    """Whether the controller has a file, at its source or in the depot."""
    folder = os.path.expanduser(depot_dir or depot.default_folder())
    return lambda path, digest: (
        os.path.exists(path) or (bool(digest) and os.path.exists(depot.path_of(folder, digest)))
    )


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
        # What goes wrong on the way to the values is reported together with what is wrong in them.
        found: List[inventory.Mistake] = []
        members = groups.get(inventory.HOSTS_GROUP, []) + groups.get(inventory.CLUSTER_GROUP, [])
        own = {host: HostVariables(variables["hostvars"], host, self._loader) for host in members}
        found += settings.of_ansible(constants.config.get_config_value)
        found += settings.misspelt(key for host in own.values() for key in host)
        try:
            given = self._settings(variables, groups, own, found)
            hosts = self._hosts(variables, groups, own, found)
            plan = inventory.resolve(
                self._entries(args, "models", variables, found, mistakes.MODELS),
                hosts,
                groups,
                self._engines(given.get(settings.ENGINES_DIR), found),
                inventory.Fleet(
                    name=self._value(args, "fleet_name", variables, found, "fleet_name"),
                    namespace=self._value(
                        args,
                        "cluster_namespace",
                        variables,
                        found,
                        "fleet_cluster_namespace",
                        inventory.DEFAULT_NAMESPACE,
                    ),
                    ingress_port=self._value(
                        args,
                        "ingress_port",
                        variables,
                        found,
                        "ingress_port",
                        inventory.INGRESS_PORT,
                    ),
                    settings=given,
                ),
                base=args.get("base_dir") or variables.get("inventory_dir") or os.getcwd(),
                expand=os.path.expanduser,
                pinned=self._pinned(args.get("lock"), given.get(settings.LOCK), found),
                known=found,
                satellites=self._entries(args, "services", variables, found, services.SOURCE),
                read_from=plain(variables.get("ansible_inventory_sources") or []),
            )
        except inventory.InventoryErrors as errors:
            result.update(failed=True, msg=str(errors))
            return result
        except (catalogue.CatalogueError, MissingLibraryError, Refusal) as error:
            raise AnsibleActionFail(str(error)) from error
        result.update(changed=False, plan=plan)
        told = doubts.doubts(
            plan,
            str(given["relay_image"]),
            {host: item.get("fleet_cluster_networks") for host, item in hosts.items()},
            _has(given.get("fleet_depot_dir")),
            self._files(given, own),
        )
        told += services.warnings(
            plan, {host: item.get("firewall_manage") for host, item in hosts.items()}
        )
        if told:
            result["warnings"] = told
        return result

    @staticmethod
    def _files(given: Mapping[str, Any], own: Mapping[str, Mapping[str, Any]]) -> Dict[str, str]:
        """Files of the controller that variables name, by the variable."""
        found = {settings.PASSPHRASE_FILE: given.get(settings.PASSPHRASE_FILE)}
        user = next((one for one in own.values() if _KUBECONFIG in one), None)
        if user is not None:
            # Its template may need what only a later part has: that part says so.
            with contextlib.suppress(AnsibleError):
                found[_KUBECONFIG] = plain(user[_KUBECONFIG])
        return {
            key: os.path.expanduser(path)
            for key, path in found.items()
            if isinstance(path, str) and path
        }

    def _pinned(
        self, option: Optional[str], variable: Any, found: List[inventory.Mistake]
    ) -> Optional[Dict[str, str]]:
        """Artifact -> version, from the lock of the option, the variable or the collection."""
        if not option and settings.wrong_path(settings.LOCK, variable):
            return None
        where = self._place(option or variable) if option or variable else lock.DEFAULT
        try:
            artifacts = lock.load(where)["artifacts"]
        except Refusal as refusal:
            found.append(inventory.Mistake(None, settings.LOCK, str(refusal)))
            return None
        return {name: item["version"] for name, item in artifacts.items()}

    def _engines(self, folder: Any, found: List[inventory.Mistake]) -> Dict[str, catalogue.Engine]:
        """The collection's engines and the user's own."""
        engines = catalogue.load()
        if folder and not settings.wrong_path(settings.ENGINES_DIR, folder):
            own, problems = catalogue.load_own(self._place(folder), engines)
            found += [inventory.Mistake(None, settings.ENGINES_DIR, text) for text in problems]
            engines = {**own, **engines}
        return engines

    def _place(self, path: str) -> str:
        return os.path.join(self._loader.get_basedir(), os.path.expanduser(path))

    def _value(
        self,
        args: Dict[str, Any],
        key: str,
        variables: Dict[str, Any],
        found: List[inventory.Mistake],
        name: str,
        default: Any = None,
    ) -> Any:
        """An option, else the variable of that name (an inventory's own, so it is templated)."""
        # A template that gives none is an empty text in ansible-core 2.17.
        if args.get(key) not in (None, ""):
            return plain(args[key])
        if variables.get(name) is None:
            return default
        return self._read(None, name, self._of_task(variables), found)

    def _entries(
        self,
        args: Dict[str, Any],
        key: str,
        variables: Dict[str, Any],
        found: List[inventory.Mistake],
        name: str,
    ) -> Any:
        """An option, else the list of that variable, with a mistake for each value in it that has
        a template without one.
        """
        raw = variables.get(name)
        given = args.get(key) not in (None, "")
        if given or not isinstance(raw, Sequence) or isinstance(raw, str):
            return self._value(args, key, variables, found, name)
        entries, troubles = [], []
        for entry in raw:
            told: Dict[str, str] = {}
            entries.append(self._readable(entry, "", told))
            troubles.append(told)
        for label, told in zip(mistakes.labels(entries, name), troubles, strict=True):
            found += [inventory.Mistake(label, key or "entry", told[key]) for key in told]
        return entries

    def _readable(self, raw: Any, key: str, told: Dict[str, str]) -> Any:
        """What a variable gives, with None for every part of it that cannot be evaluated.

        :param key: where it is in its entry
        :param told: key -> why, of such parts; added to
        """
        try:
            return plain(self._templar.template(raw))
        except AnsibleError as error:
            if isinstance(raw, Mapping):
                return {
                    plain(name): self._readable(raw[name], mistakes.join(key, str(name)), told)
                    for name in raw
                }
            if isinstance(raw, Sequence) and not isinstance(raw, str):
                return [
                    self._readable(item, "%s[%d]" % (key, index), told)
                    for index, item in enumerate(raw)
                ]
            told[key] = _why(error)
            return None

    def _settings(
        self,
        variables: Dict[str, Any],
        groups: Dict[str, List[str]],
        own: Mapping[str, Mapping[str, Any]],
        found: List[inventory.Mistake],
    ) -> Dict[str, Any]:
        """The fleet-wide variables, as the hosts have them that use them, else the task.

        The task's host may be any, with other group variables than those of the variable's users.
        """
        machines = groups.get(inventory.HOSTS_GROUP, [])
        cluster = groups.get(inventory.CLUSTER_GROUP, [])
        order = dict.fromkeys(settings.OF_CLUSTER, cluster + machines)
        order.update(dict.fromkeys(settings.OF_HOSTS, machines + cluster))
        values: Dict[str, Any] = {}
        for key, hosts in order.items():
            user = next((own[host] for host in hosts if key in own[host]), None)
            read = user.__getitem__ if user is not None else self._of_task(variables)
            values[key] = self._read(None, key, read, found)
        # Whether there is a passphrase is all that is wanted of it.
        values[settings.PASSPHRASE] = bool(values[settings.PASSPHRASE])
        return values

    def _hosts(
        self,
        variables: Dict[str, Any],
        groups: Dict[str, List[str]],
        own: Mapping[str, Mapping[str, Any]],
        found: List[inventory.Mistake],
    ) -> Dict[str, Dict[str, Any]]:
        """The hosts' own variables, of those outside ``--limit`` too.

        ``ansible_host`` is taken from the host, never from a task's delegation.
        """
        members = groups.get(inventory.HOSTS_GROUP, [])
        result: Dict[str, Dict[str, Any]] = {}
        for host in members:
            where = "host %s" % host
            result[host] = {
                key: self._read(where, key, own[host].__getitem__, found)
                for key in _HOST_KEYS
                if key in own[host]
            }
        for key in ("fleet_cluster_networks", "firewall_manage"):
            # No host's own, so a variable of the play, if anything.
            if key in variables and not any(key in own[host] for host in own):
                value = self._read(None, key, self._of_task(variables), found)
                for host in members:
                    result[host][key] = value
        return result

    def _of_task(self, variables: Dict[str, Any]) -> Callable[[str], Any]:
        return lambda key: self._templar.template(variables.get(key))

    @staticmethod
    def _read(
        where: Optional[str],
        key: str,
        read: Callable[[str], Any],
        found: List[inventory.Mistake],
    ) -> Any:
        """A variable as plain data; None, and a mistake, when its template has no value."""
        try:
            return plain(read(key))
        except AnsibleError as error:
            why = _why(error)
            if key == settings.PASSPHRASE:  # whose template may hold a secret
                why = _UNREADABLE % "is all that it names defined, and the vault's password given?"
            found.append(inventory.Mistake(where, key, why))
            return None
