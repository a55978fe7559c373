# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The inventory contract: ``fleet_models`` and the groups become the fleet's plan.

All checks are here, before any host is touched, and report every mistake at once. The plan is plain
data in a fixed order, so two runs on one inventory give equal plans.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Set, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    balancing,
    envoy_data,
    envoy_metrics,
    forms,
)
from ansible_collections.tether.fleet.plugins.plugin_utils import (
    fleet_plan,
    guard,
    mistakes,
    names,
    services,
    settings,
    sources,
)
from ansible_collections.tether.fleet.plugins.plugin_utils.address import check_address
from ansible_collections.tether.fleet.plugins.plugin_utils.catalogue import Engine
from ansible_collections.tether.fleet.plugins.plugin_utils.mistakes import InventoryErrors, Mistake

__all__ = ["Fleet", "InventoryErrors", "Mistake", "resolve"]

HOSTS_GROUP = "fleet_hosts"
CLUSTER_GROUP = "fleet_cluster"
DEFAULT_NAMESPACE = "tether-fleet"
INGRESS_PORT = 9443

_DEFAULTS: Dict[str, Any] = {
    "port": 80,
    "replicas": 2,
    "args": [],
    "environment": {},
    "local_accounts": [],
    "queue": balancing.QUEUE,
    "balancing": balancing.LEAST_REQUEST,
    "adopt": False,
    "adopt_from": [],
}
# The order in which a plan shows them.
_KEYS = ["name", "namespace", "engine", "hosts", "port", "replicas", "files", "args"]
_KEYS += ["environment", "engine_port", "parallel", "queue", "balancing", "affinity_header"]
_KEYS += ["adopt", "adopt_from", "clients", "metrics_clients"]
_KEYS += ["local_port", "local_accounts"]
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# Split GGUF files must lie side by side, which a store by digest does not give them.
_SPLIT = re.compile(r"-[0-9]{5}-of-(?!00001)[0-9]{5}\.gguf$")


@dataclass(frozen=True)
class Fleet:
    """The fleet-wide variables that the contract needs.

    :ivar name: ``fleet_name``
    :ivar namespace: ``fleet_cluster_namespace``
    :ivar ingress_port: ``ingress_port``
    :ivar settings: the variables that `settings.check` judges, by name; None to leave them out
    """

    name: Any
    namespace: Any = DEFAULT_NAMESPACE
    ingress_port: Any = INGRESS_PORT
    settings: Optional[Mapping[str, Any]] = None


