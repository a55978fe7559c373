# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The lock, ``fleet.lock.yml``: what is installed, from where, by which digest.

Fail closed: an artifact without a digest or a size is refused when the lock is read. All mistakes
of a lock are reported at once, each by its place.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterable, Iterator, List, Optional, Union

import yaml

from ansible_collections.tether.fleet.plugins.module_utils import archive, artifact
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

try:
    from jsonschema import Draft202012Validator
except ImportError as error:  # said by load(), where a person sees what to do
    HAS_JSONSCHEMA: Optional[ImportError] = error
else:
    HAS_JSONSCHEMA = None

# The lock that the collection brings; it lies at the collection's root.
DEFAULT = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "fleet.lock.yml"
)
PLATFORMS = ("linux-x86_64", "linux-aarch64", "darwin-arm64", "darwin-x86_64")
# What systems and machines call themselves, and how the lock calls it.
_MACHINES = {"amd64": "x86_64", "x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}

_TEXT = {"type": "string", "minLength": 1}
_SOURCE = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
    "properties": {
        "index": {
            "type": "object",
            "additionalProperties": False,
            "required": ["package", "version"],
            "properties": {
                "package": {
                    "type": "string",
                    "pattern": r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
                },
                "version": {"type": "string", "pattern": r"^[0-9][0-9A-Za-z.!+_-]*$"},
            },
        },
        # Plain http is a mirror in the fleet's own network: the digest, not the transport, decides.
        "url": {"type": "string", "pattern": r"^https?://[^\s]+$"},
        "file": _TEXT,
    },
}
_PLATFORM = {
    "type": "object",
    "additionalProperties": False,
    "required": ["source", "file", "size", "sha256", "format", "extract"],
    "properties": {
        "source": _SOURCE,
        "file": {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9._+@-]*$"},
        "size": {"type": "integer", "minimum": 1},
        "sha256": {"type": "string", "pattern": r"^[0-9a-f]{64}$"},
        "format": {"enum": list(archive.FORMATS)},
        "binary": _TEXT,
        "extract": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["from", "to"],
                "properties": {
                    "from": _TEXT,
                    "to": _TEXT,
                    "mode": {"type": "string", "pattern": r"^0?[0-7]{3}$"},
                },
            },
        },
    },
}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "required": ["schema", "artifacts"],
    "properties": {
        "schema": {"const": 1},
        "artifacts": {
            "type": "object",
            "propertyNames": {"pattern": r"^[a-z0-9][a-z0-9_-]{0,62}$"},
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "required": ["version", "platforms"],
                "properties": {
                    "version": {
                        "type": "string",
                        "pattern": r"^[0-9A-Za-z][0-9A-Za-z.+_-]{0,127}$",
                    },
                    "platforms": {
                        "type": "object",
                        "minProperties": 1,
                        "propertyNames": {"enum": list(PLATFORMS)},
                        "additionalProperties": _PLATFORM,
                    },
                },
            },
        },
    },
}


class _Loader(yaml.SafeLoader):
    """A key given twice would hide a pin: it is a mistake here."""


def _mapping(loader: _Loader, node: yaml.MappingNode, deep: bool = False) -> Dict[Any, Any]:
    found: Dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str) or key in found:
            raise yaml.constructor.ConstructorError(
                None, None, "the key %r is given twice or is no text" % key, key_node.start_mark
            )
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def load(source: Union[str, Dict[str, Any]]) -> Dict[str, Any]:
    """Read and check a lock.

    :param source: path of the file, or its content as a dict
    :return: ``{"schema": 1, "artifacts": {name: {"version", "platforms": {platform: ...}}}}``
    :raises Refusal: with every mistake
    """
    if HAS_JSONSCHEMA is not None:
        raise Refusal(
            "lock",
            "no jsonschema in the controller's Python",
            "the Python package jsonschema",
            "Install the collection's requirements.txt on the controller",
        )
    title = "lock"
    data: Any = source
    if not isinstance(source, dict):
        title = "lock %s" % source
        try:
            with open(source, encoding="utf-8") as stream:
                data = yaml.load(stream, Loader=_Loader)  # a SafeLoader # noqa: S506
        except (OSError, UnicodeError, yaml.YAMLError) as error:
            raise Refusal(
                title, " ".join(str(error).split()), "a YAML file that can be read", "Mend it"
            ) from error
    mistakes = list(_mistakes(data))
    if mistakes:
        raise Refusal(
            title,
            "%d mistake%s: %s"
            % (len(mistakes), "" if len(mistakes) == 1 else "s", "; ".join(mistakes)),
            "every artifact pinned by digest, as docs/lock.md says",
            "Mend the places named",
            facts={"mistakes": mistakes},
        )
    return dict(data)


