# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A user's own fleet: a folder of their own, a host and the cluster of a test bed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STATE = Path("/var/lib/tether-bed")
# What tests/models/prepare.sh makes.
TINY = "8fbf934df9db42063a5793333c8aa379aab0765ca40180966e8266a3fede9131"


class Bed:
    """A test bed of this test's own."""

    def __init__(self, name: str, hosts: tuple[str, ...]) -> None:
        self.name, self.hosts = name, hosts
        self.state = STATE / name
        self._command = (sys.executable, "tests/testbed", "--bed", name)

    def up(self) -> None:
        self.down()
        self._run(*self._command, "up", "--hosts", ",".join(self.hosts))
        self._run("sh", "tests/models/prepare.sh", self.name, sys.executable)

    def down(self) -> None:
        self._run(*self._command, "down")

    def kubectl(self, *words: str) -> str:
        return self._run(*self._command, "kubectl", *words)

    def layout(self) -> dict[str, Any]:
        return dict(json.loads((self.state / "bed.json").read_text()))

    def _run(self, *argv: str) -> str:
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{argv}:\n{done.stdout}{done.stderr}"
        return done.stdout


def write(folder: Path, fleet: str, bed: Bed, host: str, depot: Path) -> None:
    """Put the inventory of a fleet into ``folder``, which may hold the example's ansible.cfg.

    Fleets on one bed share its cluster: each has its own host, namespaces and certificates.
    """
    number, address = bed.layout()["number"], bed.layout()["hosts"][host]
    (folder / "models").mkdir()
    (folder / "models" / "tiny.gguf").write_bytes((bed.state / "models/tiny.gguf").read_bytes())
    (folder / "hosts.yml").write_text(
        json.dumps(
            {
                "all": {
                    "children": {
                        "fleet_hosts": {
                            "hosts": {host: {"ansible_host": address}},
                            "vars": {
                                "ansible_user": "ops",
                                "ansible_ssh_common_args": f"-F {bed.state}/ssh_config",
                            },
                        },
                        "fleet_cluster": {"hosts": {"cluster": {"ansible_connection": "local"}}},
                    }
                }
            }
        )
    )
    variables = {
        "fleet_name": fleet,
        "fleet_cluster_namespace": f"tether-{fleet}",
        "fleet_kubeconfig": str(bed.state / "kubeconfig"),
        "fleet_cluster_networks": [f"10.99.{number}.1/32", f"10.100.{number}.0/24"],
        "fleet_create_namespaces": True,
        "relay_image": (bed.state / "relay_image").read_text().strip(),
        "fleet_depot_dir": str(depot),
        "fleet_ca_dir": str(folder / "ca"),
        "fleet_ca_passphrase_file": str(bed.state / "ca_passphrase"),
        "fleet_models": [
            {
                "name": "tiny",
                "namespace": f"{fleet}-a",
                "engine": "llama_server",
                "hosts": [host],
                "replicas": 1,
                # Relative: it starts at the inventory's folder.
                "files": [{"name": "tiny.gguf", "source": "models/tiny.gguf", "sha256": TINY}],
                "args": ["--ctx-size", "512", "--threads", "1"],
            }
        ],
    }
    (folder / "group_vars").mkdir()
    (folder / "group_vars" / "all.yml").write_text(json.dumps(variables))