def resolve(
    models: Any,
    hosts: Mapping[str, Mapping[str, Any]],
    groups: Mapping[str, List[str]],
    catalogue: Mapping[str, Engine],
    fleet: Fleet,
    base: str = "",
    expand: Optional[Callable[[str], str]] = None,
    pinned: Optional[Mapping[str, str]] = None,
    known: Iterable[Mistake] = (),
    satellites: Any = None,
    read_from: Iterable[str] = (),
) -> Dict[str, Any]:
    """The fleet's plan.

    :param models: ``fleet_models`` as given
    :param hosts: inventory host -> its ``fleet_address``, ``ansible_host``, ``fleet_system``
        and the variables of `settings.PER_HOST` (others are ignored)
    :param groups: inventory group -> its hosts
    :param base: the folder that relative sources are relative to
    :param expand: turns ``~`` in a source into a home directory
    :param pinned: artifact -> the version that the lock pins; None to leave the lock out
    :param known: mistakes that were found on the way here, to be reported with the others
    :param satellites: ``fleet_services`` as given
    :param read_from: the files and folders that the inventory was read from
    :return: the plan, see docs/inventory.md
    :raises InventoryErrors: with all mistakes
    """
    found: List[Mistake] = list(known)
    unread = mistakes.unread(known, None)
    found += [item for item in _check_fleet(fleet) if item.root not in unread]
    found += _check_groups(groups, list(read_from))
    members = list(dict.fromkeys(groups.get(HOSTS_GROUP, [])))
    if fleet.settings is not None:
        found += settings.check(fleet.settings, members, hosts, known)
    found += _check_names(members)
    found += _check_reserved(members)
    addresses, address_mistakes = _addresses(members, hosts)
    found += address_mistakes
    systems, system_mistakes = _systems(members, hosts)
    found += system_mistakes
    if models is None and satellites is not None:
        models = []
    if not isinstance(models, list):
        if mistakes.MODELS not in unread:
            what = "is not defined" if models is None else "is %s" % mistakes.describe(models)
            found.append(Mistake(None, mistakes.MODELS, "%s; expected a list of models" % what))
        raise InventoryErrors(found)
    entries: List[Dict[str, Any]] = []
    for model, label in zip(models, mistakes.labels(models), strict=True):
        own = mistakes.check_shape(model, label)
        # Checks beyond the shape need sound values: each skips the keys that are already wrong.
        wrong = {mistake.root for mistake in own}
        if isinstance(model, dict):
            own += _check_model(model, label, wrong, groups, members, catalogue, fleet)
        unknown = mistakes.unread(known, label)
        found += [item for item in own if item.root not in unknown]
        if not own and not unknown:
            entry = _normalise(model, groups, members, base, expand)
            engine = catalogue[entry["engine"]]
            entry["health_path"] = engine.data["health"]["path"]
            if entry["parallel"] is None:
                # Where the catalogue does not know, relays have no limit.
                entry["parallel"] = engine.parallel([_text(item) for item in entry["args"]]) or 0
            entries.append(_with_clients(entry, fleet))
    others, service_mistakes = services.check(
        satellites,
        lambda service, label: (
            _check_place(service, label, groups, members, fleet)
            + _check_readers(service, label, fleet)
        ),
        lambda texts: _chosen(texts, groups, members),
        known,
    )
    found += service_mistakes
    others = [
        _with_clients(entry, fleet) if entry["expose"] == "relay" else entry for entry in others
    ]
    found += _check_duplicates({mistakes.MODELS: models, services.SOURCE: satellites})
    found += _check_together(entries, catalogue)
    found += _check_guarded(entries, hosts)
    found += services.check_together(others, entries, addresses, fleet.ingress_port)
    if pinned is not None:
        found += _check_pinned(entries, catalogue, pinned)
    if found:
        raise InventoryErrors(found)
    header = {
        "name": fleet.name,
        "cluster_namespace": fleet.namespace,
        "ingress_port": fleet.ingress_port,
    }
    plan = fleet_plan.build(entries, members, addresses, systems, catalogue, header, pinned or {})
    return services.add(plan, others)


def _with_clients(entry: Dict[str, Any], fleet: Fleet) -> Dict[str, Any]:
    """A sound entry whose relays let in whom the fleet lets in, where it says nothing itself."""
    general = fleet.settings or {}
    return {
        **entry,
        **{key: entry[key] or general.get("fleet_" + key) for key in settings.CLIENTS},
    }


def _check_fleet(fleet: Fleet) -> List[Mistake]:
    found = []
    for key, value in (("fleet_name", fleet.name), ("fleet_cluster_namespace", fleet.namespace)):
        if value is None:
            found.append(Mistake(None, key, "is not defined; expected a name of a-z, 0-9 and -"))
        elif not isinstance(value, str) or not _LABEL.fullmatch(value):
            found.append(
                Mistake(
                    None,
                    key,
                    "is %s; expected 1 to 63 of a-z, 0-9 and -" % mistakes.describe(value),
                )
            )
    port = fleet.ingress_port
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        found.append(
            Mistake(None, "ingress_port", "is %s; expected a port" % mistakes.describe(port))
        )
    return found


def _check_groups(groups: Mapping[str, List[str]], read_from: List[str]) -> List[Mistake]:
    found = []
    if not groups.get(HOSTS_GROUP):
        text = "the group is missing or empty; put the machines into it"
        if not groups.get(CLUSTER_GROUP):
            # Rather a run in another folder than an inventory without both.
            text += ". The inventory was read from %s; is it the right one? -i names another" % (
                ", ".join(read_from) or "nowhere"
            )
        found.append(Mistake(None, HOSTS_GROUP, text))
    cluster = groups.get(CLUSTER_GROUP, [])
    if len(cluster) != 1:
        found.append(
            Mistake(
                None,
                CLUSTER_GROUP,
                "the group has %d hosts; expected exactly one, which stands for the cluster "
                "(ansible_connection: local)" % len(cluster),
            )
        )
    for host in cluster:
        if host in groups.get(HOSTS_GROUP, []):
            found.append(
                Mistake(None, CLUSTER_GROUP, "%s is in %s too; take it out" % (host, HOSTS_GROUP))
            )
    return found


