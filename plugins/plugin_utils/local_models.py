# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Consumers on the host itself: where each of their accounts reads which models answer there. Pure.

The ingress serves such a model on a port of 127.0.0.1, in clear text and without a token; the
firewall lets its listed accounts connect, and root.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional

from ansible_collections.tether.fleet.plugins.plugin_utils import names

FOLDER = "/etc/tether/local"
SCHEMA = 1


def of_model(entry: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """A normalised model's local port and who may use it; None where nobody may."""
    if entry["local_port"] is None:
        return None
    return {"port": entry["local_port"], "accounts": sorted(entry["local_accounts"])}


def address(local: Mapping[str, Any]) -> str:
    return "127.0.0.1:%d" % local["port"]


def loopback_ports(engines: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """As the ``firewall`` module takes them: who may connect, and that only the ingress answers."""
    return [
        {
            "port": engine["local"]["port"],
            "accounts": engine["local"]["accounts"],
            "server": names.INGRESS_ACCOUNT,
        }
        for engine in engines
        if engine["local"] is not None
    ]


def files(engines: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """As the ``files`` module takes them: one file an account, which it alone reads."""
    by_account: Dict[str, List[Dict[str, Any]]] = {}
    for engine in engines:
        for account in (engine["local"] or {}).get("accounts", []):
            by_account.setdefault(account, []).append(engine)
    if not by_account:
        return []
    result: List[Dict[str, Any]] = [{"path": FOLDER, "state": "directory", "mode": "0755"}]
    for account in sorted(by_account):
        models = [
            {
                "namespace": engine["namespace"],
                "model": engine["model"],
                "url": "http://%s" % address(engine["local"]),
                "paths": [item["path"] for item in engine["paths"]],
            }
            for engine in by_account[account]
        ]
        text = json.dumps({"schema": SCHEMA, "models": models}, indent=1, sort_keys=True) + "\n"
        path = "%s/%s.json" % (FOLDER, account)
        result.append({"path": path, "content": text, "owner": account, "mode": "0400"})
    return result
