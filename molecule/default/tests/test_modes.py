# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check mode and second runs (U4): what a check says is what the run does, and then nothing."""

from __future__ import annotations

import json

import pytest
from bed import STATE, bed, client, get, site


def rows(kind, number):
    return json.loads((STATE / f"record.{kind}.{number}.json").read_text())


def changed(kind, number):
    """(host, task) -> changes, for what changed."""
    return {
        (row["host"], row["task"]): row["changes"] for row in rows(kind, number) if row["changed"]
    }


def test_what_the_check_predicted_on_the_fresh_fleet_is_what_the_run_changed():
    predicted, done = changed("check", 1), changed("run", 1)
    assert predicted, "a fresh fleet has something to change"
    assert predicted == done


def test_the_second_run_changed_nothing():
    assert changed("run", 2) == {}


def test_a_check_of_the_converged_fleet_predicts_nothing(tmp_path):
    done = site("--check", record=str(tmp_path / "record"))
    assert done.returncode == 0, done.stdout
    after = json.loads((tmp_path / "record.check.1.json").read_text())
    assert [row for row in after if row["changed"]] == []


def test_a_run_without_changes_writes_nothing_to_the_cluster():
    """The API server's own audit log is the witness."""
    log = STATE / "audit.log"
    offset = log.stat().st_size
    assert site().returncode == 0
    with log.open(encoding="utf-8") as stream:
        stream.seek(offset)
        events = [json.loads(line) for line in stream if line.strip()]
    # The run comes as the administrator of the kubeconfig; kubelets and controllers go on writing.
    ours = [event for event in events if event["user"]["username"] == admin()]
    assert ours, "the run did read the cluster"
    writes = [
        (event["verb"], event["requestURI"])
        for event in ours
        if event["verb"] in ("create", "update", "patch", "delete", "deletecollection")
        # The probe's POST travels through the API server to the model: it writes nothing there.
        and event.get("objectRef", {}).get("subresource") != "proxy"
    ]
    assert writes == []


def admin():
    whoami = bed("kubectl", "auth", "whoami", "-o", "json")
    return json.loads(whoami.stdout)["status"]["userInfo"]["username"]


@pytest.mark.parametrize("limit", ["gpu1", "cluster"])
def test_limit(limit):
    done = site("--limit", limit)
    assert done.returncode == 0, done.stdout
    assert "changed=0" in done.stdout and "changed=1" not in done.stdout


def test_names_ports_and_addresses_survive_a_change():
    """A change of the relay's own settings keeps the Service that clients know (N1)."""
    before = get("service", "small", "-n", "team-b")["spec"]
    assert site("-e", "relay_wait_timeout=121").returncode == 0
    after = get("service", "small", "-n", "team-b")["spec"]
    assert (before["clusterIP"], before["ports"]) == (after["clusterIP"], after["ports"])
    client("curl -sS --fail -m 30 http://small.team-b.svc:8080/v1/models")