def _check_names(members: List[str]) -> List[Mistake]:
    """Names under which a host cannot register in the cluster."""
    return [
        Mistake(
            "host %s" % host,
            "inventory_hostname",
            "is %s; expected %s, at most %d characters, each part beginning and ending in a letter "
            "or digit: rename it in the inventory and give its address as ansible_host"
            % (mistakes.describe(host), forms.HOST, forms.MAX_HOST),
        )
        for host in members
        if not forms.is_host(host)
    ]


def _check_reserved(members: List[str]) -> List[Mistake]:
    """A name at which the metrics port has something else."""
    text = "is that of the relays' own metrics (%s); rename the host in the inventory"
    return [
        Mistake("host %s" % host, "inventory_hostname", text % envoy_metrics.path_of(host))
        for host in members
        if host == envoy_metrics.RELAY
    ]


def _addresses(
    members: List[str], hosts: Mapping[str, Mapping[str, Any]]
) -> Tuple[Dict[str, str], List[Mistake]]:
    result: Dict[str, str] = {}
    found: List[Mistake] = []
    taken: Dict[str, str] = {}
    for host in members:
        variables = hosts.get(host, {})
        key = "fleet_address" if variables.get("fleet_address") is not None else "ansible_host"
        value = variables.get(key)
        if value is None and ("." in host or ":" in host):
            value = host
        where = "host %s" % host
        if value is None:
            found.append(
                Mistake(
                    where,
                    "fleet_address",
                    "the host has no address; set fleet_address or ansible_host to the IP address "
                    "or DNS name under which the cluster reaches it",
                )
            )
            continue
        wrong = check_address(value)
        if wrong:
            found.append(Mistake(where, key, wrong))
        elif value.lower() in taken:
            found.append(
                Mistake(where, key, "%s is %s's address already" % (value, taken[value.lower()]))
            )
        else:
            taken[value.lower()] = host
            result[host] = value
    return result, found


def _systems(
    members: List[str], hosts: Mapping[str, Mapping[str, Any]]
) -> Tuple[Dict[str, str], List[Mistake]]:
    """Which system each machine has: paths follow from it before any machine is asked."""
    systems = {host: hosts.get(host, {}).get("fleet_system") or names.LINUX for host in members}
    found = [
        Mistake(
            "host %s" % host,
            "fleet_system",
            "is %s; expected %s" % (mistakes.describe(system), " or ".join(names.RUN_ROOTS)),
        )
        for host, system in systems.items()
        if not isinstance(system, str) or system not in names.RUN_ROOTS
    ]
    return systems, found


def _check_model(
    model: Dict[str, Any],
    label: str,
    wrong: Iterable[str],
    groups: Mapping[str, List[str]],
    members: List[str],
    catalogue: Mapping[str, Engine],
    fleet: Fleet,
) -> List[Mistake]:
    skip = set(wrong)
    found = _check_place(model, label, groups, members, fleet)
    if "port" not in skip and model.get("port") == envoy_data.METRICS_PORT:
        found.append(Mistake(label, "port", services.METRICS_PORT))
    found += [item for item in settings.check_clients(model, label) if item.root not in skip]
    found += _check_readers(model, label, fleet)
    if isinstance(model.get("files"), list):
        found += _check_files(model["files"], label)
    if model.get("adopt_from") and model.get("adopt", False) is False:
        text = "says from whom to adopt, but adopt is not true; set it, or remove this key"
        found.append(Mistake(label, "adopt_from", text))
    engine = None
    if isinstance(model.get("engine"), str):
        engine = catalogue.get(model["engine"])
        if engine is None:
            text = "no engine %s%s; the catalogue has %s" % (
                model["engine"],
                guard.nearest(model["engine"], list(catalogue)),
                ", ".join(sorted(catalogue)),
            )
            found.append(Mistake(label, "engine", text))
    found += _check_balancing(model, label, skip, engine)
    found += _check_local(model, label, skip, fleet)
    if engine is not None:
        if "engine_port" not in skip:
            found += _check_engine_port(model, label, engine, fleet)
        for problem in _guard(model, engine.table):
            found.append(Mistake(label, problem.key, problem.message))
    return found


