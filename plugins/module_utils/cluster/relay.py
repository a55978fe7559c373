# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Relays of all models: observe the cluster, plan what differs.

One model's trouble never stops another: a model is refused as a whole, before any of its objects is
written, and the others go on.
"""

from __future__ import annotations

import datetime
import re
import secrets
from dataclasses import dataclass, field, replace
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    answers,
    balancing,
    certificates,
    claims,
    clients,
    diff,
    drain,
    envoy_data,
    former,
    forms,
    handover,
    labels,
    monitors,
    objects,
    ownership,
    registration,
    service_objects,
    services,
    state,
    strays,
    tokens,
    wait,
)
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client, Failed
from ansible_collections.tether.fleet.plugins.module_utils.cluster.writer import step, wake
from ansible_collections.tether.fleet.plugins.module_utils.plan import (
    Plan,
    Refusal,
    Step,
    printable,
)

Key = Tuple[str, str, str]

KINDS = (
    "ConfigMap",
    "Secret",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "Deployment",
    "Service",
)
# Kinds that not every model has: another of its objects says whether it has one.
_MARKED = ("Ingress", *monitors.KINDS.values())
# The Service goes first so that nobody is sent to a relay that ends; the policy stays to the end.
_REMOVAL = (
    *monitors.KINDS.values(),
    "Ingress",
    "Service",
    "EndpointSlice",
    "Deployment",
    "PodDisruptionBudget",
    "Secret",
    "ConfigMap",
    "NetworkPolicy",
)

# Up to so many missing objects of a kind are looked up one by one, more with one list.
_SINGLE_LOOKUPS = 2

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")

# What a check mode on a fresh fleet stands in with; it is never written.
_PREDICTED_TOKEN = "predicted"  # noqa: S105


@dataclass
class Verdict:
    """What became of one model.

    :ivar state: ``served``, ``waiting``, ``refused``, ``drained`` or, in check mode, ``planned``
    :ivar hosts: by host, ``accepted`` or why not
    :ivar dials: the accepted hosts with their addresses, for messages
    :ivar draining: the accepted hosts that get no request now
    :ivar ready: whether all its relays ran when the cluster was read
    :ivar blocked: whether it is refused whatever its hosts and their records say
    :ivar transfer: whether its Service, somebody else's, is yet to be handed over to it
    :ivar direct: whether it has no relays to wait for
    """

    state: str = "served"
    reason: str = ""
    hosts: Dict[str, str] = field(default_factory=dict)
    steps: List[Step] = field(default_factory=list)
    dials: List[str] = field(default_factory=list)
    draining: List[str] = field(default_factory=list)
    ready: bool = False
    blocked: bool = False
    transfer: bool = False
    direct: bool = False

    def result(self) -> Dict[str, Any]:
        return {
            "state": self.state,
            # Events and logs in it are a tenant's own words.
            "reason": printable(self.reason),
            "hosts": {host: printable(verdict) for host, verdict in self.hosts.items()},
            "draining": self.draining,
            "changes": [item.summary() for item in self.steps],
        }


def needs_attention(result: Dict[str, Any]) -> bool:
    """Whether a model (``Verdict.result``) is not served, or not by all of its hosts."""
    return result["state"] in ("refused", "waiting") or any(
        verdict != "accepted" for verdict in result["hosts"].values()
    )


def wishes(
    options: Dict[str, Any], predicted: List[Dict[str, Any]], check_mode: bool
) -> Dict[str, Any]:
    """What ``observe`` and ``plan`` take, from a module's options.

    :param predicted: records that stand for those in the cluster, in a check
    """
    return dict(
        options,
        models=read_models(
            options["models"],
            envoy_data.Limits(options["host_wait"], options["max_body"], options["drain_timeout"]),
        ),
        predicted={record["host"]: record for record in predicted},
        ca=options["ca_certificate"],
        check_mode=check_mode,
        # The models whose relays may take a Service over: all, where nothing is written.
        hand_over=None,
    )


def check_image(image: str) -> None:
    """Refuse an image that is not pinned: a tag may be another image tomorrow."""
    if not forms.is_pinned(image):
        raise Refusal(
            "relay image %s" % image,
            "no digest",
            forms.IMAGE,
            "Pin the image by its digest in relay_image",
        )


def read_models(
    entries: List[Dict[str, Any]], limits: envoy_data.Limits = envoy_data.DEFAULT_LIMITS
) -> List[objects.Model]:
    """Models from the plan's entries; keys that this side does not need are left alone.

    :raises Refusal: naming every mistake at once
    """
    wrong: List[str] = []
    models: Dict[str, objects.Model] = {}
    for index, entry in enumerate(entries):
        name, namespace = str(entry.get("name")), str(entry.get("namespace"))
        key = "%s/%s" % (namespace, name)
        service, mistakes = services.read(entry)
        kind = "model" if service is None else services.KIND
        label = "%s %s" % (kind, key) if entry.get("name") else "models[%d]" % index
        wrong += ["%s: %s" % (label, text) for text in mistakes]
        if not _LABEL.fullmatch(name) or len(name) > 50:
            wrong.append("%s: name is not a DNS label of at most 50 characters" % label)
        if not _NAMESPACE.fullmatch(namespace) or len(namespace) > 63:
            wrong.append("%s: namespace is not a DNS label" % label)
        hosts = entry.get("hosts")
        if (
            not isinstance(hosts, list)
            or not hosts
            or not all(isinstance(host, str) for host in hosts)
        ):
            wrong.append("%s: hosts is not a list of names" % label)
        ranges = (("port", 80, 65535), ("replicas", 2, forms.MAX_REPLICAS))
        mistakes = []
        numbers = {
            option: forms.number(option, entry.get(option, default), default, 1, highest, mistakes)
            for option, default, highest in ranges
        }
        wrong += ["%s: %s" % (label, text) for text in mistakes]
        direct = service is not None and service.direct
        if numbers["port"] == envoy_data.METRICS_PORT and not direct:
            wrong.append("%s: port is that of its metrics" % label)
        for option in ("clients", "metrics_clients"):
            if entry.get(option) is not None:
                for place, text in clients.mistakes(entry[option]):
                    wrong.append("%s: %s%s %s" % (label, option, place, text))
        if entry.get("metrics_clients") is not None and entry.get("clients") is None:
            wrong.append(
                "%s: metrics_clients without clients would let everybody call it; give both" % label
            )
        path = entry.get("health_path") or "/health"
        if not isinstance(path, str) or not forms.is_path(path):
            wrong.append("%s: health_path is not a plain path" % label)
        adopt, adopt_from = entry.get("adopt", False), entry.get("adopt_from") or []
        if not isinstance(adopt, bool):
            wrong.append("%s: adopt is neither true nor false" % label)
        if not isinstance(adopt_from, list) or not all(isinstance(one, str) for one in adopt_from):
            wrong.append("%s: adopt_from is not a list of names" % label)
        spread, mistakes = balancing.read(entry, numbers["replicas"])
        wrong += ["%s: %s" % (label, text) for text in mistakes]
        if key in models:
            wrong.append("%s: given twice" % label)
        if wrong:
            continue
        models[key] = objects.Model(
            name,
            namespace,
            numbers["port"],
            numbers["replicas"],
            path,
            limits,
            [envoy_data.Host(host, "", 0) for host in sorted(set(hosts or []))],
            adopt=adopt,
            adopt_from=tuple(adopt_from),
            spread=spread,
            clients=entry.get("clients"),
            metrics_clients=entry.get("metrics_clients"),
            service=service,
        )
    if wrong:
        raise Refusal(
            "models",
            "; ".join(wrong),
            "entries of a validated plan",
            "Correct what is named: models in fleet_models, services in fleet_services",
        )
    return [models[key] for key in sorted(models)]


def observe(client: Client, desired: Dict[str, Any]) -> Dict[str, Any]:
    """Read everything of the fleet, one list request a kind, whatever the number of models."""
    selector = labels.fleet_selector(desired["fleet"])
    ours: Dict[Key, Dict[str, Any]] = {}
    for kind in KINDS:
        # An adopted Service keeps the mark of whoever manages it.
        marks = "%s=%s" % (labels.FLEET, desired["fleet"]) if kind == "Service" else selector
        for item in client.list(kind, marks):
            if labels.is_ours(item, desired["fleet"]) or former.is_adopted(item):
                ours[_key(item)] = item
    for kind in service_objects.kinds_there(desired["models"], ours.values()):
        for item in client.list(kind, service_objects.selector(kind, desired["fleet"])):
            ours[_key(item)] = item
    monitor = _monitors(client, desired, selector, ours)
    listed = client.list("Namespace", metadata_only=True)
    namespaces = {item["metadata"]["name"] for item in listed}
    ending = {
        item["metadata"]["name"]: item["metadata"]["deletionTimestamp"]
        for item in listed
        if item["metadata"].get("deletionTimestamp")
    }
    missing: Dict[str, List[Key]] = {}
    for model in desired["models"]:
        if model.namespace not in namespaces:
            continue
        for key in _keys(model, monitor):
            if key not in ours:
                missing.setdefault(key[0], []).append(key)
    foreign: Dict[Key, Dict[str, Any]] = {}
    for kind, keys in missing.items():
        foreign.update(_look_up(client, kind, keys))
    services = [key for key in missing.get("Service", []) if key in foreign]
    adoptable = {("Service", *model.key.split("/")) for model in desired["models"] if model.adopt}
    new = {key[1:] for key in missing.get("Service", []) if key not in foreign or key in adoptable}
    return {
        "ours": ours,
        "foreign": foreign,
        "services": _look_up(client, "Service", [k for k in services if k in adoptable], False),
        "strays": strays.look_up(client, new),
        "monitor": monitor,
        "namespaces": namespaces,
        "ending": ending,
        "now": client.now(),
    }


def _monitors(
    client: Client, desired: Dict[str, Any], selector: str, ours: Dict[Key, Dict[str, Any]]
) -> str:
    """Adds the monitors that there are to ours; the kind that models get, or nothing."""
    wanted = monitors.KINDS.get(desired.get("monitor", monitors.NONE), "")
    noted = monitors.noted(item for key, item in ours.items() if key[0] == "NetworkPolicy")
    for kind in sorted(noted | ({wanted} if wanted else set())):
        try:
            ours.update({_key(item): item for item in client.list(kind, selector)})
        except Failed as error:
            if error.status != 404:
                raise
            # The cluster does not know the kind.
            wanted = "" if kind == wanted else wanted
    return wanted


def plan(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """What differs. ``facts["verdicts"]`` says by model what becomes of it, ``facts["orphans"]``
    which models of the fleet are no longer wanted, ``facts["told"]`` what is no failure."""
    ours = observed["ours"]
    remembered_live = ours.get(("ConfigMap", desired["fleet_namespace"], labels.STATE_NAME))
    remembered = state.refused(remembered_live)
    findings: Dict[str, Dict[str, str]] = {}
    result = Plan()
    first: List[Step] = []
    transfers: List[Step] = []
    verdicts: Dict[str, Verdict] = {}
    new_namespaces: Dict[str, List[str]] = {}
    records, broken, predicted = read_records(desired, observed)
    resting = draining(desired, observed)
    told: List[str] = []
    for model in desired["models"]:
        verdict = verdicts[model.key] = Verdict(direct=model.direct)
        monitor, others = _monitor(model, observed)
        told += others
        keys = _keys(model, monitor)
        claim = claims.of_model(model, keys, desired["fleet"], observed)
        if claim.service and monitor == "ServiceMonitor":
            told.append(monitors.blind(model.namespace, model.name))
        for conflict in claim.conflicts:
            findings[conflict.name] = conflict.finding
            if remembered.get(conflict.name) != conflict.finding:
                first.append(claims.event(conflict, model, desired["fleet"]))
        blocked = _blocked(model, claim, desired, observed)
        if claim.release:
            verdict.steps = [claim.release]
        if blocked:
            verdict.state, verdict.reason, verdict.blocked = "refused", blocked, True
            continue
        try:
            hosts = _hosts(model, desired, observed, records, broken, predicted, verdict)
            token = "" if model.direct else _token(model.namespace, desired, observed)
        except Refusal as refusal:
            verdict.state, verdict.reason = "refused", str(refusal)
            live = ours.get(service_objects.direct_keys(model)[-1])
            if model.direct and live is not None and service_objects.is_direct(live):
                # Nobody is to be sent to a host that is known not to answer. Relays that serve
                # until the switch to direct stay.
                nobody = replace(model, hosts=[])
                verdict.steps = _model_steps(nobody, "", "", desired, observed, own_service=True)
            continue
        if model.namespace not in observed["namespaces"]:
            new_namespaces.setdefault(model.namespace, []).append(model.key)
        hosts = [
            replace(one, draining=registration.rests(resting.get(one.name, ""), model.direct))
            for one in hosts
        ]
        model = replace(model, hosts=hosts, monitor=monitor)
        verdict.draining = [one.name for one in hosts if one.draining]
        verdict.dials = [
            "%s (%s port %d)" % (one.name, one.address, one.port)
            for one in hosts
            if not one.draining
        ]
        if not verdict.dials:
            # Its relays are not ready after a while, and need not be.
            verdict.state = "drained"
            verdict.reason = "all of its hosts drain (%s)" % ", ".join(verdict.draining)
        running = ours.get(("Deployment", model.namespace, labels.relay_name(model.name)))
        drain_key = drain.read_key(running) or secrets.token_hex(16)
        verdict.steps = _model_steps(model, token, drain_key, desired, observed, not claim.service)
        if claim.adopt and verdict.dials:
            verdict.transfer = True
            if desired.get("hand_over") is None or model.key in desired["hand_over"]:
                transfers.append(claim.adopt)
        verdict.ready = model.direct or (running is not None and wait.unfinished(running) is None)
    for name, models in sorted(new_namespaces.items()):
        item = objects.namespace(name, desired["fleet"])
        result.steps.append(step("create", item, None, models=models))
    result.steps += first
    if findings != remembered:
        wanted = state.state_object(findings, desired["fleet"], desired["fleet_namespace"])
        action = "create" if remembered_live is None else "update"
        result.steps.append(step(action, wanted, remembered_live))
    orphans, removals, kept = _orphans(desired, observed)
    result.steps += removals
    for verdict in verdicts.values():
        result.steps += verdict.steps
    result.steps += transfers
    result.facts["verdicts"] = verdicts
    result.facts["orphans"] = orphans
    result.facts["not_released"] = kept
    asked = monitors.KINDS.get(desired.get("monitor", monitors.NONE))
    unknown = asked if asked and not observed.get("monitor") else None
    result.facts["told"] = ([monitors.missing(unknown)] if unknown else []) + told
    return result


def _blocked(
    model: objects.Model,
    claim: claims.Claims,
    desired: Dict[str, Any],
    observed: Dict[str, Any],
) -> Optional[str]:
    """Why a model cannot be served whatever its hosts say, or None."""
    if claim.conflicts or claim.stuck:
        texts = [conflict.reason for conflict in claim.conflicts]
        return "; ".join(texts + [str(refusal) for refusal in claim.stuck])
    if model.namespace not in observed["namespaces"] and not desired["create_namespaces"]:
        return (
            "namespace %s does not exist. Create it, or set fleet_create_namespaces: true"
            % model.namespace
        )
    if model.namespace in observed["ending"]:
        return str(
            Refusal(
                "namespace %s" % model.namespace,
                "it is being deleted, since %s" % observed["ending"][model.namespace],
                *answers.being_deleted(model.namespace),
            )
        )
    return None


def _monitor(model: objects.Model, observed: Dict[str, Any]) -> Tuple[str, List[str]]:
    """The kind of monitor that a model gets, or nothing, and what is to be told of it.

    Somebody else's of the name costs the model its monitor and not its relays.
    """
    kind = "" if model.direct else observed.get("monitor", "")
    name = labels.relay_name(model.name)
    item = observed["foreign"].get((kind, model.namespace, name))
    if item is None:
        return kind, []
    owner = printable(ownership.describe_owner(item))
    return "", [monitors.foreign(kind, model.namespace, name, owner)]


def _key(item: Dict[str, Any]) -> Key:
    meta = item["metadata"]
    return item["kind"], meta.get("namespace", ""), meta["name"]


def _keys(model: objects.Model, monitor: str) -> List[Key]:
    """The objects that a model has."""
    own = service_objects.direct_keys(model) if model.direct else _relay_keys(model, monitor)
    ingress = model.service is not None and model.service.ingress
    return own + (service_objects.ingress_keys(model) if ingress else [])


def _relay_keys(model: objects.Model, monitor: str) -> List[Key]:
    return [
        (
            kind,
            model.namespace,
            model.name if kind == "Service" else labels.relay_name(model.name),
        )
        for kind in (*KINDS, *([monitor] if monitor else []))
    ]


def _look_up(
    client: Client, kind: str, keys: List[Key], metadata_only: bool = True
) -> Dict[Key, Dict[str, Any]]:
    """What has one of these names without being ours: its metadata alone, Secrets stay unread."""
    if len(keys) <= _SINGLE_LOOKUPS:
        found = [client.get(kind, name, place, metadata_only) for _kind, place, name in keys]
        items = [item for item in found if item is not None]
    else:
        items = client.list(kind, metadata_only=metadata_only)
    return {_key(item): item for item in items if _key(item) in keys}


def read_records(
    desired: Dict[str, Any], observed: Dict[str, Any]
) -> Tuple[Dict[str, Dict[str, Any]], Dict[str, str], Set[str]]:
    """Records by host, why those that cannot be read cannot be, and which are only predicted."""
    records: Dict[str, Dict[str, Any]] = {}
    broken: Dict[str, str] = {}
    for host, item in _host_items(desired, observed):
        try:
            record = registration.parse(item)
            records[record["host"]] = record
        except Refusal as refusal:
            broken[host] = str(refusal)
    predicted = {
        host for host, record in desired["predicted"].items() if records.get(host) != record
    }
    for host in predicted:
        records[host] = desired["predicted"][host]
        broken.pop(host, None)
    return records, broken, predicted


def draining(desired: Dict[str, Any], observed: Dict[str, Any]) -> Dict[str, str]:
    """The hosts that get no request now, and since when."""
    found = {
        host: registration.draining_since(item) for host, item in _host_items(desired, observed)
    }
    return {host: since for host, since in found.items() if since}


def _host_items(
    desired: Dict[str, Any], observed: Dict[str, Any]
) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """The fleet's hosts, each with the ConfigMap that is its record."""
    for (kind, place, name), item in sorted(observed["ours"].items()):
        marks = item["metadata"].get("labels") or {}
        if kind == "ConfigMap" and place == desired["fleet_namespace"]:
            host = labels.record_host(name)
            if host and marks.get(labels.RECORD) == "host":
                yield host, item


