# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which of a host's directly exposed services answer: a survey's question, with nothing to mend.

The host asks itself, at the address that others dial: a program that listens on loopback alone does
not answer there, and the firewall lets the controller in as little as anybody else.
"""

from __future__ import annotations

from typing import Any, Dict

from ansible_collections.tether.fleet.plugins.module_utils.daemon import health
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan

ARGUMENT_SPEC: Dict[str, Any] = {
    "services": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "namespace": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "address": {"type": "str", "required": True},
            "port": {"type": "int", "required": True},
            "health_path": {"type": "str", "default": ""},
            "health_status": {"type": "int", "default": 200},
        },
    },
}


def observe(desired: Dict[str, Any]) -> Dict[str, Any]:
    """One look at each port."""
    return {
        "found": {
            "%s/%s" % (one["namespace"], one["name"]): health.probe(
                {
                    "address": one["address"],
                    "port": one["port"],
                    "path": one["health_path"],
                    "status": one["health_status"],
                }
            )
            for one in desired["services"]
        }
    }


def plan(_desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """No step; ``facts["answering"]`` lists the services that are well."""
    return Plan([], {"answering": sorted(key for key, bad in observed["found"].items() if not bad)})