def _check_readers(model: Dict[str, Any], label: str, fleet: Fleet) -> List[Mistake]:
    """Readers of metrics where no clients are named, neither here nor for the fleet."""
    given = fleet.settings or {}
    if model.get("expose") == "direct":
        return []

    def key_of(key: str) -> Optional[str]:
        found = [key] if key in model else []
        found += ["fleet_" + key] if given.get("fleet_" + key) is not None else []
        return found[0] if found else None

    readers = key_of("metrics_clients")
    if readers is None or key_of("clients") is not None:
        return []
    text = (
        "is missing, but %s says who may read its metrics; expected both. The policy for those"
        " readers would let everybody call the model, beside any policy of its namespace. List who"
        " may call it in clients or fleet_clients, or remove %s" % (readers, readers)
    )
    return [Mistake(label, "clients", text)]


def _check_balancing(
    model: Dict[str, Any], label: str, skip: Set[str], engine: Optional[Engine]
) -> List[Mistake]:
    """Keys that say something only together."""
    found = []
    by_header = model.get("balancing") == balancing.AFFINITY
    header = model.get("affinity_header")
    if by_header and header is None:
        text = "is missing; balancing by affinity needs the name of a header"
        found.append(Mistake(label, "affinity_header", text))
    elif header is not None and not by_header and "balancing" not in skip:
        text = "says nothing without balancing: affinity; add that, or remove the key"
        found.append(Mistake(label, "affinity_header", text))
    elif isinstance(header, str) and header.lower().startswith(("x-relay-", "x-envoy-")):
        text = "is %s; relays remove x-relay- and x-envoy- headers, take another" % header
        found.append(Mistake(label, "affinity_header", text))
    parallel = model.get("parallel")
    unknown = parallel is None and engine is not None and "parallel" not in engine.data
    if model.get("queue") is not None and "parallel" not in skip and (unknown or parallel == 0):
        text = "says nothing without a limit of running requests; give parallel, or remove the key"
        found.append(Mistake(label, "queue", text))
    return found


def _check_local(model: Dict[str, Any], label: str, skip: Set[str], fleet: Fleet) -> List[Mistake]:
    """A local port and who may use it, one not without the other."""
    port, accounts = model.get("local_port"), model.get("local_accounts")
    if skip & {"local_port", "local_accounts"}:
        return []
    if port is None and accounts:
        text = "is missing; local_accounts connect to a loopback port, give it a free one"
        return [Mistake(label, "local_port", text)]
    if port is not None and not accounts:
        text = "is missing; list the accounts that may connect to local_port"
        return [Mistake(label, "local_accounts", text)]
    found = []
    if port is not None and port == fleet.ingress_port:
        found.append(Mistake(label, "local_port", "%d is the ingress's own port" % port))
    for index, account in enumerate(accounts or []):
        if account == "root" or account.startswith("tether-"):
            whose = "root may connect anyway" if account == "root" else "it is the collection's own"
            text = "is %s; %s: leave it out" % (account, whose)
            found.append(Mistake(label, "local_accounts[%d]" % index, text))
    return found


def _check_guarded(
    entries: List[Dict[str, Any]], hosts: Mapping[str, Mapping[str, Any]]
) -> List[Mistake]:
    """Local ports on hosts where no rule of ours keeps other accounts out."""
    return [
        Mistake(
            names.model_key(entry["namespace"], entry["name"]),
            "local_port",
            "firewall_manage is false for %s, so every account there could connect; let the"
            " collection manage the firewall, or remove the key" % host,
        )
        for entry in entries
        for host in entry["hosts"]
        if entry["local_port"] is not None and _leaves_firewall(hosts.get(host, {}))
    ]


def _leaves_firewall(variables: Mapping[str, Any]) -> bool:
    """Whether a host's firewall is somebody else's."""
    return str(variables.get("firewall_manage")).lower() in ("false", "no", "off", "0")