def _hosts(
    model: objects.Model,
    desired: Dict[str, Any],
    observed: Dict[str, Any],
    records: Dict[str, Dict[str, Any]],
    broken: Dict[str, str],
    predicted: Set[str],
    verdict: Verdict,
) -> List[envoy_data.Host]:
    """The model's hosts that may be dialled; the verdict says why others may not."""
    accepted: List[envoy_data.Host] = []
    for wanted in model.hosts:
        name = wanted.name
        record = records.get(name)
        reason: Optional[str] = None
        if record is None:
            reason = broken.get(name) or "it has no registration record; run its registration"
        else:
            reason = check_place(record, desired["hosts"].get(name)) or check_record(
                record, model, desired["ca"], observed["now"], name in predicted
            )
        verdict.hosts[name] = reason or "accepted"
        if record is not None and reason is None:
            accepted.append(
                envoy_data.Host(
                    name, record["address"], record["port"], tuple(record["certificates"])
                )
            )
    if not accepted:
        raise Refusal(
            "model %s" % model.key,
            "no host that may serve it (%s)"
            % "; ".join("%s: %s" % item for item in sorted(verdict.hosts.items())),
            "a valid registration record of at least one of its hosts",
            "Mend what is named for each host",
        )
    return accepted


def check_place(record: Dict[str, Any], planned: Optional[Dict[str, Any]]) -> Optional[str]:
    """Why a record's address is not the host's by the inventory, or None. Pure.

    Whoever can write records could else lead a model to any host that the CA ever signed.

    :param planned: ``{"address", "port"}`` of the inventory; None where the caller gave none
    """
    if planned is None:
        return None
    found = (str(record["address"]).lower(), int(record["port"]))
    wanted = (str(planned["address"]).lower(), int(planned["port"]))
    if found == wanted:
        return None
    return (
        "its registration record says %s port %d, the inventory %s port %d; run its registration,"
        " and if that was done, find out who else writes records" % (*found, *wanted)
    )


