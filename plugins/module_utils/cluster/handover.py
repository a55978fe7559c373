# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hand an existing Service over to relays, and back: may it be, and what is written. Pure.

Only the selector, the target ports, two labels and an annotation of ours change, in one request: at
no time does the Service select nothing, or two back ends. All else is its owner's.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    appliers,
    diff,
    former,
    labels,
    objects,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal, Step

Object = Dict[str, Any]


def judge(service: Object, model: objects.Model, fleet: str) -> List[Refusal]:
    """Everything that keeps a Service from being handed over to a model's relays."""
    kind = _unfit(service)
    if kind is not None:
        return [kind]
    found: List[Refusal] = []
    marks = service["metadata"].get("labels") or {}
    if marks.get(labels.MANAGED_BY) == labels.MANAGER and not former.is_adopted(service):
        found.append(
            Refusal(
                _name(service),
                "that another fleet made it (%s)" % marks.get(labels.FLEET, "without a name"),
                "a Service of nobody's fleet",
                "Remove the model from that fleet, or rename it",
            )
        )
    found += _ports(service, model, fleet)
    relays = labels.pod_selector(fleet, model.name)
    if service["spec"]["selector"] == relays and not former.is_adopted(service):
        found.append(
            Refusal(
                _name(service),
                "that it selects the relays without the annotation %s" % labels.ADOPTED,
                "its former selector to be known",
                "Give it the selector and target ports of its own pods, then run again",
            )
        )
        return found
    try:
        before = former.read(service)
    except Refusal as refusal:
        return [*found, refusal]
    chosen = before.selector if before else service["spec"]["selector"]
    pods = labels.model_labels(fleet, model.name)
    if _selects(chosen, pods):
        found.append(
            Refusal(
                _name(service),
                "that its former selector (%s) selects relay pods too" % labels.query(chosen),
                "one that tells its own pods from relays",
                "Give its pods a label of their own and select that, then run again",
            )
        )
    if service["spec"]["selector"] != relays:
        for name, evidence in sorted(appliers.of_selector(service).items()):
            if name not in model.adopt_from:
                found.append(
                    Refusal(
                        _name(service),
                        "that %s keeps its selector: %s" % (name, evidence),
                        "a selector that nobody writes again after the hand-over",
                        appliers.remedy(name),
                    )
                )
    return found


def adopt(service: Object, model: objects.Model, fleet: str) -> Optional[Step]:
    """The step that gives a Service to a model's relays, or None when they have it."""
    wanted = labels.pod_selector(fleet, model.name)
    ports = _with_targets(service, _targets(model, fleet))
    marks = {labels.FLEET: fleet, labels.MODEL: model.name}
    live = service["metadata"].get("labels") or {}
    if (
        former.is_adopted(service)
        and service["spec"]["selector"] == wanted
        and service["spec"]["ports"] == ports
        and all(live.get(key) == value for key, value in marks.items())
    ):
        return None
    before = former.read(service) or former.Former(
        dict(service["spec"]["selector"]),
        {
            former.port_key(old): old["targetPort"]
            for old, new in zip(service["spec"]["ports"], ports)
            if old != new
        },
    )
    notes = {labels.ADOPTED: former.text(before)}
    message = "Served by the relays of model %s of fleet %s; before by pods with %s." % (
        model.key,
        fleet,
        labels.query(before.selector),
    )
    # A drift that is mended is no adoption.
    event = None if former.is_adopted(service) else ("ServiceAdopted", message, fleet)
    return _step("adopt", service, model.key, marks, notes, wanted, ports, event)


def release(service: Object, key: str, fleet: str) -> Step:
    """The step that gives an adopted Service back to the pods that served it before.

    :param key: the model's
    :raises Refusal: when it is not known, or not possible, how it was
    """
    before = former.read(service)
    if before is None:
        raise ValueError("%s was not adopted" % _name(service))
    name = key.split("/")[1]
    if _selects(before.selector, labels.model_labels(fleet, name)):
        raise Refusal(
            _name(service),
            "that its former selector (%s) selects relay pods" % labels.query(before.selector),
            "the one that it had before the hand-over",
            "Put the right one into its annotation %s" % labels.ADOPTED,
        )
    selector = dict(service["spec"].get("selector") or {})
    ports = list(service["spec"].get("ports") or [])
    if selector == labels.pod_selector(fleet, name):
        selector, ports = before.selector, _with_targets(service, before.target_ports)
    # Else somebody has taken it back already.
    message = "No longer served by the relays of model %s of fleet %s, but by pods with %s." % (
        key,
        fleet,
        labels.query(selector),
    )
    marks = {labels.FLEET: None, labels.MODEL: None}
    notes = {labels.ADOPTED: None}
    event = ("ServiceReleased", message, fleet)
    return _step("release", service, key, marks, notes, selector, ports, event)