def _check_place(
    entry: Dict[str, Any],
    label: str,
    groups: Mapping[str, List[str]],
    members: List[str],
    fleet: Fleet,
) -> List[Mistake]:
    """Where a model or a service is to be: its namespace and its hosts."""
    found: List[Mistake] = []
    namespace = entry.get("namespace")
    if isinstance(namespace, str):
        if namespace.startswith("kube-") or namespace == fleet.namespace:
            whose = "Kubernetes" if namespace.startswith("kube-") else "the fleet itself"
            text = "%s belongs to %s; models live in namespaces of their own" % (namespace, whose)
            found.append(Mistake(label, "namespace", text))
    if isinstance(entry.get("hosts"), list):
        for index, text in enumerate(entry["hosts"]):
            reason = _check_host(text, groups, members) if isinstance(text, str) else ""
            if reason:
                found.append(Mistake(label, "hosts[%d]" % index, reason))
    return found


def _chosen(texts: List[str], groups: Mapping[str, List[str]], members: List[str]) -> List[str]:
    """The hosts that a sound list of hosts and groups means, in the inventory's order."""
    chosen: Set[str] = set()
    for text in texts:
        chosen.update([text] if text in members else groups[text])
    return [host for host in members if host in chosen]


def _guard(model: Dict[str, Any], table: guard.Table) -> List[guard.Problem]:
    """What the guard says; a value that only lacks its quotes is taken as if it had them."""
    problems: List[guard.Problem] = []
    args, environment = model.get("args"), model.get("environment")
    if isinstance(args, list):
        problems += guard.check_arguments(table, [_text(item) for item in args])
    if isinstance(environment, dict):
        given = {_text(key): _text(value) for key, value in environment.items()}
        problems += guard.check_environment(table, given)
    return problems


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _check_host(text: str, groups: Mapping[str, List[str]], members: List[str]) -> str:
    """Why a name in ``hosts`` cannot be used, or an empty string."""
    if text in members:
        return ""
    if text in groups.get(CLUSTER_GROUP, []):
        return "%s stands for the cluster; expected machines" % text
    if text in groups:
        outside = [host for host in groups[text] if host not in members]
        if outside:
            return "the group %s has hosts outside %s: %s" % (
                text,
                HOSTS_GROUP,
                ", ".join(outside[:5]),
            )
        return "" if groups[text] else "the group %s is empty" % text
    if any(text in in_group for in_group in groups.values()):
        return "the host %s is not in the group %s" % (text, HOSTS_GROUP)
    known = members + [group for group in groups if group not in ("all", "ungrouped")]
    return "the inventory has no host or group %s%s" % (text, guard.nearest(text, known))


def _check_files(files: List[Dict[str, Any]], label: str) -> List[Mistake]:
    found = []
    entries = [(index, entry) for index, entry in enumerate(files) if isinstance(entry, dict)]
    seen = Counter(e["name"] for _index, e in entries if isinstance(e.get("name"), str))
    for name, times in seen.items():
        if times > 1:
            found.append(Mistake(label, "files", "%s is listed %d times" % (name, times)))
    for index, entry in entries:
        key, name, source = "files[%d]" % index, entry.get("name"), entry.get("source")
        if isinstance(name, str) and ".." in name and "/" not in name:
            found.append(Mistake(label, key + ".name", "%s has .. in it" % name))
        if isinstance(name, str) and _SPLIT.search(name):
            text = (
                "%s is one part of a split model, which is not supported; join the parts "
                "(llama-gguf-split --merge) and list the one file" % name
            )
            found.append(Mistake(label, key + ".name", text))
        wrong = sources.check(source) if isinstance(source, str) and source else None
        if wrong:
            found.append(Mistake(label, key + ".source", wrong))
    return found


def _check_engine_port(
    model: Dict[str, Any], label: str, engine: Engine, fleet: Fleet
) -> List[Mistake]:
    port = model.get("engine_port")
    if engine.needs_port and port is None:
        text = "is missing; %s listens on a loopback port, give it a free one" % engine.name
        return [Mistake(label, "engine_port", text)]
    if not engine.needs_port and port is not None:
        text = "%s listens on a unix socket and has no port; remove the key" % engine.name
        return [Mistake(label, "engine_port", text)]
    if port is not None and port == fleet.ingress_port:
        return [Mistake(label, "engine_port", "%d is the ingress's own port" % port)]
    return []


