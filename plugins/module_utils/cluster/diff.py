# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare what is wanted with what is there, and show it without secrets. Pure.

The API server adds defaults, other controllers add fields of their own: an object is as wanted when
everything wanted is in it and nothing is left over that we wrote and no longer want.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Dict, Iterator, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import envoy, labels
from ansible_collections.tether.fleet.plugins.module_utils.plan import MASK

try:
    import yaml

    HAS_YAML = True
except ImportError:
    HAS_YAML = False

Object = Dict[str, Any]

# Maps in which nobody else may have a key.
_EXACT = (
    ("data",),
    ("binaryData",),
    ("spec", "selector"),
    ("spec", "podSelector", "matchLabels"),
)


def differs(desired: Object, live: Object) -> bool:
    """Whether ``live`` must be written to become ``desired``."""
    if not _contains(desired, live):
        return True
    if surplus(desired, live):
        return True
    return any(_left_over(fields, desired) for fields in _applied(live))


def surplus(desired: Object, live: Object) -> Object:
    """What others added where only our own keys may be, as a JSON merge patch that removes it.

    An apply leaves it in place; a label more in a Service's selector would select no relay.
    """
    patch: Object = {}
    for path in _EXACT:
        wanted, found = _at(desired, path), _at(live, path)
        extra = set(found) - set(wanted)
        if wanted and extra:
            below: Object = dict.fromkeys(sorted(extra))
            for key in reversed(path):
                below = {key: below}
            patch.update(below)
    notes = ("metadata", "annotations")
    is_host = _at(desired, ("metadata", "labels")).get(labels.RECORD) == "host"
    if is_host and set(_at(live, notes)) - set(_at(desired, notes)) >= {labels.DRAINING}:
        # Anybody may have written it, and an apply removes only what is ours.
        patch["metadata"] = {"annotations": {labels.DRAINING: None}}
    if _foreign_ports(desired, live):
        patch.setdefault("spec", {})["ports"] = desired["spec"]["ports"]
    return patch


def _foreign_ports(desired: Object, live: Object) -> bool:
    """Whether others gave our Service a port, or changed one: an apply would add ours beside it,
    which the API server refuses when both have one name."""
    if desired["kind"] != "Service":
        return False

    def key(port: Object) -> Tuple[Any, Any]:
        return port.get("port"), port.get("protocol", "TCP")

    ours = {key(port) for port in desired["spec"]["ports"]}
    for entry in live["metadata"].get("managedFields") or []:
        if entry.get("manager") == labels.MANAGER:
            listed = _at(entry.get("fieldsV1") or {}, ("f:spec", "f:ports"))
            ours |= {key(json.loads(name[2:])) for name in listed if name.startswith("k:")}
    return any(key(port) not in ours for port in _at(live, ("spec",)).get("ports") or [])


def needs_upgrade(live: Object) -> Optional[int]:
    """Which ``managedFields`` entry stems from our creating request, if any.

    Fields of such an entry are not removed by a later server-side apply; it has to be turned into
    one of an apply first.
    """
    for index, entry in enumerate(live["metadata"].get("managedFields") or []):
        if (
            entry.get("manager") == labels.MANAGER
            and entry.get("operation") == "Update"
            and not entry.get("subresource")
        ):
            return index
    return None


def text(
    item: Optional[Object], shape: Optional[Object] = None, other: Optional[Object] = None
) -> Optional[str]:
    """An object as YAML for a diff, secrets masked.

    :param shape: show only what is also in here (the wanted object, to leave defaults out)
    :param other: the object on the diff's other side; a masked value says whether it differs
    """
    if item is None:
        return None
    shown = item if shape is None else _project(shape, item)
    shown = {key: value for key, value in shown.items() if key != "status"}
    shown["metadata"] = {
        key: value
        for key, value in (shown.get("metadata") or {}).items()
        if key in ("name", "namespace", "labels", "annotations")
    }
    if item.get("kind") == "Secret":
        shown["data"] = {
            key: masked_value(value, ((other or {}).get("data") or {}).get(key), other is not None)
            for key, value in (item.get("data") or {}).items()
        }
        shown.pop("stringData", None)
    elif item.get("kind") == "ConfigMap":
        shown["data"] = dict(item.get("data") or {})
    return dump(shown)


def masked_value(encoded: str, other: Optional[str], compare: bool) -> str:
    """A Secret's value for a diff: Envoy's files with their tokens masked, all else as a whole."""
    try:
        plain = base64.b64decode(encoded).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        plain = ""
    hint = " (it changes)" if compare and other != encoded else ""
    return envoy.mask_token(plain, MASK + hint) if _is_object(plain) else MASK + hint


def dump(data: Any) -> str:
    """YAML where there is a library for it, else JSON."""
    if not HAS_YAML:
        return json.dumps(data, indent=2, sort_keys=True) + "\n"
    result: str = yaml.dump(data, Dumper=_dumper(), default_flow_style=False, width=200)
    return result


def _dumper() -> Any:
    class Dumper(yaml.SafeDumper):
        """Texts of several lines as blocks, so that a diff shows the line that changed."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def string(dumper: Any, value: str) -> Any:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, string)
    return Dumper


def _is_object(plain: str) -> bool:
    try:
        return isinstance(json.loads(plain), dict)
    except (ValueError, RecursionError):
        return False


def _contains(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            _contains(value, found.get(key)) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        # An empty list is dropped by the API server.
        return (
            len(wanted) == len(found or [])
            and isinstance(found or [], list)
            and all(_contains(one, two) for one, two in zip(wanted, found or []))
        )
    return bool(wanted == found)


def _at(item: Object, path: Tuple[str, ...]) -> Object:
    found: Any = item
    for key in path:
        found = (found or {}).get(key)
    return found or {}


def _project(shape: Any, item: Any) -> Any:
    if isinstance(shape, dict) and isinstance(item, dict):
        return {key: _project(value, item[key]) for key, value in shape.items() if key in item}
    if isinstance(shape, list) and isinstance(item, list) and len(shape) == len(item):
        return [_project(one, two) for one, two in zip(shape, item)]
    return item


def _applied(live: Object) -> Iterator[Object]:
    """What we own by apply. A creating request owns the defaults too, so it tells nothing."""
    for entry in live["metadata"].get("managedFields") or []:
        if entry.get("manager") == labels.MANAGER and entry.get("operation") == "Apply":
            yield entry.get("fieldsV1") or {}


def _left_over(fields: Object, wanted: Any) -> bool:
    """Whether we own a field that is no longer wanted. Lists are compared elsewhere, in full."""
    if not isinstance(wanted, dict):
        return False
    return any(
        key[2:] not in wanted or _left_over(below, wanted[key[2:]])
        for key, below in fields.items()
        if key.startswith("f:")
    )
