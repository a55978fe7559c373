# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ways of keeping the relays' objects that are measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench_parts.places import BED_STATE, BenchError

from . import task
from .fleet import Fleet

RELAY, LIST, LOOP = "relay", "list", "loop"


@dataclass
class Ways:
    """One fleet and its objects.

    :ivar definitions: every object, as the relay module makes it
    :ivar looped: those that the loop handles; all of them would take it too long
    """

    fleet: Fleet
    definitions: list[dict[str, Any]]
    looped: list[dict[str, Any]]

    def run(self, way: str) -> task.Outcome:
        if way == RELAY:
            return self.fleet.relay(self.fleet.models)
        if way == LIST:
            return _k8s("{{ definitions }}", self.definitions)
        return _k8s("{{ item }}", self.looped, loop="{{ definitions }}")

    def unchanged(self, way: str) -> task.Outcome:
        """:raises BenchError: when the run changes something: then it is no control of the other"""
        outcome = self.run(way)
        if outcome.result["changed"]:
            changes = "; ".join(outcome.changes[:10])
            raise BenchError(f"{way} changed something ({changes}), expected no change")
        return outcome


def _k8s(
    definition: str, definitions: Sequence[dict[str, Any]], **more: Any
) -> task.Outcome:  # fmt: skip
    wanted = {
        "kubernetes.core.k8s": {
            "kubeconfig": str(BED_STATE / "kubeconfig"),
            "state": "present",
            "definition": definition,
        },
        **more,
    }
    if more:
        # Else each item is printed, secrets and all.
        wanted["loop_control"] = {"label": "{{ item.kind }}"}
    return task.run(wanted, {"definitions": list(definitions)})
