# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The fleet-wide variables that later parts need, checked before the first of them begins."""

from __future__ import annotations

import difflib
import ipaddress
from collections import Counter
from typing import Any, Callable, Iterable, List, Mapping, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    clients,
    forms,
    monitors,
)
from ansible_collections.tether.fleet.plugins.plugin_utils.mistakes import (
    Mistake,
    check_shape,
    describe,
)

PASSPHRASE = "fleet_ca_passphrase"  # a variable's name, no secret # noqa: S105
PASSPHRASE_FILE = "fleet_ca_passphrase_file"  # noqa: S105
LOCK = "fleet_lock_file"
CA_DIR = "fleet_ca_dir"
ENGINES_DIR = "fleet_engines_dir"
PATHS = (CA_DIR, "fleet_depot_dir", LOCK, ENGINES_DIR, PASSPHRASE_FILE)

# By who uses them: the cluster's pseudo host, or the machines.
NUMBERS = {
    "fleet_max_body_bytes": (1 << 20, 1 << 30),
    "relay_host_wait": (1, 600),
    "relay_drain_timeout": (20, 7200),
}
BOOLEANS = ("fleet_create_namespaces", "fleet_drain_restarts")
# Keys of a model or a service; the fleet's variables have them behind fleet_.
CLIENTS = ("clients", "metrics_clients")
OF_CLUSTER = (
    "relay_image",
    "relay_monitor",
    *BOOLEANS,
    *("fleet_" + key for key in CLIENTS),
    *NUMBERS,
)
OF_HOSTS = (PASSPHRASE, *PATHS)
# All that begin with fleet_, to tell a misspelt one; docs/inventory.md describes each.
FLEET = (
    "fleet_name",
    "fleet_models",
    "fleet_services",
    "fleet_address",
    "fleet_system",
    "fleet_cluster_networks",
    "fleet_kubeconfig",
    "fleet_kube_context",
    "fleet_cluster_namespace",
    "fleet_max_body_bytes",
    *BOOLEANS,
    "fleet_clients",
    "fleet_metrics_clients",
    *OF_HOSTS,
)
# What the roles take from a user beside them, and begins like it.
OTHERS = (
    "firewall_foreign",
    "firewall_ingress_sources",
    "firewall_listeners",
    "firewall_manage",
    "firewall_open_ports",
    "firewall_policy",
    "ingress_grace_seconds",
    "ingress_max_body_bytes",
    "ingress_port",
    "relay_ca_certificate",
    "relay_ca_dir",
    "relay_cluster_namespace",
    "relay_context",
    "relay_create_namespaces",
    "relay_defer_failure",
    "relay_drain_timeout",
    "relay_host_wait",
    "relay_image",
    "relay_kubeconfig",
    "relay_max_body_bytes",
    "relay_monitor",
    "relay_prune",
    "relay_wait_timeout",
)
_PREFIXES = ("fleet_", "firewall_", "ingress_", "relay_")
# So alike that the one is more likely a slip of the other than a variable of the user's own.
_ALIKE = 0.88

# Those that may differ from host to host.
PER_HOST = ("fleet_cluster_networks", "firewall_ingress_sources", "firewall_manage")


def check(
    settings: Mapping[str, Any],
    members: List[str],
    hosts: Mapping[str, Mapping[str, Any]],
    known: Iterable[Mistake] = (),
) -> List[Mistake]:
    """Everything that is wrong with them.

    :param settings: variable -> value. ``fleet_ca_passphrase`` only says whether there is one: its
        value is not needed here, so it cannot be shown
    :param members: the machines
    :param hosts: machine -> its variables of ``PER_HOST``
    :param known: mistakes that are found already; their variables are not judged again
    """
    skip = {(mistake.model, mistake.root) for mistake in known}
    found = [
        Mistake(None, key, text)
        for key, text in [
            ("relay_image", _image(settings.get("relay_image"))),
            *((key, _boolean(settings.get(key))) for key in BOOLEANS),
            ("relay_monitor", _monitor(settings.get("relay_monitor"))),
            *((key, _number(settings.get(key), *limits)) for key, limits in NUMBERS.items()),
            (PASSPHRASE, _passphrase(settings, {key for _model, key in skip})),
            *((key, wrong_path(key, settings.get(key))) for key in PATHS),
        ]
        if text and (None, key) not in skip
    ]
    for key in CLIENTS:
        if settings.get("fleet_" + key) is not None and (None, "fleet_" + key) not in skip:
            found += _clients(key, settings["fleet_" + key])
    each = {host: _firewall(hosts.get(host, {})) for host in members}
    times = Counter(item for items in each.values() for item in items)
    said = set()
    for host, items in each.items():
        for item in items:
            # What is wrong everywhere is one mistake of the fleet and not one a host.
            where = None if times[item] == len(each) else "host %s" % host
            if (where, item) not in said and ("host %s" % host, _root(item[0])) not in skip:
                said.add((where, item))
                found.append(Mistake(where, *item))
    return found


def check_clients(entry: Mapping[str, Any], label: str) -> List[Mistake]:
    """What is wrong with the clients of a model or a service, its shape aside."""
    return [
        Mistake(label, key + place, text)
        for key in CLIENTS
        if key in entry
        for place, text in clients.mistakes(entry[key])
    ]


