# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What belongs to somebody else stays as it is (G1), and one failure costs nobody else (N13)."""

from __future__ import annotations

import hashlib
import json

import pytest
import yaml
from bed import client, declared_models, get, kubectl, site, ssh

TAKEN = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "taken", "namespace": "team-a", "labels": {"app": "billing"}},
    "spec": {"selector": {"app": "billing"}, "ports": [{"port": 80, "targetPort": 8080}]},
}


@pytest.fixture
def a_bad_day(tmp_path):
    """Two more models: one whose Service is somebody else's, one whose file is no model."""
    kubectl("apply", "-f", "-", text_in=json.dumps(TAKEN))
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"this is no model")
    models = declared_models()
    taken = dict(models[0], name="taken", replicas=1, hosts=["gpu1"])
    entry = {
        "name": broken.name,
        "source": str(broken),
        "sha256": hashlib.sha256(broken.read_bytes()).hexdigest(),
    }
    dead = dict(models[0], name="dead", replicas=1, hosts=["gpu2"], files=[entry])
    variables = tmp_path / "models.yml"
    variables.write_text(yaml.safe_dump({"fleet_models": [*models, taken, dead]}))
    yield str(variables)
    kubectl("delete", "service", "taken", "-n", "team-a")
    for host, model in (("gpu1", "taken"), ("gpu2", "dead")):
        # Removal is another playbook's task; here the bed is put back by hand.
        unit = f"tether-engine-team-a.{model}.service"
        ssh(host, f"systemctl disable --now {unit}; rm /etc/systemd/system/{unit}")
    assert site("-e", "relay_prune=true").returncode == 0


def warnings():
    events = get("events", "-n", "team-a")["items"]
    return [
        event
        for event in events
        if event["type"] == "Warning" and event["involvedObject"]["name"] == "taken"
    ]


def test_what_fails_costs_nobody_else(a_bad_day):
    before = get("service", "taken", "-n", "team-a")
    done = site("-e", f"@{a_bad_day}")
    assert done.returncode != 0, done.stdout
    # The model whose Service is somebody else's: untouched, named, and one event.
    assert "team-a/taken" in done.stdout
    assert get("service", "taken", "-n", "team-a") == before
    assert kubectl("get", "deployment", "taken-relay", "-n", "team-a", check=False).returncode != 0
    assert len(warnings()) == 1
    assert warnings()[0]["reason"] == "OwnershipRefused"
    # The engine that cannot start: its own last lines.
    assert "tether-engine-team-a.dead" in done.stdout
    assert "failed to load model" in done.stdout
    # The others are served all the while, on the same hosts too.
    for url in ("http://tiny.team-a.svc", "http://small.team-b.svc:8080", "http://lone.team-b.svc"):
        client(f"curl -sS --fail -m 30 {url}/v1/models")
    # Said once: a second run with the same finding is silent.
    assert site("-e", f"@{a_bad_day}", "--limit", "cluster").returncode != 0
    assert len(warnings()) == 1 and warnings()[0].get("count", 1) == 1
