# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the fleet remembers between runs: which objects it refused to touch.

An Event is sent when such a finding is new or changes, not at every run.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, Optional

from ansible_collections.tether.fleet.plugins.module_utils.cluster import labels

_KEY = "state.json"


def refused(live: Optional[Dict[str, Any]]) -> Dict[str, Dict[str, str]]:
    """The remembered findings: ``{"Service team-a/tiny": {"uid", "owner"}}``.

    A state that cannot be read counts as empty: the worst that follows is an Event more.
    """
    try:
        data = json.loads(((live or {}).get("data") or {}).get(_KEY, "{}"))
        return dict(data.get("refused") or {})
    except (ValueError, AttributeError, TypeError, RecursionError):
        return {}


def without(item: Dict[str, Any], lost: Iterable[str]) -> Dict[str, Any]:
    """The state object without findings that nobody was told of: the next run tells them."""
    findings = {name: found for name, found in refused(item).items() if name not in set(lost)}
    marks = item["metadata"]
    return state_object(findings, marks["labels"][labels.FLEET], marks["namespace"])


def state_object(findings: Dict[str, Dict[str, str]], fleet: str, namespace: str) -> Dict[str, Any]:
    """The state as a ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": labels.STATE_NAME,
            "namespace": namespace,
            "labels": labels.record_labels(fleet, "state"),
        },
        "data": {
            _KEY: json.dumps({"schema": 1, "refused": findings}, indent=1, sort_keys=True) + "\n"
        },
    }
