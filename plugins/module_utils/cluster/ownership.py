# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who owns an object that is not ours, in words for a message."""

from __future__ import annotations

from typing import Any, Dict, List

from ansible_collections.tether.fleet.plugins.module_utils.cluster import labels

# Field managers of the control plane: they touch every object and own none.
_NOT_OWNERS = ("kube-controller-manager", "kube-apiserver", "kubelet", "kube-scheduler")


def describe_owner(item: Dict[str, Any]) -> str:
    """Name the owner of an object by everything that the object itself says.

    :param item: an object or its ``PartialObjectMetadata``
    :return: for example ``Helm release web, written by helm``; never empty
    """
    meta = item.get("metadata", {})
    marks = meta.get("labels") or {}
    notes = meta.get("annotations") or {}
    found: List[str] = []
    for reference in meta.get("ownerReferences") or []:
        found.append("owned by %s %s" % (reference.get("kind"), reference.get("name")))
    if notes.get("meta.helm.sh/release-name"):
        found.append("Helm release %s" % notes["meta.helm.sh/release-name"])
    tracking = notes.get("argocd.argoproj.io/tracking-id") or marks.get(
        "argocd.argoproj.io/instance"
    )
    if tracking:
        found.append("Argo CD application %s" % str(tracking).split(":", maxsplit=1)[0])
    if marks.get("kustomize.toolkit.fluxcd.io/name"):
        found.append("Flux kustomization %s" % marks["kustomize.toolkit.fluxcd.io/name"])
    if marks.get(labels.MANAGED_BY) == labels.MANAGER:
        found.append("another fleet, %s" % marks.get(labels.FLEET, "without a name"))
    elif marks.get(labels.MANAGED_BY):
        found.append("managed by %s" % marks[labels.MANAGED_BY])
    managers = sorted(
        {
            entry["manager"]
            for entry in meta.get("managedFields") or []
            if entry.get("manager")
            and entry["manager"] not in _NOT_OWNERS
            # Of ours it says only that it was handed over once.
            and entry["manager"] != labels.MANAGER
        }
    )
    if managers:
        found.append("written by %s" % ", ".join(managers))
    text = "; ".join(_short(part, 100) for part in found[:6])
    return _short(text, 400) or "nobody that the object names"


def _short(text: str, most: int) -> str:
    """Text of an object that anybody may have written: printable and bounded.

    It goes into messages, an Event and the fleet's state, which are not to burst.
    """
    clean = "".join(char if char.isprintable() else "?" for char in text[: most + 1])
    return clean if len(clean) <= most else clean[: most - 3] + "..."