def _check_duplicates(lists: Mapping[str, Any]) -> List[Mistake]:
    """Two entries of one name in one namespace, whatever else is wrong with them.

    :param lists: variable -> the entries that it lists, if it does
    """
    places: Dict[str, List[str]] = {}
    for source, entries in lists.items():
        for index, entry in enumerate(entries if isinstance(entries, list) else []):
            if not isinstance(entry, dict):
                continue
            namespace, name = entry.get("namespace"), entry.get("name")
            if isinstance(namespace, str) and isinstance(name, str):
                key = names.model_key(namespace, name)
                places.setdefault(key, []).append("%s[%d]" % (source, index))
    return [
        Mistake(
            key,
            "name",
            "%d entries of this name in this namespace (%s); expected one: rename or remove others"
            % (len(found), ", ".join(found)),
        )
        for key, found in places.items()
        if len(found) > 1
    ]


def _check_pinned(
    entries: List[Dict[str, Any]], catalogue: Mapping[str, Engine], pinned: Mapping[str, str]
) -> List[Mistake]:
    """The argument table of an engine is that of one version: the lock must pin just that one."""
    found: List[Mistake] = []
    if names.INGRESS_ARTIFACT not in pinned:
        text = "the lock pins no artifact %s, which every ingress needs" % names.INGRESS_ARTIFACT
        found.append(Mistake(None, "fleet_lock_file", text))
    for name in sorted({entry["engine"] for entry in entries}):
        artifact, version = catalogue[name].data["artifact"], catalogue[name].table.version
        if artifact not in pinned:
            text = "the lock pins no artifact %s, which the engine %s needs" % (artifact, name)
            found.append(Mistake(None, "fleet_lock_file", text))
        elif pinned[artifact] != version:
            text = (
                "the lock pins %s %s, but the catalogue's table of accepted arguments is of %s; "
                "pin that version, or bring a table for the other"
                % (artifact, pinned[artifact], version)
            )
            found.append(Mistake(None, "fleet_lock_file", text))
    return found


def _check_together(
    entries: List[Dict[str, Any]], catalogue: Mapping[str, Engine]
) -> List[Mistake]:
    """Conflicts between sound entries: ports on a host, sizes of a digest, derived names."""
    found: List[Mistake] = []
    ports: Dict[Tuple[str, int], str] = {}
    sizes: Dict[str, Tuple[int, str]] = {}
    accounts: Dict[str, str] = {}
    for entry in entries:
        key = names.model_key(entry["namespace"], entry["name"])
        for host in entry["hosts"]:
            for name in ("engine_port", "local_port"):
                port, user = entry[name], "%s (%s)" % (key, name)
                if port is None:
                    continue
                other = ports.setdefault((host, port), user)
                if other != user:
                    text = "%d on %s is taken by %s; give one of them another port" % (
                        port,
                        host,
                        other,
                    )
                    found.append(Mistake(key, name, text))
        for index, item in enumerate(entry["files"]):
            if item["size"] is None:
                continue
            size, other = sizes.setdefault(item["sha256"], (item["size"], key))
            if size != item["size"]:
                text = "%d, but %s gives the same digest the size %d" % (item["size"], other, size)
                found.append(Mistake(key, "files[%d].size" % index, text))
        account = names.engine_account(entry["namespace"])
        other = accounts.setdefault(account, entry["namespace"])
        if other != entry["namespace"]:
            text = "its account %s is %s's too; rename one namespace" % (account, other)
            found.append(Mistake(key, "namespace", text))
    return found


def _normalise(
    model: Dict[str, Any],
    groups: Mapping[str, List[str]],
    members: List[str],
    base: str,
    expand: Optional[Callable[[str], str]],
) -> Dict[str, Any]:
    entry: Dict[str, Any] = {key: model.get(key, _DEFAULTS.get(key)) for key in _KEYS}
    entry["hosts"] = _chosen(entry["hosts"], groups, members)
    entry["args"] = list(entry["args"])
    entry["local_accounts"] = list(entry["local_accounts"])
    entry["environment"] = dict(entry["environment"])
    entry["files"] = [
        {
            "name": item["name"],
            "source": sources.absolute(item["source"], base, expand),
            "sha256": item["sha256"],
            "size": item.get("size"),
            "path": names.model_path(entry["namespace"], item["sha256"], item["name"]),
        }
        for item in entry["files"]
    ]
    return entry
