# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What belongs to somebody else stays as it is (G1)."""

from __future__ import annotations

import json

import pytest
import yaml
from bed import SCENARIO, client, get, kubectl, site

TAKEN = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "taken", "namespace": "team-a", "labels": {"app": "billing"}},
    "spec": {"selector": {"app": "billing"}, "ports": [{"port": 80, "targetPort": 8080}]},
}


@pytest.fixture
def somebodys_service(tmp_path):
    kubectl("apply", "-f", "-", text_in=json.dumps(TAKEN))
    models = yaml.safe_load((SCENARIO / "inventory" / "group_vars" / "all.yml").read_text())[
        "fleet_models"
    ]
    taken = dict(models[0], name="taken", replicas=1, hosts=["gpu1"])
    variables = tmp_path / "models.yml"
    variables.write_text(yaml.safe_dump({"fleet_models": [*models, taken]}))
    yield str(variables)
    kubectl("delete", "service", "taken", "-n", "team-a")
    # Back to the fleet as it is declared. The extra engine's unit stays on gpu1: removal is another
    # playbook's task.
    assert site().returncode == 0


def warnings():
    events = get("events", "-n", "team-a")["items"]
    return [
        event
        for event in events
        if event["type"] == "Warning" and event["involvedObject"]["name"] == "taken"
    ]


def test_a_service_that_somebody_else_made(somebodys_service):
    before = get("service", "taken", "-n", "team-a")
    done = site("-e", f"@{somebodys_service}")
    assert done.returncode != 0, done.stdout
    assert "team-a/taken" in done.stdout
    assert get("service", "taken", "-n", "team-a") == before
    assert kubectl("get", "deployment", "taken-relay", "-n", "team-a", check=False).returncode != 0
    assert len(warnings()) == 1
    assert warnings()[0]["reason"] == "OwnershipRefused"
    # The others are served all the while.
    for url in ("http://tiny.team-a.svc/v1/models", "http://small.team-b.svc:8080/v1/models"):
        client(f"curl -sS --fail -m 30 {url}")
    # Said once: a second run with the same finding is silent.
    assert site("-e", f"@{somebodys_service}", "--limit", "cluster").returncode != 0
    assert len(warnings()) == 1 and warnings()[0].get("count", 1) == 1
