# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who would write a Service's selector again after somebody else changed it. Pure."""

from __future__ import annotations

import re
from typing import Any, Dict, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import labels

# Who reconciles, by the name that it writes as. Some of them show as an update, not as an apply:
# Argo CD without its server-side mode, Helm 3.
_FAMILIES = (
    (re.compile(r"argocd"), "argocd"),
    (re.compile(r"(kustomize|helm)-controller|flux"), "flux"),
    (re.compile(r"helm"), "helm"),
    (re.compile(r"terraform|hashicorp", re.IGNORECASE), "terraform"),
    (re.compile(r"pulumi"), "pulumi"),
)

_REMEDIES = {
    "argocd": "Have Argo CD leave it alone: ignoreDifferences for this Service with the"
    " jsonPointers /spec/selector and /spec/ports, and the sync option"
    " RespectIgnoreDifferences=true",
    "helm": "Keep it when its release goes on without it: annotate it helm.sh/resource-policy:"
    " keep, then take it out of the chart",
    "flux": "Have Flux leave it alone: annotate it kustomize.toolkit.fluxcd.io/reconcile:"
    " disabled, in its source too",
}

_MARKS = (
    ("annotations", "argocd.argoproj.io/tracking-id", "argocd"),
    ("labels", "argocd.argoproj.io/instance", "argocd"),
    ("annotations", "meta.helm.sh/release-name", "helm"),
    ("labels", "kustomize.toolkit.fluxcd.io/name", "flux"),
    ("labels", "helm.toolkit.fluxcd.io/name", "flux"),
)


def of_selector(service: Dict[str, Any]) -> Dict[str, str]:
    """By name, what shows that somebody keeps a Service's selector as it is.

    The name is what a model's ``adopt_from`` has for it.
    """
    found: Dict[str, str] = {}
    meta = service["metadata"]
    for where, key, name in _MARKS:
        value = (meta.get(where) or {}).get(key)
        if value:
            found.setdefault(name, "its %s %s=%s" % (where[:-1], key, str(value)[:100]))
    for reference in meta.get("ownerReferences") or []:
        if reference.get("controller"):
            name = str(reference.get("kind"))
            found.setdefault(name, "it is controlled by %s %s" % (name, reference.get("name")))
    for entry in meta.get("managedFields") or []:
        manager = str(entry.get("manager") or "")
        spec = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        if manager == labels.MANAGER or entry.get("subresource") or "f:selector" not in spec:
            continue
        name, known = _family(manager)
        if known or entry.get("operation") == "Apply":
            found.setdefault(name, "%s wrote its selector (%s)" % (manager, entry.get("operation")))
    return found


def remedy(name: str) -> str:
    """What to do about one of them, as a sentence without its full stop."""
    general = "Have %s leave the Service's selector and target ports alone" % name
    return "%s; then list %s in the model's adopt_from" % (_REMEDIES.get(name, general), name)


def _family(manager: str) -> Tuple[str, bool]:
    for pattern, name in _FAMILIES:
        if pattern.match(manager):
            return name, True
    return manager, False
