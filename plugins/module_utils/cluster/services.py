# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the cluster side knows of a service beyond what every model has. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import forms

KIND = "service"

_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_HOST = re.compile(r"(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True)
class Service:
    """A program that speaks HTTP and that the collection does not run.

    :ivar direct: reached at its hosts' own port, without relays
    :ivar host_port: that port; 0 where relays stand before it
    :ivar health_status: with which it answers when it is well
    :ivar ingress: ``{"host", "path", "class", "tls_secret", "annotations"}``, or None
    """

    direct: bool = False
    host_port: int = 0
    websocket: bool = False
    health_status: int = 200
    ingress: Optional[Dict[str, Any]] = None


def read(entry: Dict[str, Any]) -> Tuple[Optional[Service], List[str]]:
    """An entry of the plan, and what is wrong with it; None for a model."""
    if entry.get("kind") != KIND:
        return None, []
    wrong: List[str] = []
    direct = entry.get("expose") == "direct"
    port = forms.number("host_port", entry.get("host_port") or 0, 0, 0, 65535, wrong)
    status = forms.number("health_status", entry.get("health_status") or 200, 200, 200, 499, wrong)
    if direct and not port:
        wrong.append("host_port is missing")
    ingress = entry.get("ingress")
    if ingress is not None:
        wrong += _ingress_mistakes(ingress)
    return Service(direct, port, bool(entry.get("websocket")), status, ingress), wrong


def _ingress_mistakes(ingress: Any) -> List[str]:
    if not isinstance(ingress, dict):
        return ["ingress is not a mapping"]
    wrong = []
    checks: Tuple[Tuple[str, Callable[[str], Any]], ...] = (
        ("host", _HOST.fullmatch),
        ("path", forms.is_path),
        ("class", _NAME.fullmatch),
        ("tls_secret", _NAME.fullmatch),
    )
    for key, is_sound in checks:
        value = ingress.get(key)
        if value is None and key != "host":
            continue
        if not isinstance(value, str) or not is_sound(value):
            wrong.append("ingress.%s is not of the form that Kubernetes takes" % key)
    notes = ingress.get("annotations") or {}
    if not isinstance(notes, dict) or not all(isinstance(text, str) for text in notes.values()):
        wrong.append("ingress.annotations is not a mapping of texts")
    return wrong
