# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One number of hosts: everything is brought to its state, proven, then timed round by round."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from bench_parts.places import ROOT, BenchError

from . import hosts, inventories, proofs, same_state
from .figures import Round
from .measure import Run
from .places import WAYS
from .role_source import COLLECTIONS, playbook
from .sessions import Ledger
from .tools import Playbook, Pyinfra, Tool


def _site(name: str, inventory: Path, *arguments: str) -> Playbook:
    path = ROOT / "playbooks" / "site.yml"
    return Playbook(name, path, inventory, arguments, with_callbacks=True)


class Mixed:
    """A Linux host and an emulated Mac in one fleet: what a run without changes executes on each.

    No control knows Macs, and times on an emulated one say nothing.
    """

    LINUX, MAC = NAMES = ("gpu1", "mac1")

    def __init__(self) -> None:
        self.ledger = Ledger(list(self.NAMES))
        self.site = _site("site.yml", inventories.site(self.NAMES))

    def run(self) -> Run:
        proofs.settle(self.site, self.ledger)
        return proofs.unchanged(self.site, self.site.run(self.ledger))


class Fleet:
    """The first ``count`` hosts of the bed and the tools that keep their state.

    :param role_settings: the role's variables that say where its program is served
    """

    def __init__(self, count: int, role_settings: Mapping[str, str]) -> None:
        self.count = count
        self.ledger = Ledger(hosts.names(count))
        self.site = _site("site.yml", inventories.site(hosts.names(count)))
        ordinary = inventories.plain(count, "ordinary")
        self.tools: dict[str, Tool] = {
            "site": self.site,
            "host": _site("site.yml --tags host", self.site.inventory, "--tags", "host"),
            "role": Playbook(
                "the role",
                playbook(),
                inventories.plain(count, "role"),
                ("--extra-vars", json.dumps(dict(role_settings))),
                # Other collections may take facts for variables, as Ansible lets them by default.
                {"ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS), "ANSIBLE_INJECT_FACT_VARS": "True"},
            ),
            "ordinary": Playbook("ordinary.yml", WAYS / "ordinary.yml", ordinary),
            "pyinfra": Pyinfra("pyinfra", ordinary),
        }

    def settle(self) -> None:
        """Bring everything to its state and prove what the timed runs take for granted.

        That the collection finds nothing to do after the controls had their turn says that all
        three keep the same state.
        """
        proofs.settle(self.site, self.ledger)
        proofs.settle(self.tools["role"], self.ledger)
        for name in hosts.names(self.count):
            state = same_state.take(name)
            inventories.host_vars(self.tools["ordinary"].inventory, name, state)
        for way in ("ordinary", "pyinfra"):
            proofs.mends(self.tools[way], self.ledger, "gpu1")
            proofs.settle(self.tools[way], self.ledger)
        proofs.unchanged(self.site, self.site.run(self.ledger))

    def round(self, number: int) -> Round:
        """One run of each tool. They take turns at being first, so that none gains by its place."""
        names = list(self.tools)
        turn = number % len(names)
        found: Round = {}
        for name in names[turn:] + names[:turn]:
            tool = self.tools[name]
            found[name] = proofs.unchanged(tool, tool.run(self.ledger))
        return found

    def one_change(self) -> list[Run]:
        """One engine argument of one model of one host is changed; then it is changed back."""
        other = inventories.site(hosts.names(self.count), changed=True)
        runs = []
        for inventory in (other, self.site.inventory):
            run = _site("site.yml, one change", inventory).run(self.ledger)
            if not run.account.changed.get(inventories.CHANGED_HOST):
                raise BenchError(
                    f"site.yml changed {run.account.changed}, expected a change on "
                    f"{inventories.CHANGED_HOST}"
                )
            runs.append(run)
        return runs
