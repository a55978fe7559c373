# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check mode and second runs (U4): what a check says is what the run does, and then nothing."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from bed import (
    ROOT,
    STATE,
    audit_size,
    bed,
    client,
    declared_models,
    get,
    requests_since,
    site,
    ssh,
    writes,
)


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
    offset = audit_size()
    assert site().returncode == 0
    ours = requests_since(offset)
    assert ours, "the run did read the cluster"
    assert writes(ours) == []


@pytest.mark.parametrize("limit", ["gpu1", "cluster"])
def test_limit(limit):
    done = site("--limit", limit)
    assert done.returncode == 0, done.stdout
    assert not re.search(r"changed=[1-9]", done.stdout)


def test_names_ports_and_addresses_survive_a_change(tmp_path):
    """A change of a model's relays keeps the Service that clients know (N1)."""
    before = get("service", "small", "-n", "team-b")["spec"]
    models = declared_models()
    next(model for model in models if model["name"] == "small")["replicas"] = 2
    variables = tmp_path / "models.yml"
    variables.write_text(yaml.safe_dump({"fleet_models": models}))
    assert site("--limit", "cluster", "-e", f"@{variables}").returncode == 0
    assert get("deployment", "small-relay", "-n", "team-b")["spec"]["replicas"] == 2
    after = get("service", "small", "-n", "team-b")["spec"]
    assert (before["clusterIP"], before["ports"]) == (after["clusterIP"], after["ports"])
    client("curl -sS --fail -m 30 http://small.team-b.svc:8080/v1/models")
    assert site("--limit", "cluster").returncode == 0
    assert get("deployment", "small-relay", "-n", "team-b")["spec"]["replicas"] == 1


def test_the_inventory_alone_is_checked_without_a_connection():
    done = site("--tags", "validate", "-e", "ansible_port=1")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("tag", ["firewall", "ingress", "registration", "relay", "probe"])
def test_one_role_alone(tag):
    done = site("--tags", tag)
    assert done.returncode == 0, done.stdout
    assert not re.search(r"changed=[1-9]", done.stdout)


def test_the_documented_rights_are_enough(tmp_path):
    """docs/cluster-rights.yml, for an account that has nothing else."""
    bed("kubectl", "apply", "-f", str(ROOT / "docs" / "cluster-rights.yml"))
    bed("kubectl", "create", "serviceaccount", "fleet-owner", "-n", "default")
    account = "--serviceaccount=default:fleet-owner"
    bed(
        "kubectl",
        "create",
        "clusterrolebinding",
        "fleet-owner",
        "--clusterrole=tether-fleet",
        account,
    )
    try:
        config = yaml.safe_load((STATE / "kubeconfig").read_text())
        bearer = bed("kubectl", "create", "token", "fleet-owner", "-n", "default").stdout.strip()
        for user in config["users"]:
            user["user"] = {"token": bearer}
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(config))
        kubeconfig.chmod(0o600)
        bed("kubectl", "delete", "poddisruptionbudget", "tiny-relay", "-n", "team-a")
        done = site("--limit", "cluster", "-e", f"fleet_kubeconfig={kubeconfig}")
        assert done.returncode == 0, done.stdout
        get("poddisruptionbudget", "tiny-relay", "-n", "team-a")
    finally:
        bed("kubectl", "delete", "clusterrolebinding", "fleet-owner")
        bed("kubectl", "delete", "serviceaccount", "fleet-owner", "-n", "default")
        bed("kubectl", "delete", "clusterrole", "tether-fleet")


def test_a_renewed_certificate_waits_for_the_relays():
    """Limited to the host, the former one goes on serving; a whole run then puts it in use (P1)."""

    def serial():
        return ssh("gpu2", "openssl x509 -serial -noout -in /etc/tether/identity/host.crt").stdout

    first = serial()
    done = site("--limit", "gpu2", "-e", "identity_renew_fraction=0.999999")
    assert done.returncode == 0, done.stdout
    assert serial() == first
    assert "A renewed certificate waits on this host" in done.stdout
    client("curl -sS --fail -m 30 http://lone.team-b.svc/v1/models")
    assert site().returncode == 0
    assert serial() != first
    client("curl -sS --fail --retry 5 --retry-all-errors -m 30 http://lone.team-b.svc/v1/models")
    record = get("configmap", "host-gpu2", "-n", "tether-fleet")["data"]["record.json"]
    assert len(json.loads(record)["certificates"]) == 1
    assert not re.search(r"changed=[1-9]", site("--check").stdout)
