# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hosts that are taken out of service and put back, with requests going on (N5)."""

from __future__ import annotations

import json
import re

import pytest
from bed import client, declared_models, get, kubectl, playbook, site, ssh
from going_on import Requests

# Nothing but relays has a connection to the ingress that is not from the machine itself.
CONNECTED = "ss -Htn state established '( sport = :9443 )' | grep -v 127.0.0.1 || true"


@pytest.fixture
def undrained():
    """Whatever a test leaves behind."""
    yield
    if mark("gpu1") or mark("gpu2"):
        assert playbook("undrain", "-e", "drain_hosts=fleet_hosts").returncode == 0


def mark(host):
    notes = get("configmap", f"host-{host}", "-n", "tether-fleet")["metadata"].get("annotations")
    return (notes or {}).get("tether.fleet/draining")


def test_a_drained_host_can_be_stopped_without_anybody_noticing(undrained):
    assert ssh("gpu1", CONNECTED).stdout
    with Requests() as requests:
        requests.go_on()
        done = playbook("drain", "-e", "drain_hosts=gpu1")
        assert done.returncode == 0, done.stdout
        assert mark("gpu1") and not mark("gpu2")
        told = " ".join(done.stdout.split())
        assert "team-b/small: no host is left to serve." in " ".join(done.stderr.split())
        assert "Drained: gpu1. Nobody is connected" in told
        assert re.search(r"^gpu1 +draining$", done.stdout, re.MULTILINE)
        assert ssh("gpu1", CONNECTED).stdout == ""
        ssh("gpu1", "systemctl stop tether-ingress tether-engine-team-a.tiny")
        again = playbook("drain", "-e", "drain_hosts=gpu1")
        assert again.returncode == 0, again.stdout
        assert set(re.findall(r"changed=(\d+)", again.stdout)) == {"0"}
        requests.go_on()
        # Another run leaves it out, and says so.
        site_run = site()
        assert site_run.returncode == 0, site_run.stdout
        assert "host gpu1 is draining since" in " ".join(site_run.stderr.split())
        assert ssh("gpu1", CONNECTED).stdout == ""
        done = playbook("undrain", "-e", "drain_hosts=gpu1")
        assert done.returncode == 0, done.stdout
        assert not mark("gpu1")
        assert re.search(r"^gpu1 +serving$", done.stdout, re.MULTILINE)
        requests.go_on()
    assert set(requests.statuses) == {"200"}
    # Its health checks are back.
    assert ssh("gpu1", CONNECTED).stdout


PROCESS = "systemctl show --property MainPID --value tether-engine-team-a.tiny"
DROP_IN = "/run/systemd/system/tether-engine-team-a.tiny.service.d"


def test_a_restart_is_drained_and_what_fails_stops_the_rest(undrained):
    """A change restarts one engine on two hosts. The first one's does not come back: the second is
    not touched, so that the model is still served; the next run mends the first. A mark that a
    killed run left is gone then too."""
    models = declared_models()
    (tiny,) = [model for model in models if model["name"] == "tiny"]
    tiny["args"] = ["--ctx-size", "512", "--threads", "2"]
    former = {host: ssh(host, PROCESS).stdout for host in ("gpu1", "gpu2")}
    ssh(
        "gpu1",
        f"mkdir -p {DROP_IN}; printf '[Service]\\nExecStartPre=/bin/false\\n' >{DROP_IN}/no.conf; "
        "systemctl daemon-reload",
    )
    try:
        with Requests() as requests:
            requests.go_on()
            done = site("-e", json.dumps({"fleet_models": models}))
            told = " ".join(done.stdout.split())
            assert done.returncode != 0
            daemon = "tether-engine-team-a.tiny"
            assert f"gpu2: nothing is restarted there, because {daemon} failed." in told
            assert ssh("gpu2", PROCESS).stdout == former["gpu2"]
            assert not mark("gpu1") and not mark("gpu2")
            requests.go_on()
            ssh("gpu1", f"rm -r {DROP_IN}; systemctl daemon-reload")
            left = "tether.fleet/draining=2026-01-01T00:00:00Z for a restart"
            kubectl("annotate", "configmap", "host-gpu2", "-n", "tether-fleet", left)
            done = site()
            assert done.returncode == 0, done.stdout
            assert not mark("gpu1") and not mark("gpu2")
            requests.go_on()
    finally:
        ssh("gpu1", f"rm -rf {DROP_IN}; systemctl daemon-reload")
    assert set(requests.statuses) == {"200"}
    assert ssh("gpu1", PROCESS).stdout not in (former["gpu1"], "0\n")
    assert ssh("gpu1", CONNECTED).stdout and ssh("gpu2", CONNECTED).stdout


def test_a_model_without_another_host_is_no_failure_while_it_drains(undrained):
    """Its relays are not ready after five seconds (relay_host_wait here), and need not be. Without
    the list of its hosts they cannot be told of the drain alone; the role relay does it then."""
    listed = ("secret", "lone-relay", "-n", "team-b")
    kubectl("annotate", *listed, "tether.fleet/hosts-")
    drain = playbook("drain", "-e", "drain_hosts=gpu2")
    assert drain.returncode == 0, drain.stdout
    assert "endpoints of team-b/lone: found no list" in " ".join(drain.stderr.split())
    assert "Drained: gpu2." in " ".join(drain.stdout.split())
    assert "tether.fleet/hosts" in get(*listed)["metadata"]["annotations"]
    ask = "curl -s -o /dev/null -m 30 -w '%{http_code}' http://lone.team-b.svc/v1/models"
    for _look in range(60):
        if client(ask, check=False).stdout == "000":
            break
    assert client(ask, check=False).stdout == "000", "the Service refuses at once"
    done = site()
    assert done.returncode == 0, done.stdout
    assert playbook("undrain", "-e", "drain_hosts=gpu2").returncode == 0
    # The node may need a moment to learn that the relay is ready.
    assert client(ask.replace("curl", "curl --retry 20 --retry-connrefused")).stdout == "200"


def test_whatever_has_to_know_takes_part():
    done = playbook("drain", "-e", "drain_hosts=gpu1", "--limit", "cluster")
    assert done.returncode != 0
    assert "--limit: found cluster. Expected the machines" in " ".join(done.stdout.split())
    assert not mark("gpu1")
