# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bad days of a fleet's records and events, against a real API server; no pod has to run."""

from __future__ import annotations

import json
import pathlib
import re
import shlex
import sys

import pytest
import yaml

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cluster_api as api
from test_cluster_modules import foreign_service, namespace, prepare, record, relay

pytestmark = [api.NEEDS_CLUSTER, pytest.mark.usefixtures("world")]

RIGHTS = pathlib.Path(__file__).parents[2] / "docs" / "cluster-rights.yml"


def test_a_record_whose_labels_were_taken_costs_no_other_host() -> None:
    prepare(record("gpu1"))
    taken = ("label", "configmap", "host-gpu1", "-n", api.FLEET_NAMESPACE, "tether.fleet/fleet-")
    api.kubectl(*taken)
    both = [record("gpu1", "10.9.0.99"), record("gpu2")]
    predicted = api.run("registration", check=True, records=both)
    made = api.run("registration", records=both)
    assert made.failed and predicted.failed
    assert made.changes == predicted.changes == ["create ConfigMap it-fleet/host-gpu2"]
    assert "1 of 2 hosts could not be registered, the others are." in made["msg"]
    before = api.get("configmap", "host-gpu1", api.FLEET_NAMESPACE) or {}
    assert "10.9.0.99" not in before["data"]["record.json"]
    # What the message says to do is enough.
    command = re.search(r"kubectl (label configmap .*?)\. Else", made["msg"])
    assert command, made["msg"]
    api.kubectl(*shlex.split(command[1]))
    mended = api.run("registration", records=both)
    assert not mended.failed
    assert mended.changes == ["update ConfigMap it-fleet/host-gpu1"]


def test_an_event_that_could_not_be_sent_is_sent_by_the_next_run() -> None:
    prepare()
    api.apply(namespace("it-a"), foreign_service())
    user = "poor%d" % api._serial[0]
    role = yaml.safe_load(RIGHTS.read_text())
    role["metadata"]["name"] = user
    role["rules"] = [rule for rule in role["rules"] if rule["resources"] != ["events"]]
    api.kubectl("apply", "-f", "-", stdin=json.dumps(role))
    api.kubectl("create", "clusterrolebinding", user, "--clusterrole", user, "--user", user)
    try:
        first = relay(impersonate_user=user)
    finally:
        api.kubectl("delete", "clusterrolebinding,clusterrole", user)
    assert first["models"]["it-a/tiny"]["state"] == "refused"
    assert "create events in namespace it-a" in json.dumps(first["warnings"])
    assert not told()
    second = relay()
    assert "create Event OwnershipRefused on Service it-a/tiny" in second.changes
    assert told()
    assert relay().writes == 0


def told() -> bool:
    events = json.loads(api.kubectl("get", "events", "-n", "it-a", "-o", "json"))["items"]
    return any(item["reason"] == "OwnershipRefused" for item in events)
