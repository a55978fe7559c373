# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Registration records: what the cluster side knows of hosts, and all that it knows.

One ConfigMap a host in the fleet's namespace, key ``record.json``. An annotation says since when
relays have been told to leave the host alone, if so (``marking`` writes it). A user's word for it
stays until the user takes it back; that of a run which restarts the host ends with the next
registration, so that a run which is interrupted leaves nobody out of service for long.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections import Counter
from typing import Any, Dict, List, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    diff,
    envoy_data,
    forms,
    labels,
    ownership,
)
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client
from ansible_collections.tether.fleet.plugins.module_utils.cluster.writer import step
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal

SCHEMA = 1
KEY = "record.json"

# What a mark for a restart ends with; whoever drains by hand writes the time alone.
_RESTART = " for a restart"

_PEM = re.compile(r"\s*-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----\s*")


def problems(record: Any) -> List[str]:
    """Everything that is wrong with a record's form, each naming its key. Pure."""
    if not isinstance(record, dict):
        return ["it is not a mapping"]
    found: List[str] = []
    if record.get("schema") != SCHEMA:
        found.append("schema is %r instead of %d" % (record.get("schema"), SCHEMA))
    host = record.get("host")
    if not isinstance(host, str) or not forms.is_host(host):
        found.append("host %r is not %s" % (host, forms.HOST))
    if not is_address(record.get("address")):
        found.append("address %r is no IP address or DNS name" % (record.get("address"),))
    port = record.get("port")
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        found.append("port %r is not a number from 1 to 65535" % (port,))
    pems = record.get("certificates")
    if not isinstance(pems, list) or not 0 < len(pems) < 3:
        found.append("certificates is not a list of one certificate, or two during a change")
    elif not all(isinstance(pem, str) and _PEM.fullmatch(pem) for pem in pems):
        found.append("certificates holds something that is not one PEM certificate")
    if not isinstance(record.get("ingress"), dict):
        found.append("ingress is not a mapping")
    engines = record.get("engines")
    if not isinstance(engines, list):
        found.append("engines is not a list")
    else:
        for index, engine in enumerate(engines):
            for key in ("namespace", "model", "engine"):
                if not isinstance(engine, dict) or not isinstance(engine.get(key), str):
                    found.append("engines[%d].%s is missing or not a text" % (index, key))
    # Only hosts of services have them.
    services = record.get("services", [])
    if not isinstance(services, list):
        return [*found, "services is not a list"]
    for index, service in enumerate(services):
        found += ["services[%d]%s" % (index, text) for text in _service_problems(service)]
    return found


def _service_problems(service: Any) -> List[str]:
    """How it is exposed is part of it: an entry of before must not stand for one of now."""
    if not isinstance(service, dict):
        return [" is not a mapping"]
    found = [
        ".%s is missing or not a text" % key
        for key in ("namespace", "name")
        if not isinstance(service.get(key), str)
    ]
    port = service.get("port")
    if service.get("expose") not in ("relay", "direct"):
        found.append(".expose is neither relay nor direct")
    elif service["expose"] == "direct" and (not isinstance(port, int) or isinstance(port, bool)):
        found.append(".port is missing or not a number")
    return found


def parse(live: Dict[str, Any]) -> Dict[str, Any]:
    """The record in a ConfigMap.

    :raises Refusal: when it has not the form of one
    """
    name = "ConfigMap %s/%s" % (live["metadata"].get("namespace"), live["metadata"]["name"])
    try:
        record = json.loads((live.get("data") or {}).get(KEY, "null"))
    except (ValueError, RecursionError):
        record = None
    wrong = problems(record)
    if isinstance(record, dict) and live["metadata"]["name"] != labels.record_name(
        str(record.get("host"))
    ):
        wrong.append("it is about host %r and not about its own" % record.get("host"))
    if wrong:
        raise Refusal(
            name,
            "; ".join(wrong),
            "a registration record of schema %d" % SCHEMA,
            "Run the registration again for that host",
        )
    result: Dict[str, Any] = record
    return result


def draining_since(live: Optional[Dict[str, Any]]) -> str:
    """Since when a record's host is draining; empty when it serves."""
    notes = (live or {}).get("metadata", {}).get("annotations") or {}
    if labels.DRAINING not in notes:
        return ""
    # Whoever writes it by hand may leave the time out.
    return str(notes[labels.DRAINING] or "an unknown time")


def is_restarting(since: str) -> bool:
    """Whether a host drains for the time of a restart alone.

    :param since: as ``draining_since`` gives it
    """
    return since.endswith(_RESTART)


def rests(since: str, direct: bool) -> bool:
    """Whether a host is to get no request.

    A restart is one of the ingress or of engines: a direct service is reached past both.

    :param since: as ``draining_since`` gives it
    :param direct: whether the requests are those of a directly exposed service
    """
    return bool(since) and not (direct and is_restarting(since))


def restarting(now: str) -> str:
    """The mark of a host that drains for the time of a restart."""
    return now + _RESTART


def _kept(live: Optional[Dict[str, Any]]) -> str:
    """The mark that outlives a registration: a user's."""
    since = draining_since(live)
    return "" if is_restarting(since) else since