def check_record(
    record: Dict[str, Any],
    model: objects.Model,
    ca_pem: str,
    now: datetime.datetime,
    predicted: bool = False,
) -> Optional[str]:
    """Why a host may not serve a model by its record, or None. Pure."""
    if model.service is not None:
        reason = _not_offered(record, model.service, model)
        if reason:
            return reason
    elif not any(
        (item["namespace"], item["model"]) == (model.namespace, model.name)
        for item in record["engines"]
    ):
        return "its registration record lists no engine of this model; run its registration"
    for number, pem in enumerate(record["certificates"], 1):
        try:
            certificates.verify_leaf(pem, ca_pem, record["address"], now)
        except certificates.CertificateRefused as refused:
            # In a check on a fresh host the certificate is a stand-in or none.
            if predicted:
                continue
            return "certificate %d in its registration record is refused: %s" % (number, refused)
    return None


def _not_offered(
    record: Dict[str, Any], service: services.Service, model: objects.Model
) -> Optional[str]:
    """Why a host's record does not speak for a service, or None."""
    listed = [
        (item["expose"], item.get("port", 0))
        for item in record.get("services") or []
        if (item["namespace"], item["name"]) == (model.namespace, model.name)
    ]
    wanted = ("direct", service.host_port) if service.direct else ("relay", 0)
    if wanted in listed:
        return None
    if listed:
        return (
            "its registration record lists the service as it was declared before; run its"
            " registration"
        )
    if service.direct:
        return (
            "when it was asked, port %d did not answer as declared; start the service there,"
            " then run again" % service.host_port
        )
    return "its registration record lists no such service; run its registration"


