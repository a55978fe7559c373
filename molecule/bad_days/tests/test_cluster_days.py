# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bad days of the cluster, for a fleet that is served: what is said, and that it goes on."""

from __future__ import annotations

import base64
import json
import subprocess
import sys

import pytest
import yaml
from bed import ROOT, STATE, get, kubectl, run
from days import Day, eventually, served

TEAMS = (("steady", "steady"), ("counted", "quota"), ("crowded", "crowd"), ("ruled", "rules"))
ACCOUNT = "system:serviceaccount:default:fleet-owner"


def kubeconfig(path, user=None, server=None):
    """The bed's kubeconfig with another user or another server."""
    config = yaml.safe_load((STATE / "kubeconfig").read_text())
    if user:
        config["users"][0]["user"] = user
    if server:
        config["clusters"][0]["cluster"]["server"] = server
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return f"fleet_kubeconfig={path}"


def test_no_api_server(tmp_path):
    """Known before the first change of a host, and said in one line."""
    server = f"https://10.99.{json.loads((STATE / 'bed.json').read_text())['number']}.1:1"
    day = Day("-e", kubeconfig(tmp_path / "kubeconfig", server=server))
    assert day.status != 0
    day.says(
        f"the Kubernetes API at {server}: found connection refused", "See whether the API server"
    )
    assert all(day.row(host)["changed"] == 0 for host in ("gpu1", "gpu2", "gpu3", "gpu4"))


def test_credentials_that_have_ended(tmp_path):
    """A client certificate that the cluster's own CA signed, whose time is over."""
    key, request, leaf = (tmp_path / name for name in ("key", "request", "leaf"))
    subject = ("-subj", "/O=system:masters/CN=former-admin")
    run("openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc",
        "-keyout", str(key), "-out", str(request), *subject)  # fmt: skip
    pki = STATE / "pki"
    run("openssl", "x509", "-req", "-in", str(request), "-CA", str(pki / "ca.crt"), "-CAkey",
        str(pki / "ca.key"), "-set_serial", "77", "-days", "-1", "-out", str(leaf))  # fmt: skip
    user = {
        "client-certificate-data": base64.b64encode(leaf.read_bytes()).decode(),
        "client-key-data": base64.b64encode(key.read_bytes()).decode(),
    }
    day = Day("--limit", "cluster", "-e", kubeconfig(tmp_path / "kubeconfig", user=user))
    assert day.status != 0
    day.says(
        "found the client certificate, which ended at", "Renew the credentials in the kubeconfig"
    )


@pytest.fixture(scope="module")
def poor_day(tmp_path_factory):
    """One run with three bad days: an account without one verb, a namespace that is gone and may
    not be made, and a Service whose port somebody edited."""
    rights = list(yaml.safe_load_all((ROOT / "docs" / "cluster-rights.yml").read_text()))
    for rule in rights[0]["rules"]:
        if rule["resources"] == ["poddisruptionbudgets"]:
            rule["verbs"].remove("create")
    kubectl("apply", "-f", "-", text_in=yaml.safe_dump_all(rights))
    kubectl("create", "serviceaccount", "fleet-owner", "-n", "default")
    kubectl("create", "clusterrolebinding", "fleet-owner", "--clusterrole=tether-fleet",
            "--serviceaccount=default:fleet-owner")  # fmt: skip
    bearer = kubectl("create", "token", "fleet-owner", "-n", "default").stdout.strip()
    kubectl("delete", "poddisruptionbudget", "steady-relay", "-n", "steady")
    kubectl("delete", "namespace", "quota", "--timeout=90s")
    edit = [{"op": "replace", "path": "/spec/ports/0/port", "value": 81}]
    kubectl("patch", "service", "crowded", "-n", "crowd", "--type=json",
            "--field-manager=kubectl-edit", "-p", json.dumps(edit))  # fmt: skip
    config = kubeconfig(tmp_path_factory.mktemp("poor") / "kubeconfig", user={"token": bearer})
    yield Day("--limit", "cluster", "-e", config, "-e", '{"fleet_create_namespaces": false}')
    kubectl("delete", "clusterrolebinding", "fleet-owner")
    kubectl("delete", "serviceaccount", "fleet-owner", "-n", "default")
    kubectl("delete", "clusterrole", "tether-fleet")


def test_one_verb_is_missing(poor_day):
    assert poor_day.status != 0
    poor_day.says(
        "steady/steady (refused): create poddisruptionbudgets in namespace steady",
        f"Grant that verb on that resource to {ACCOUNT}",
    )
    assert served("steady", "steady")  # its relays stay as they were


def test_a_namespace_is_missing(poor_day):
    poor_day.says("quota/counted (refused): namespace quota does not exist",
                  "set fleet_create_namespaces: true")  # fmt: skip


def test_a_port_that_somebody_edited_is_mended(poor_day):
    ports = get("service", "crowded", "-n", "crowd")["spec"]["ports"]
    assert [port["port"] for port in ports] == [80, 9464]
    assert "crowd/crowded (" not in poor_day.text
    assert served("crowded", "crowd")


def test_a_relay_image_that_is_not_there():
    absent = "tether.bed/envoy@sha256:" + "0" * 64
    day = Day("--limit", "cluster", "-e", f"relay_image={absent}")
    assert day.status != 0
    day.says("steady/steady (waiting)", "ErrImage", absent, "Check relay_image")
    assert served("steady", "steady")  # the former relays go on


# An image whose Envoy says why it will not run, and ends.
BROKEN = """
import sys
from pathlib import Path
from bed import cluster, images, layout
from bed.commands import run
def content():
    made = images.Content()
    made.add("bin/sh", Path("/bin/busybox"), 0o755)
    script = b"#!/bin/sh\\necho illegal instruction: this processor is too old\\nexit 1\\n"
    made.add("usr/local/bin/envoy", script, 0o755)
    return made
image = images.Image("tether.bed/broken:1", entrypoint=(), inputs=lambda: ["1"], content=content)
image.ensure()
ctr = cluster._ctr_command(layout.get(sys.argv[1]))
run([*ctr, "images", "import", image.archive])
run([*ctr, "images", "tag", "--force", image.name, image.pinned])
print(image.pinned)
"""


def test_a_relay_that_cannot_start():
    """Its reason, and its own last lines."""
    made = subprocess.run([sys.executable, "-c", BROKEN, "baddays"], cwd=ROOT / "tests" / "testbed",
                          capture_output=True, text=True, check=True)  # fmt: skip
    day = Day("--limit", "cluster", "-e", f"relay_image={made.stdout.strip()}")
    assert day.status != 0
    day.says("steady/steady (waiting)", "CrashLoopBackOff: exit status 1 (Error)",
             "Its last lines: illegal instruction: this processor is too old")  # fmt: skip
    assert served("steady", "steady")


def test_the_next_good_run_finishes_the_job():
    assert Day("--limit", "cluster").status == 0
    for model, place in TEAMS:
        eventually(lambda model=model, place=place: served(model, place))
    again = Day("--limit", "cluster")
    assert (again.status, again.row("cluster")["changed"]) == (0, 0)
