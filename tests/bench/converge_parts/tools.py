# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ways of keeping a host's state that are measured, each as one command line."""

from __future__ import annotations

import configparser
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench_parts.places import BED_STATE, PLAYBOOK, ROOT, BenchError

from . import hosts, pyinfra_source
from .measure import Account, Run, counted, timed
from .places import CALLBACKS, WAYS
from .sessions import Ledger

# Hosts worked on at once, by every tool; for Ansible that is what ansible.cfg says.
PARALLEL = 20


@dataclass(frozen=True)
class Playbook:
    """One call of ansible-playbook, with the repository's own ansible.cfg."""

    name: str
    path: Path
    inventory: Path
    arguments: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    # Those that ansible.cfg enables are the collection's own: part of its cost, of nobody else's.
    with_callbacks: bool = False

    def run(self, ledger: Ledger) -> Run:
        with tempfile.TemporaryDirectory(prefix="tether-bench-") as place:
            record = Path(place) / "record.json"
            settings = {
                **os.environ,
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "ANSIBLE_FORKS": str(PARALLEL),
                "ANSIBLE_NOCOLOR": "1",
                "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
                "ANSIBLE_CALLBACKS_ENABLED": ",".join(self._callbacks()),
                "TETHER_BENCH_RECORD": str(record),
                **self.settings,
            }
            argv = [PLAYBOOK, str(self.path), "-i", str(self.inventory), *self.arguments]
            wall, _output = timed(argv, settings)
            account = _account(json.loads(record.read_text()))
        return counted(ledger, wall, account)

    def _callbacks(self) -> list[str]:
        names = ["count_executions"]
        if self.with_callbacks:
            settings = configparser.ConfigParser()
            settings.read(ROOT / "ansible.cfg")
            said = settings.get("defaults", "callbacks_enabled", fallback="")
            names += [name.strip() for name in said.split(",") if name.strip()]
        return names


@dataclass(frozen=True)
class Pyinfra:
    """One call of pyinfra, with the bed's key and its known hosts."""

    name: str
    inventory: Path

    def run(self, ledger: Ledger) -> Run:
        settings = {
            **os.environ,
            "TETHER_BENCH_INVENTORY": str(self.inventory.parent),
            "TETHER_BENCH_SSH_KEY": str(BED_STATE / "ssh_key"),
            "TETHER_BENCH_KNOWN_HOSTS": str(BED_STATE / "known_hosts"),
        }
        argv = [str(pyinfra_source.PROGRAM), "--yes", "--json", "--parallel", str(PARALLEL),
                str(WAYS / "pyinfra_inventory.py"), str(WAYS / "pyinfra_deploy.py")]  # fmt: skip
        wall, output = timed(argv, settings)
        results = json.loads(output)["results"]
        changed: dict[str, int] = {}
        for row in results["operations"]:
            if row["error"]:
                raise BenchError(f"pyinfra: {row['name']} failed on {row['error']}")
            for host in row["success"]:
                changed[host] = changed.get(host, 0) + 1
        return counted(ledger, wall, Account(len(results["operations"]), changed))


Tool = Playbook | Pyinfra


def _account(record: dict) -> Account:
    by_address = {address: name for name, address in hosts.addresses().items()}
    bad = {host: number for host, number in record["bad"].items() if number}
    if bad:
        raise BenchError(f"tasks failed or were rescued: {bad}, expected none")

    def named(kind: str) -> dict[str, int]:
        return {by_address[address]: n for address, n in record[kind]["ssh"].items()}

    return Account(
        tasks=record["tasks"],
        changed={host: number for host, number in record["changed"].items() if number},
        modules=named("modules"),
        commands=named("commands"),
        on_controller=record["modules"]["local"],
        profile=[(name, seconds) for name, seconds in record["profile"]],
    )
