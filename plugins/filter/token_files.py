# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where a namespace's token lies on a host: one folder a namespace, one file a generation."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Sequence

from ansible.errors import AnsibleFilterError


def token_files(
    tokens: Mapping[str, Mapping[str, Any]],
    namespaces: Sequence[str],
    directory: str = "/etc/tether/ingress/tokens",
    group: str = "tether-ingress",
) -> List[Dict[str, Any]]:
    """Entries of the ``files`` module: the folder and the token files of each namespace.

    :param tokens: namespace -> ``{"current": text}``, during a rotation also next or previous
    """
    missing = [namespace for namespace in namespaces if namespace not in tokens]
    if missing:
        raise AnsibleFilterError(
            "tokens of the namespaces %s: found none; expected one each. Run the token module for "
            "these namespaces first." % ", ".join(missing)
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


class FilterModule:
    """The filter, by its name."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"token_files": token_files}
