# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One token a namespace: what relays present and hosts accept."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from typing import Any, Dict, Optional

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    answers,
    labels,
    objects,
    ownership,
)
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client
from ansible_collections.tether.fleet.plugins.module_utils.cluster.writer import step
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal

# 32 bytes as base64url without padding.
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


def new_token() -> str:
    """256 random bits."""
    return secrets.token_urlsafe(32)


def read_token(secret: Dict[str, Any]) -> Dict[str, str]:
    """``{"current", "generation"}`` of a token's Secret.

    :raises Refusal: when it does not hold a token; the text says nothing of what it does hold
    """
    data = secret.get("data") or {}
    current, generation = (_text(data.get(key)) for key in ("current", "generation"))
    name = "Secret %s/%s" % (secret["metadata"]["namespace"], secret["metadata"]["name"])
    if current is None or not _TOKEN.fullmatch(current):
        raise Refusal(
            "%s, key current" % name,
            "something that is not a token" if "current" in data else "nothing",
            "43 characters of base64url (32 random bytes)",
            "Delete that Secret; the next run makes a new token and distributes it",
        )
    if generation is None or not generation.isdigit():
        raise Refusal(
            "%s, key generation" % name,
            "no number",
            "a whole number",
            "Delete that Secret; the next run makes a new token and distributes it",
        )
    return {"current": current, "generation": generation}


def token_object(namespace: str, token: str, fleet: str, fleet_namespace: str) -> Dict[str, Any]:
    """The Secret of a token's first generation."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": labels.token_name(namespace),
            "namespace": fleet_namespace,
            "labels": labels.record_labels(fleet, "token"),
        },
        "type": "Opaque",
        "data": {"current": _encode(token), "generation": _encode("1")},
    }


def observe(client: Client, desired: Dict[str, Any]) -> Dict[str, Any]:
    """One list request; more only for what is missing."""
    place = desired["fleet_namespace"]
    found = {
        item["metadata"]["name"]: item
        for item in client.list("Secret", labels.fleet_selector(desired["fleet"], "token"), place)
    }
    names = {labels.token_name(namespace) for namespace in desired["namespaces"]}
    missing = sorted(names - set(found))
    exists = True
    if missing:
        namespace = client.get("Namespace", place, metadata_only=True)
        exists = namespace is not None
        since = (namespace or {}).get("metadata", {}).get("deletionTimestamp")
        if since:
            raise Refusal(
                "the fleet's own namespace %s" % place,
                "it is being deleted, since %s" % since,
                *answers.being_deleted(place),
            )
    foreign = {}
    if missing and exists:
        for name in missing:
            item = client.get("Secret", name, place, metadata_only=True)
            if item is not None:
                foreign[name] = item
    return {"secrets": found, "foreign": foreign, "namespace": exists}


def plan(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """Make what is missing; ``facts["tokens"]`` holds the tokens themselves."""
    fleet, place = desired["fleet"], desired["fleet_namespace"]
    for name, item in sorted(observed["foreign"].items()):
        raise Refusal(
            "Secret %s/%s" % (place, name),
            "one that is not this fleet's (%s)" % ownership.describe_owner(item),
            "none, or one with the labels of fleet %s" % fleet,
            "Remove or rename that Secret, or choose another fleet_namespace",
        )
    result = Plan()
    tokens: Dict[str, Dict[str, str]] = {}
    if not observed["namespace"]:
        result.steps.append(step("create", objects.namespace(place, fleet)))
    for namespace in sorted(set(desired["namespaces"])):
        live = observed["secrets"].get(labels.token_name(namespace))
        if live is not None:
            tokens[namespace] = read_token(live)
            continue
        token = new_token()
        tokens[namespace] = {"current": token, "generation": "1"}
        result.steps.append(step("create", token_object(namespace, token, fleet, place)))
    result.facts["tokens"] = tokens
    return result


def _encode(text: str) -> str:
    return base64.b64encode(text.encode("ascii")).decode("ascii")


def _text(value: Optional[str]) -> Optional[str]:
    try:
        return None if value is None else base64.b64decode(value).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return None
