# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What in a sound inventory looks as if it was not meant: told, and not refused.

Its form is right, so a check on another machine than the controller, or of an example, passes.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Callable, Dict, List, Mapping
from urllib.parse import urlsplit

# Networks and names that belong to nobody, for documents: RFC 5737, RFC 3849, RFC 2606.
_NETWORKS = [
    ipaddress.ip_network(text)
    for text in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")
]
_DOMAINS = ("example", "example.com", "example.net", "example.org")
# Named one by one; of more the number is told.
_NAMED = 40


def doubts(
    plan: Mapping[str, Any],
    image: str,
    networks: Mapping[str, Any],
    is_there: Callable[[str, str], bool],
    files: Mapping[str, str],
) -> List[str]:
    """One sentence or two a kind of doubt.

    :param image: ``relay_image``
    :param networks: host -> its ``fleet_cluster_networks``
    :param is_there: whether the controller has a file, by its path or in the depot by its digest
    :param files: variable -> a file that it names
    """
    found = []
    left = _placeholders(plan, image, networks)
    if left:
        found.append(
            "Placeholders of an example are left in the inventory: %s. A run needs your own"
            " addresses, networks, files and digests in their place." % _listed(left)
        )
    missing = ["%s (%s)" % (path, key) for key, path in files.items() if not is_there(path, "")]
    missing += [
        "%s for model %s" % (file["source"], key)
        for key, model in plan["models"].items()
        for file in model["files"]
        if not _is_url(file["source"]) and not is_there(file["source"], file["sha256"])
    ]
    if missing:
        found.append(
            "Files that are not on this controller: %s. A run stops where it needs them: put them"
            " there, or mend their paths." % _listed(missing)
        )
    return found


def _placeholders(
    plan: Mapping[str, Any], image: str, networks: Mapping[str, Any]
) -> Dict[str, None]:
    """Where they stand, in the inventory's order."""
    left: Dict[str, None] = {}
    if _is_one_digit(image.rpartition(":")[2]):
        left["relay_image"] = None
    for host, item in plan["hosts"].items():
        if _is_nobodys(item["address"]):
            left["host %s: its address" % host] = None
        for network in networks.get(host) or []:
            if _is_nobodys(str(network)):
                left["fleet_cluster_networks (%s)" % network] = None
    for key, model in plan["models"].items():
        for file in model["files"]:
            wrong = ["sha256"] if _is_one_digit(file["sha256"]) else []
            if _is_url(file["source"]) and _is_nobodys(urlsplit(file["source"]).hostname or ""):
                wrong.append("source")
            if wrong:
                left["model %s: %s of %s" % (key, " and ".join(wrong), file["name"])] = None
    return left


def _is_one_digit(digest: str) -> bool:
    """No file is known whose digest is one digit sixty-four times."""
    return len(digest) == 64 and len(set(digest)) == 1


def _is_nobodys(text: str) -> bool:
    """Whether an address, a network or a name is one for documents."""
    text = text.lower().rstrip(".")
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return any(text == name or text.endswith("." + name) for name in _DOMAINS)
    return any(
        network.version == other.version and network.subnet_of(other)  # type: ignore[arg-type]
        for other in _NETWORKS
    )


def _is_url(source: str) -> bool:
    return urlsplit(source).scheme == "https"


def _listed(items: Any) -> str:
    names = list(items)
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (" and %d more" % more if more > 0 else "")