def of_ansible(read: Callable[[str], Any]) -> List[Mistake]:
    """What Ansible itself must be told.

    Any module's answer may bring facts. As variables they come before the inventory's own: a host
    that was taken over could name a kubeconfig with a command in it, which the controller runs.

    :param read: Ansible's settings by their names
    """
    if not read("INJECT_FACTS_AS_VARS"):
        return []
    text = (
        "is true in Ansible's settings; expected false: a host could set any variable of the run."
        " Write inject_facts_as_vars = False under [defaults] in ansible.cfg, or set"
        " ANSIBLE_INJECT_FACT_VARS=False; facts are in ansible_facts then"
    )
    return [Mistake(None, "inject_facts_as_vars", text)]


def misspelt(names: Iterable[str]) -> List[Mistake]:
    """Variables that look like one that is read and are none: they would be left unread.

    :param names: of all variables
    """
    found = []
    known = (*FLEET, *OTHERS)
    for name in sorted({name for name in names if name.startswith(_PREFIXES)} - set(known)):
        near = difflib.get_close_matches(name, known, 1, _ALIKE)
        if near:
            found.append(Mistake(None, name, "is not known; did you mean %s?" % near[0]))
    return found


def wrong_path(key: str, value: Any) -> Optional[str]:
    """Why a path cannot be used, or None. An empty text is the default, but for the CA's folder."""
    if value is None or (value == "" and key != CA_DIR):
        return None
    if isinstance(value, str) and value.startswith(("/", "~")):
        return None
    return (
        "is %s; expected a path that begins with / or ~: parts of a run would read a relative one "
        "from different folders" % (describe(value) if value != "" else "an empty text")
    )


def _image(value: Any) -> Optional[str]:
    if value is None:
        return "is not defined; expected the Envoy image, %s" % forms.IMAGE
    if not isinstance(value, str) or not forms.is_pinned(value):
        return "is %s; expected the Envoy image, %s" % (describe(value), forms.IMAGE)
    return None


def _monitor(value: Any) -> Optional[str]:
    if value is None or value in monitors.CHOICES:
        return None
    return "is %s; expected %s" % (describe(value), ", ".join(monitors.CHOICES))


def _clients(key: str, value: Any) -> List[Mistake]:
    """A fleet's list is what a model's would be."""
    shape = [item for item in check_shape({key: value}, "") if item.root == key]
    found = [(item.key[len(key) :], item.message) for item in shape]
    return [Mistake(None, "fleet_%s%s" % (key, place), text) for place, text in found] or [
        Mistake(None, "fleet_%s%s" % (key, place), text) for place, text in clients.mistakes(value)
    ]


def _boolean(value: Any) -> Optional[str]:
    if value is None or isinstance(value, bool):
        return None
    return "is %s; expected true or false, without quotes" % describe(value)


def _number(value: Any, lowest: int, highest: int) -> Optional[str]:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest:
        return None
    return "is %s; expected a whole number from %d to %d" % (describe(value), lowest, highest)


def _passphrase(settings: Mapping[str, Any], unread: Iterable[str]) -> Optional[str]:
    given, file = bool(settings.get(PASSPHRASE)), bool(settings.get(PASSPHRASE_FILE))
    if given and file:
        return "and %s are both given; remove one of them" % PASSPHRASE_FILE
    if not given and not file and PASSPHRASE_FILE not in unread:
        return (
            "is not defined, nor is %s; expected one of them, to encrypt the certificate "
            "authority's key with" % PASSPHRASE_FILE
        )
    return None


def _firewall(variables: Mapping[str, Any]) -> List[Tuple[str, str]]:
    """Key and message of each mistake in a host's firewall settings."""
    manage = variables.get("firewall_manage")
    wrong = _boolean(manage)
    if wrong:
        return [("firewall_manage", wrong)]
    if manage is False:
        return []
    own = variables.get("firewall_ingress_sources")
    if own is not None:
        return _networks("firewall_ingress_sources", own)
    return _networks("fleet_cluster_networks", variables.get("fleet_cluster_networks"))


def _networks(key: str, value: Any) -> List[Tuple[str, str]]:
    wanted = "a list of the networks that the cluster's nodes or pods come from"
    if value is None:
        return [(key, "is not defined; expected %s, or firewall_manage: false" % wanted)]
    if not isinstance(value, list) or not value:
        what = "an empty list" if value == [] else describe(value)
        return [(key, "is %s; expected %s" % (what, wanted))]
    found: List[Tuple[str, str]] = []
    for index, item in enumerate(value):
        text = _network(item)
        if text:
            found.append(("%s[%d]" % (key, index), text))
    return found


def _network(value: Any) -> Optional[str]:
    if not isinstance(value, str):  # ipaddress would take a number for an address
        return "is %s; expected a network such as 10.0.0.0/8, in quotes" % describe(value)
    try:
        ipaddress.ip_network(value)
    except ValueError:
        pass
    else:
        return None
    try:
        network = ipaddress.ip_network(value, strict=False)
    except ValueError:
        return "is %s; expected an address or a network such as 10.0.0.0/8" % describe(value)
    return "is %s, an address within a network; write %s" % (describe(value), network)


def _root(key: str) -> str:
    return key.split("[")[0]