def _token(namespace: str, desired: Dict[str, Any], observed: Dict[str, Any]) -> str:
    place = desired["fleet_namespace"]
    live = observed["ours"].get(("Secret", place, labels.token_name(namespace)))
    if live is None:
        if desired["check_mode"]:
            return _PREDICTED_TOKEN
        raise Refusal(
            "Secret %s/%s" % (place, labels.token_name(namespace)),
            "none with the labels of fleet %s" % desired["fleet"],
            "the token of namespace %s" % namespace,
            "Run tether.fleet.token for that namespace first",
        )
    return tokens.read_token(live)["current"]


def _model_steps(
    model: objects.Model,
    token: str,
    drain_key: str,
    desired: Dict[str, Any],
    observed: Dict[str, Any],
    own_service: bool,
) -> List[Step]:
    steps: List[Step] = []
    for item in _objects(model, token, drain_key, desired):
        live = observed["ours"].get(_key(item))
        if item["kind"] == "Service" and not own_service:
            continue
        if live is not None:
            service_objects.keep_family(item, live)
        if live is not None and _is_other_kind(item, live):
            # The slices of the former selector, or its pods, go with the Service.
            steps.append(step("remove", None, live, model.key))
            live = None
        if live is None:
            steps.append(step("create", item, None, model.key, **_told(item, model, desired)))
        elif diff.differs(item, live):
            data: Dict[str, Any] = {}
            if item["kind"] in ("ConfigMap", "Secret"):
                data["touch"] = wake(desired["fleet"], model.namespace, model.name, observed["now"])
            steps.append(step("update", item, live, model.key, **data))
    surplus = _surplus_steps(model, observed["ours"])
    # Before the marks by which the next run would find them, were this one killed.
    first = [one for one in surplus if one.kind in _MARKED]
    return [*first, *steps, *(one for one in surplus if one.kind not in _MARKED)]