def record_object(
    record: Dict[str, Any], fleet: str, namespace: str, draining: str = ""
) -> Dict[str, Any]:
    """A record as a ConfigMap; equal records give equal texts.

    :param draining: since when its host is draining, as ``draining_since`` gives it
    """
    data = {KEY: json.dumps(record, indent=1, sort_keys=True) + "\n"}
    return config_map(labels.record_name(record["host"]), data, fleet, namespace, draining)


def renewed(
    record: Dict[str, Any], fleet: str, namespace: str, live: Optional[Dict[str, Any]]
) -> Dict[str, Any]:
    """A record as it is to be written over a live one, or where there is none."""
    return record_object(record, fleet, namespace, _kept(live))


def config_map(
    name: str, data: Dict[str, str], fleet: str, namespace: str, draining: str
) -> Dict[str, Any]:
    """The ConfigMap of a record, whatever is in it."""
    item: Dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels.record_labels(fleet, "host"),
        },
        "data": data,
    }
    if draining:
        item["metadata"]["annotations"] = {labels.DRAINING: draining}
    return item


def observe(client: Client, desired: Dict[str, Any]) -> Dict[str, Any]:
    """One list request; more only for records that are missing."""
    place = desired["fleet_namespace"]
    selector = labels.fleet_selector(desired["fleet"], "host")
    found = {item["metadata"]["name"]: item for item in client.list("ConfigMap", selector, place)}
    foreign = {}
    if desired["state"] == "present":
        names = {labels.record_name(str(record.get("host"))) for record in desired["records"]}
        for name in sorted(names - set(found)):
            item = client.get("ConfigMap", name, place, metadata_only=True)
            if item is not None:
                foreign[name] = item
    return {"records": found, "foreign": foreign}


def plan(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """What differs; ``facts["records"]`` holds the records that then are there, by host, and
    ``facts["refused"]`` why others cannot be written: one host's trouble never stops another's."""
    fleet, place = desired["fleet"], desired["fleet_namespace"]
    result = Plan()
    records: Dict[str, Any] = {}
    refused: Dict[str, str] = {}
    result.facts["refused"] = refused
    if desired["state"] == "absent":
        for host in sorted(set(desired["hosts"])):
            live = observed["records"].get(labels.record_name(host))
            if live is not None:
                result.steps.append(step("remove", None, live))
        result.facts["records"] = records
        return result
    for record in sorted(desired["records"], key=lambda item: str(item.get("host"))):
        name = labels.record_name(record["host"])
        if name in observed["foreign"]:
            refused[record["host"]] = str(_foreign(name, observed["foreign"][name], fleet, place))
            continue
        live = observed["records"].get(name)
        item = renewed(record, fleet, place, live)
        if live is None or diff.differs(item, live):
            result.steps.append(step("create" if live is None else "update", item, live))
        records[record["host"]] = record
    result.facts["records"] = records
    return result


def _foreign(name: str, item: Dict[str, Any], fleet: str, place: str) -> Refusal:
    owner = ownership.describe_owner(item)
    remedy = "Remove or rename that ConfigMap, or choose another fleet_cluster_namespace"
    if labels.MANAGER in {
        entry.get("manager") for entry in item["metadata"].get("managedFields") or []
    }:
        # Ours once: somebody took its labels away, and with them the proof.
        marks = " ".join(
            "%s=%s" % pair for pair in sorted(labels.record_labels(fleet, "host").items())
        )
        remedy = (
            "If it is this fleet's after all, give it its labels again: kubectl label configmap %s"
            " -n %s --overwrite %s. Else remove or rename it" % (name, place, marks)
        )
    return Refusal(
        "ConfigMap %s/%s" % (place, name),
        "one that is not this fleet's (%s)" % owner,
        "none, or one with the labels of fleet %s" % fleet,
        remedy,
    )


def sort_out(
    records: List[Any], predicted: bool = False
) -> Tuple[List[Dict[str, Any]], Dict[str, str]]:
    """The records that have the right form, and by host why others have not.

    What a host says of itself is in its record, so one that lies must not cost the others.

    :param predicted: a check mode's record may lack its certificate: the key is not made yet
    """
    times = Counter(_host_of(record, index) for index, record in enumerate(records))
    good: List[Dict[str, Any]] = []
    refused: Dict[str, str] = {}
    for index, record in enumerate(records):
        name = _host_of(record, index)
        found = problems(record)
        if predicted and isinstance(record, dict) and record.get("certificates") == []:
            found = [text for text in found if not text.startswith("certificates")]
        if times[name] > 1:
            found.append("given %d times" % times[name])
        if not found:
            good.append(record)
            continue
        refused[name] = str(
            Refusal(
                "record of %s" % name,
                "; ".join(found),
                "a record of schema %d" % SCHEMA,
                "Correct what is named, or find out why that host says so: records are made by the"
                " collection itself",
            )
        )
    return good, refused


def _host_of(record: Any, index: int) -> str:
    return str(record.get("host") or index) if isinstance(record, dict) else str(index)


def is_address(value: Any) -> bool:
    if not isinstance(value, str) or len(value) > 253:
        return False
    if not envoy_data.is_name(value):
        # A zone ("fe80::1%eth0") has no meaning on another machine.
        return "%" not in value and not ipaddress.ip_address(value).is_unspecified
    # Four numbers that are no IPv4 address are a mistyped one and not a name.
    return forms.is_subdomain(value.lower()) and not re.fullmatch(r"[0-9.]+", value)