def pick(lock: Dict[str, Any], name: str, platform: str) -> Dict[str, Any]:
    """One artifact for one platform, flat.

    :return: ``{"name", "version", "platform", "source", "file", "size", "sha256", "format",
        "extract", "binary"}``
    :raises Refusal: naming what the lock does hold
    """
    artifacts = lock["artifacts"]
    if name not in artifacts:
        raise Refusal(
            "artifact %s" % name,
            "no pin of that name in the lock",
            "one of %s" % ", ".join(sorted(artifacts)),
            "Add it to the lock",
        )
    entry = artifacts[name]
    if platform not in entry["platforms"]:
        raise Refusal(
            "artifact %s %s" % (name, entry["version"]),
            "no pin for the platform %s" % platform,
            "one of %s" % ", ".join(sorted(entry["platforms"])),
            "Pin it for that platform, or take this host out of the fleet",
        )
    return dict(
        {"binary": None},
        **entry["platforms"][platform],
        name=name,
        version=entry["version"],
        platform=platform,
    )


# What the host's part of an installation has to know of a pin.
_ENTRY = ("name", "version", "sha256", "size", "format", "binary", "extract")


def entries(lock: Dict[str, Any], names: Iterable[str], platform: str) -> List[Dict[str, Any]]:
    """The pins of several artifacts as ``artifact_host`` takes them.

    :raises Refusal: as ``pick``
    """
    return [{key: pin[key] for key in _ENTRY} for pin in (pick(lock, n, platform) for n in names)]


def by_platform(lock: Dict[str, Any], names: Iterable[str]) -> Dict[str, List[Dict[str, Any]]]:
    """``entries`` for every platform that all of them are pinned for."""
    names = list(names)
    everywhere = set(PLATFORMS)
    for name in names:
        everywhere &= set(lock["artifacts"].get(name, {}).get("platforms", {}))
    return {platform: entries(lock, names, platform) for platform in sorted(everywhere)}


def platform_of(system: str, machine: str) -> str:
    """The lock's name of a platform, from Ansible's facts ``system`` and ``architecture``."""
    system = system.lower()
    machine = _MACHINES.get(machine.lower(), machine.lower())
    if system == "darwin" and machine == "aarch64":
        machine = "arm64"
    return "%s-%s" % (system, machine)


def _mistakes(data: Any) -> Iterator[str]:
    errors = list(Draft202012Validator(SCHEMA).iter_errors(data))
    for error in sorted(errors, key=lambda e: [str(part) for part in e.absolute_path]):
        place = ".".join(str(part) for part in error.absolute_path)
        yield "%s: %s" % (place or "the whole", _reword(error))
    if errors:
        return
    for name, entry in sorted(data["artifacts"].items()):
        if entry["version"] in artifact.RESERVED:
            yield "artifacts.%s.version: %r names a link" % (name, entry["version"])
        for platform, pin in sorted(entry["platforms"].items()):
            place = "artifacts.%s.platforms.%s" % (name, platform)
            for text in _pin_mistakes(pin):
                yield "%s.%s" % (place, text)


def _reword(error: Any) -> str:
    """jsonschema's message, with what a person needs for the common cases."""
    if error.validator == "required":
        missing = [key for key in error.validator_value if key not in error.instance]
        return "%s missing" % " and ".join(missing)
    if error.validator == "pattern" and list(error.absolute_path)[-1:] == ["sha256"]:
        return "%r is no sha256 (64 lower-case hex digits)" % error.instance
    return str(error.message)


def _pin_mistakes(pin: Dict[str, Any]) -> Iterator[str]:
    index = pin["source"].get("index")
    if index is not None and pin["format"] != "wheel":
        yield "format: %r, but an index source is a wheel" % pin["format"]
    if pin["format"] == "wheel" and not pin["file"].endswith(".whl"):
        yield "file: %r is no wheel's name" % pin["file"]
    elif index is not None:
        start = "%s-%s-" % (_wheel_part(index["package"]).lower(), index["version"])
        if not pin["file"].lower().startswith(start):
            yield "file: %r does not start with %r, as the source asks" % (pin["file"], start)
    path = pin["source"].get("file")
    if path is not None and not os.path.isabs(os.path.expanduser(path)):
        yield "source.file: %r is not an absolute path" % path
    if pin["format"] == "raw" and len(pin["extract"]) != 1:
        yield "extract: a raw file has exactly one entry"
    places: List[str] = []
    for number, item in enumerate(pin["extract"]):
        for key in ("from", "to"):
            try:
                archive.safe_name(item[key], "extract")
            except Refusal as refusal:
                yield "extract.%d.%s: %s" % (number, key, refusal.found)
        if item["from"].endswith("/") and not item["to"].endswith("/"):
            yield "extract.%d.to: a folder goes to a folder: end it with a slash" % number
        places.append(item["to"])
    binary = pin.get("binary")
    folders = any(place.endswith("/") for place in places)
    if binary is not None and binary not in places and not folders:
        yield "binary: %r is no 'to' of extract" % binary


def _wheel_part(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name)