def _unfit(service: Object) -> Optional[Refusal]:
    """Why a Service is of no kind that could be handed over."""
    spec = service["spec"]
    if service["metadata"].get("deletionTimestamp"):
        return _of_kind(
            service, "that it is being deleted", "Wait until it is gone, then run again"
        )
    if spec.get("type") == "ExternalName":
        return _of_kind(
            service,
            "type ExternalName, an alias of %s" % spec.get("externalName"),
            "Delete it, so that the fleet makes a Service of its name, or rename the model",
        )
    if spec.get("clusterIP") == "None":
        return _of_kind(
            service,
            "a headless Service, whose clients connect to pods by their own addresses",
            "Rename the model, or delete the Service if its clients take one with an address",
        )
    if not spec.get("selector"):
        return _of_kind(
            service,
            "no selector, so that somebody writes its endpoints by hand",
            "Delete it with its EndpointSlices and Endpoints, or rename the model",
        )
    return None


def _of_kind(service: Object, found: str, remedy: str) -> Refusal:
    return Refusal(_name(service), found, "a Service with an address and a selector", remedy)


def _ports(service: Object, model: objects.Model, fleet: str) -> List[Refusal]:
    """Ports that relays would not serve, and the one that the model needs."""
    targets = _targets(model, fleet)
    have = [former.port_key(port) for port in service["spec"]["ports"]]
    found: List[Refusal] = []
    if former.port_key({"port": model.port}) not in have:
        found.append(
            Refusal(
                _name(service),
                "the ports %s" % ", ".join(have),
                "%d/TCP among them, the model's port" % model.port,
                "Set the model's port to the one that its clients use",
            )
        )
    others = [port for port in have if port not in targets]
    if others and len(others) < len(have):
        found.append(
            Refusal(
                _name(service),
                "the ports %s, at which relays do not listen" % ", ".join(others),
                "ports that relays serve: %s" % ", ".join(sorted(targets)),
                "Move those ports to another Service, with the same selector, first",
            )
        )
    return found


def _targets(model: objects.Model, fleet: str) -> Dict[str, Any]:
    """Where relays listen, by the ports of a Service of our own."""
    ports = objects.service(model, fleet)["spec"]["ports"]
    return {former.port_key(port): port["targetPort"] for port in ports}


def _with_targets(service: Object, targets: Dict[str, Any]) -> List[Object]:
    """A Service's ports, whole, with other target ports where ``targets`` has one."""
    return [
        dict(port, targetPort=targets.get(former.port_key(port), port.get("targetPort")))
        for port in service["spec"]["ports"]
    ]


def _step(
    action: str,
    service: Object,
    key: str,
    marks: Dict[str, Any],
    notes: Dict[str, Any],
    selector: Dict[str, str],
    ports: List[Object],
    event: Any,
) -> Step:
    meta = service["metadata"]
    gone: Dict[str, Any] = dict.fromkeys(service["spec"].get("selector") or {})
    patch = {
        # Nobody's change since the reading is written over.
        "metadata": {
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
            "labels": marks,
            "annotations": notes,
        },
        "spec": {"selector": {**gone, **selector}, "ports": ports},
    }
    return Step(
        action,
        "Service",
        "%s/%s" % (meta["namespace"], meta["name"]),
        before=diff.text(_view(service)),
        after=diff.text(_view(_merged(service, patch))),
        data={"object": None, "live": service, "model": key, "patch": patch, "event": event},
    )


def _view(service: Object) -> Object:
    """What a hand-over may change, for a diff."""
    spec = {key: service["spec"].get(key) for key in ("selector", "ports")}
    return {"kind": "Service", "metadata": service["metadata"], "spec": spec}


def _merged(item: Any, patch: Any) -> Any:
    """A JSON merge patch, applied."""
    if not isinstance(patch, dict):
        return patch
    result = dict(item) if isinstance(item, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _selects(selector: Dict[str, str], pods: Dict[str, str]) -> bool:
    return all(pods.get(key) == value for key, value in selector.items())


def _name(service: Object) -> str:
    return "Service %s/%s" % (service["metadata"]["namespace"], service["metadata"]["name"])