def _objects(
    model: objects.Model, token: str, drain_key: str, desired: Dict[str, Any]
) -> List[Dict[str, Any]]:
    """All objects of a model or a service, in the order in which they are to be written."""
    fleet = desired["fleet"]
    if model.direct:
        items = service_objects.direct_objects(model, fleet)
    else:
        items = objects.model_objects(model, fleet, desired["image"], token, drain_key)
    if model.service is None or not model.service.ingress:
        return items
    return [*service_objects.marked(items), service_objects.ingress(model, fleet)]


def _is_other_kind(wanted: Dict[str, Any], live: Dict[str, Any]) -> bool:
    """Whether an object cannot become what is wanted: with relays or without, and IPv4 or IPv6."""
    if wanted["kind"] == "Service":
        if wanted["spec"].get("selector"):
            return service_objects.is_direct(live)
        # Somebody's selector on a direct one stays through an apply, and sends requests elsewhere.
        return not service_objects.is_direct(live) or bool(live["spec"].get("selector"))
    return bool(wanted.get("addressType") != live.get("addressType"))


def _surplus_steps(model: objects.Model, ours: Dict[Key, Dict[str, Any]]) -> List[Step]:
    """What it had while it was exposed otherwise, or had an Ingress."""
    possible = {
        *(key for kind in monitors.KINDS.values() for key in _relay_keys(model, kind)),
        *service_objects.direct_keys(model),
        *service_objects.ingress_keys(model),
    }
    left = [
        ours[key]
        for key in possible - set(_keys(model, model.monitor))
        if key in ours and ours[key]["metadata"]["labels"].get(labels.MODEL) == model.name
    ]
    return [
        step("remove", None, item, model.key)
        for item in sorted(left, key=lambda one: _REMOVAL.index(one["kind"]))
    ]


