# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whom a refused write stops."""

from __future__ import annotations

import json
from typing import Any, Dict, List

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.cluster import client, writer
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Step


class Cluster:
    """An API server that creates what it is given, but for the names that it may not."""

    def __init__(self, *forbidden: str) -> None:
        self.forbidden, self.made, self.asked = forbidden, [], []  # type: ignore[var-annotated]

    def create(self, item: Dict[str, Any]) -> Dict[str, Any]:
        kind, meta = item["kind"], item["metadata"]
        self.asked.append(meta["name"])
        if meta["name"] in self.forbidden:
            text = json.dumps({"message": "not allowed"})
            place = meta.get("namespace")
            raise client.refusal_of(403, text, "create", kind, place, meta["name"])
        self.made.append("%s %s" % (kind, meta["name"]))
        return item


class Held:
    def check(self) -> None:
        """The Lease is ours all the time."""


def create(kind: str, name: str, **more: Any) -> Step:
    namespace = more.pop("namespace", None)
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return writer.step("create", {"kind": kind, "metadata": metadata}, None, **more)


def write(cluster: Any, steps: List[Step]) -> writer.Outcome:
    outcome = writer.Outcome(Plan(steps))
    writer._write_all(cluster, Held(), outcome, True)  # type: ignore[arg-type]
    return outcome


STEPS = [
    create("Namespace", "a", models=["a/one", "a/two"]),
    create("Namespace", "b", models=["b/one"]),
    create("Service", "a-one", namespace="a", model="a/one"),
    create("Service", "a-two", namespace="a", model="a/two"),
    create("Service", "b-one", namespace="b", model="b/one"),
]


def test_a_namespace_that_may_not_be_created_stops_its_own_models_alone() -> None:
    cluster = Cluster("a")
    outcome = write(cluster, STEPS)
    assert cluster.made == ["Namespace b", "Service b-one"]
    assert sorted(outcome.errors) == ["a/one", "a/two"]
    assert "create namespaces a" in str(outcome.errors["a/one"])
    assert [item.name for item in outcome.steps] == ["b", "b/b-one"]


@pytest.mark.parametrize("last", [False, True])
def test_what_is_never_the_same_stops_its_own_model_alone(last: bool) -> None:
    """Somebody makes a's Service anew each time that it is looked at."""
    cluster = Cluster()
    outcome = writer.Outcome(Plan(STEPS[2:]))

    def made(item: Dict[str, Any]) -> Dict[str, Any]:
        if item["metadata"]["namespace"] == "a":
            raise client.refusal_of(409, "{}", "create", "Service", "a", item["metadata"]["name"])
        cluster.made.append(item["metadata"]["name"])
        return item

    cluster.create = made  # type: ignore[method-assign]
    if not last:
        with pytest.raises(writer.Moved):
            writer._write_all(cluster, Held(), outcome, last)  # type: ignore[arg-type]
        return
    writer._write_all(cluster, Held(), outcome, last)  # type: ignore[arg-type]
    assert cluster.made == ["b-one"]
    assert sorted(outcome.errors) == ["a/one", "a/two"]
    assert "each time that it is looked at" in str(outcome.errors["a/one"])


def test_what_no_model_is_left_for_is_not_tried() -> None:
    cluster = Cluster("a")
    outcome = writer.Outcome(Plan(STEPS))
    for _attempt in range(2):
        writer._write_all(cluster, Held(), outcome, True)  # type: ignore[arg-type]
    assert cluster.asked.count("a") == 1


def test_what_the_whole_run_needs_stops_it() -> None:
    with pytest.raises(client.Failed, match="create configmaps x"):
        write(Cluster("x"), [create("ConfigMap", "x", namespace="f")])
