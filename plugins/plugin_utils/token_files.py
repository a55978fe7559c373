# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where a namespace's token lies on a host: one folder a namespace, one file a generation."""

from __future__ import annotations

import hashlib
from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal


def token_files(
    tokens: Mapping[str, Mapping[str, Any]],
    namespaces: Sequence[str],
    directory: str = "/etc/tether/ingress/tokens",
    group: str = "tether-ingress",
) -> List[Dict[str, Any]]:
    """Entries of the ``files`` module: the folder and the token files of each namespace.

    :param tokens: namespace -> ``{"current": text}``, during a rotation also next or previous
    :raises Refusal: naming the namespaces that have none
    """
    missing = [namespace for namespace in namespaces if namespace not in tokens]
    if missing:
        raise Refusal(
            "tokens of the namespaces %s" % ", ".join(missing),
            "none",
            "one each",
            "Run the token module for these namespaces first",
        )
    entries: List[Dict[str, Any]] = []
    for namespace in namespaces:
        folder = "%s/%s" % (directory, namespace)
        entries.append({"path": folder, "state": "directory", "group": group, "mode": "0750"})
        # The ingress reads all three at each request: an empty file lets nobody in, and a missing
        # one would be a line in its log each time.
        for name in ("current", "next", "previous"):
            entries.append(
                {
                    "path": "%s/%s" % (folder, name),
                    "secret_content": tokens[namespace].get(name, ""),
                    "group": group,
                    "mode": "0440",
                }
            )
    return entries


def without_secrets(namespaces: Sequence[str]) -> List[Dict[str, Any]]:
    """The same entries for a survey: it compares owners and modes, and reports the digests."""
    entries = token_files({namespace: {} for namespace in namespaces}, namespaces)
    return [
        {key: value for key, value in entry.items() if key != "secret_content"} for entry in entries
    ]


def digests(tokens: Mapping[str, str], namespace: str) -> Dict[str, str]:
    """By path, the sha256 that each token file of a namespace has to have.

    :param tokens: ``{"current": sha256 of the token}``
    """
    empty = hashlib.sha256(b"").hexdigest()
    return {
        entry["path"]: entry["secret_content"] or empty
        for entry in token_files({namespace: tokens}, [namespace])
        if "secret_content" in entry
    }
