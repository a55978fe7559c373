# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an adopted Service sent its requests to before, as an annotation of that Service. Pure.

Whoever may edit the Service may edit the annotation, so it is judged when it is read back.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Union

from ansible_collections.tether.fleet.plugins.module_utils.cluster import forms, labels
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

# As Kubernetes 1.34 takes them: apimachinery's util/validation.
_PORT = re.compile(r"[1-9][0-9]{0,4}/TCP")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")

# Far more than anybody writes; an annotation may have 256 KiB.
_MOST = 64


@dataclass(frozen=True)
class Former:
    """A back end of pods.

    :ivar selector: the pods' labels
    :ivar target_ports: by ``port_key``, where the pods listen
    """

    selector: Dict[str, str]
    target_ports: Dict[str, Union[int, str]]


def port_key(port: Dict[str, Any]) -> str:
    """What identifies a port of a Service: ``80/TCP``."""
    return "%s/%s" % (port["port"], port.get("protocol", "TCP"))


def is_adopted(item: Dict[str, Any]) -> bool:
    """Whether a Service was somebody else's before it served a model of a fleet.

    The annotation alone does not say so: a tenant may write it on the Service that a fleet made,
    and would then be given that one. Those have labels that no adopted one gets.
    """
    meta = item["metadata"]
    marks = meta.get("labels") or {}
    made = {labels.MANAGED_BY: labels.MANAGER, labels.COMPONENT: labels.RELAY}
    if all(marks.get(key) == value for key, value in made.items()):
        return False
    return item["kind"] == "Service" and labels.ADOPTED in (meta.get("annotations") or {})


def text(former: Former) -> str:
    """The annotation's value."""
    data = {"schema": 1, "selector": former.selector, "targetPorts": former.target_ports}
    return json.dumps(data, sort_keys=True)


def read(service: Dict[str, Any]) -> Optional[Former]:
    """The former back end of a Service, or None when it was never adopted.

    :raises Refusal: naming everything that is wrong with the annotation
    """
    meta = service["metadata"]
    if not is_adopted(service):
        return None
    wrong: List[str] = []
    try:
        data = json.loads(meta["annotations"][labels.ADOPTED])
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or data.get("schema") != 1:
        wrong.append("no JSON of schema 1")
        data = {}
    selector, ports = data.get("selector"), data.get("targetPorts")
    if not wrong and not _is_selector(selector):
        wrong.append("a selector that no Service can have")
    if not wrong and not _are_ports(ports):
        wrong.append("target ports that no Service can have")
    if wrong:
        raise Refusal(
            "annotation %s of Service %s/%s" % (labels.ADOPTED, meta["namespace"], meta["name"]),
            "; ".join(wrong),
            "the Service's former selector, as it was written at the hand-over",
            "Put it back, or give the Service the selector and target ports that it is to have and"
            " take the annotation and the labels %s and %s off" % (labels.FLEET, labels.MODEL),
        )
    return Former(dict(selector or {}), dict(ports or {}))


def _is_selector(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and 0 < len(found) <= _MOST
        and all(forms.is_label(key, value) for key, value in found.items())
    )


def _are_ports(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and len(found) <= _MOST
        and all(_PORT.fullmatch(key) and _is_target(value) for key, value in found.items())
    )


def _is_target(value: Any) -> bool:
    if isinstance(value, str):
        return bool(_PORT_NAME.fullmatch(value))
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 65535
