# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A converge asks first: what is as declared is left alone, and each kind of drift is found."""

from __future__ import annotations

import json

import pytest
from bed import bed, site, ssh

# One drift for each part that a survey looks at: what is done to the host, and what is said of it.
DRIFTS = [
    ("chmod 0777 /etc/tether/ingress", "directories", "update directory /etc/tether/ingress"),
    ("usermod --comment other tether-ingress", "accounts", "update account tether-ingress"),
    ("nft delete table inet tether", "firewall", "load table inet tether"),
    ("chmod 0700 /opt/tether/caddy/current/caddy", "artifact", "caddy"),
    ("chmod 0666 /var/lib/tether/models/team-b/*/small.gguf", "model_store", "small.gguf"),
    ("rm /etc/tether/identity/request.csr", "identity", "request.csr"),
    ("systemctl stop tether-engine-team-b.small", "engine", "tether-engine-team-b.small"),
    ("chmod 0444 /etc/tether/ingress/tokens/team-a/current", "ingress_files", "team-a/current"),
    ("echo '# other' >> /etc/tether/ingress/Caddyfile", "ingress_files", "ingress/Caddyfile"),
    ("systemctl disable tether-ingress", "ingress", "enable unit tether-ingress"),
]


def run(tmp_path, *arguments):
    """(host, task) -> row of a run that has to succeed."""
    record = tmp_path / "record"
    done = site(*arguments, record=str(record))
    assert done.returncode == 0, done.stdout
    kind = "check" if "--check" in arguments else "run"
    newest = max(tmp_path.glob(f"record.{kind}.*.json"), key=lambda path: path.stat().st_mtime_ns)
    return json.loads(newest.read_text())


def differences(rows):
    """host -> part -> what differs, as the survey said it; what does not differ is left out."""
    return {
        row["host"]: {part: said for part, said in row["differences"].items() if said}
        for row in rows
        if "Ask the host" in row["task"] and row["differences"]
    }


def test_a_fleet_as_declared_is_asked_and_left_alone(tmp_path):
    rows = run(tmp_path)
    assert differences(rows) == {"gpu1": {}, "gpu2": {}}
    roles = {row["task"].split(" : ")[0] for row in rows if row["host"] in ("gpu1", "gpu2")}
    assert roles == {"tether.fleet.validate", "tether.fleet.survey"}


def test_every_role_says_the_same(tmp_path):
    """The survey is right that nothing differs: without trust in it all roles run, and agree."""
    rows = run(tmp_path, "-e", "survey_trust=false")
    ran = {row["task"].split(" : ")[0] for row in rows}
    assert {"tether.fleet.engine", "tether.fleet.firewall", "tether.fleet.ingress"} <= ran
    assert [row for row in rows if row["changed"]] == []


@pytest.fixture
def drifted():
    """gpu1 with every drift, and without its record; gpu2 as it was."""
    for command, _role, _what in DRIFTS:
        ssh("gpu1", command)
    bed("kubectl", "delete", "configmap", "host-gpu1", "-n", "tether-fleet")


def test_each_drift_is_found_and_mended(drifted, tmp_path):
    checked = run(tmp_path, "--check")
    said = differences(checked)
    assert said["gpu2"] == {}
    for _command, part, what in DRIFTS:
        assert what in said["gpu1"].get(part, ""), (part, said["gpu1"])
    done = run(tmp_path)
    changed = [
        [(row["host"], row["task"], row["changes"]) for row in rows if row["changed"]]
        for rows in (checked, done)
    ]
    assert changed[0] == changed[1], "a check says what the run does"
    assert {host for host, _task, _changes in changed[1]} == {"gpu1"}
    assert differences(run(tmp_path)) == {"gpu1": {}, "gpu2": {}}


def test_a_token_and_a_record_that_somebody_changed_are_put_back(tmp_path):
    """What only the cluster can tell: the host itself finds nothing wrong."""
    ssh("gpu1", "echo other >> /etc/tether/ingress/tokens/team-a/current")
    bed("kubectl", "delete", "configmap", "host-gpu2", "-n", "tether-fleet")
    rows = run(tmp_path)
    assert differences(rows) == {"gpu1": {}, "gpu2": {}}
    changes = [change["name"] for row in rows for change in row["changes"]]
    assert changes == ["/etc/tether/ingress/tokens/team-a/current", "tether-fleet/host-gpu2"]