def _told(item: Dict[str, Any], model: objects.Model, desired: Dict[str, Any]) -> Dict[str, Any]:
    """What is told in the cluster about an object that is made."""
    if item["kind"] != "Deployment":
        return {}
    hosts = ", ".join("%s (%s)" % (host.name, host.address) for host in model.hosts)
    message = "Relays of model %s of fleet %s; they ask %s." % (model.key, desired["fleet"], hosts)
    return {"event": ("RelayCreated", message, desired["fleet"])}


def _orphans(
    desired: Dict[str, Any], observed: Dict[str, Any]
) -> Tuple[List[str], List[Step], Dict[str, str]]:
    """Models with objects of ours that nobody wants any more, and the steps that remove them.

    The last is by model why its Service cannot be given back; its relays then stay.
    """
    wanted = {(model.namespace, model.name) for model in desired["models"]}
    found: Dict[Tuple[str, str], List[Dict[str, Any]]] = {}
    for (_kind, place, name), item in observed["ours"].items():
        model = (item["metadata"].get("labels") or {}).get(labels.MODEL)
        if former.is_adopted(item):  # its labels are in its owner's hands
            model = name
        if model and (place, model) not in wanted:
            found.setdefault((place, model), []).append(item)
    steps: List[Step] = []
    kept: Dict[str, str] = {}
    for (place, model), items in sorted(found.items()):
        if desired["prune"]:
            key = "%s/%s" % (place, model)
            try:
                steps += _removal(items, key, desired["fleet"])
            except Refusal as refusal:
                kept[key] = str(refusal)
    return ["%s/%s" % item for item in sorted(found)], steps, kept


def _removal(items: List[Dict[str, Any]], key: str, fleet: str) -> List[Step]:
    return [
        handover.release(item, key, fleet)
        if former.is_adopted(item)
        else step("remove", None, item, key)
        for item in sorted(items, key=lambda one: _REMOVAL.index(one["kind"]))
    ]
