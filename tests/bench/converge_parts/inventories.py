# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Writes the inventories: each way of provisioning gets what its user would have, and no more."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench_parts import testbed
from bench_parts.places import BED, BED_STATE

from . import hosts
from .places import STATE

ARGUMENTS = ["--ctx-size", "512", "--threads", "1"]
# What "one change" changes: one argument of one engine on one host.
CHANGED_ARGUMENTS = ["--ctx-size", "384", "--threads", "1"]
CHANGED_HOST = "gpu2"


def site(names: Sequence[str], *, changed: bool = False) -> Path:
    """The fleet that playbooks/site.yml provisions: one tiny model a host, one relay a model.

    :param names: hosts; emulated Macs are told from others by their names
    """
    state = testbed.status()
    model = BED_STATE / "models" / "tiny.gguf"
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    # The bed's node is the gateway of its network; pods come with its address or their own.
    node = state["server"].removeprefix("https://").split(":")[0]
    settings = {
        "fleet_name": BED,
        "fleet_kubeconfig": state["kubeconfig"],
        "fleet_cluster_networks": [f"{node}/32", state["pods"]],
        "fleet_create_namespaces": True,
        "relay_image": state["relay_image"],
        "fleet_depot_dir": str(BED_STATE / "depot"),
        "fleet_ca_dir": str(BED_STATE / "ca"),
        "fleet_ca_passphrase_file": str(BED_STATE / "ca_passphrase"),
        "fleet_models": [
            {
                "name": f"tiny-{name}",
                "namespace": "team-a",
                "engine": "llama_server",
                "hosts": [name],
                # On two cores ten relays are company enough.
                "replicas": 1,
                "files": [{"name": "tiny.gguf", "source": str(model), "sha256": digest}],
                "args": CHANGED_ARGUMENTS if changed and name == CHANGED_HOST else ARGUMENTS,
            }
            for name in names
        ],
    }
    if any(hosts.is_mac(name) for name in names):
        settings["fleet_lock_file"] = str(hosts.mac_lock())
    folder = STATE / f"site-{len(names)}-{names[-1]}{'-changed' if changed else ''}"
    return _write(folder, names, settings, with_cluster=True)


def plain(count: int, name: str) -> Path:
    """The hosts alone; what belongs to one of them is put beside it by ``host_vars``."""
    return _write(STATE / f"{name}-{count}", hosts.names(count), {}, with_cluster=False)


def host_vars(inventory: Path, host: str, variables: dict[str, Any]) -> None:
    folder = inventory.parent / "host_vars"
    folder.mkdir(exist_ok=True)
    (folder / f"{host}.json").write_text(json.dumps(variables, indent=1))


def _write(
    folder: Path, names: Sequence[str], settings: dict[str, Any], *, with_cluster: bool
) -> Path:
    where = hosts.addresses()
    access = {
        "ansible_user": "ops",
        "ansible_ssh_common_args": f"-F {BED_STATE / 'ssh_config'}",
    }
    groups: dict[str, Any] = {
        "fleet_hosts": {
            "hosts": {
                name: {
                    "ansible_host": where[name],
                    **({"fleet_system": "macos"} if hosts.is_mac(name) else {}),
                }
                for name in names
            },
            "vars": access,
        }
    }
    if with_cluster:
        groups["fleet_cluster"] = {"hosts": {"cluster": {"ansible_connection": "local"}}}
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # JSON is YAML: nothing needs to be quoted by hand.
    path = folder / "hosts.yml"
    path.write_text(json.dumps({"all": {"vars": settings, "children": groups}}, indent=1))
    return path
