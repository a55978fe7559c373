# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hosts that are taken out of service and put back, with requests going on (N5)."""

from __future__ import annotations

import json
import threading
from collections import Counter

import pytest
from bed import client, get, playbook, site, ssh

ASK = json.dumps({"max_tokens": 2, "messages": [{"role": "user", "content": "hello"}]})
# Asks one after the other, each on a connection of its own, until it is told to stop.
LOOP = f"""
rm -f /tmp/stop
for number in $(seq 1 3000); do
    [ -e /tmp/stop ] && break
    curl -s -o /dev/null -m 60 -w '%{{http_code}}\\n' http://tiny.team-a.svc/v1/chat/completions \
        -H 'Content-Type: application/json' -d '{ASK}'
done
"""
# Nothing but relays has a connection to the ingress that is not from the machine itself.
CONNECTED = "ss -Htn state established '( sport = :9443 )' | grep -v 127.0.0.1 || true"


class Requests:
    """Requests of the client pod that go on beside a test; ``statuses`` counts their answers."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        self.statuses.update(client(LOOP, timeout=600).stdout.split())

    def __enter__(self) -> Requests:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        client("touch /tmp/stop")
        self.thread.join()


@pytest.fixture
def undrained():
    yield
    assert playbook("undrain", "-e", "drain_hosts=fleet_hosts").returncode == 0


def mark(host):
    notes = get("configmap", f"host-{host}", "-n", "tether-fleet")["metadata"].get("annotations")
    return (notes or {}).get("tether.fleet/draining")


def test_a_drained_host_can_be_stopped_without_anybody_noticing(undrained):
    assert ssh("gpu1", CONNECTED).stdout
    with Requests() as requests:
        done = playbook("drain", "-e", "drain_hosts=gpu1")
        assert done.returncode == 0, done.stdout
        assert mark("gpu1") and not mark("gpu2")
        assert ssh("gpu1", CONNECTED).stdout == ""
        ssh("gpu1", "systemctl stop tether-ingress tether-engine-team-a.tiny")
        again = playbook("drain", "-e", "drain_hosts=gpu1")
        assert "changed=1" not in again.stdout
        # Another run leaves it out, and says so.
        site_run = site()
        assert site_run.returncode == 0, site_run.stdout
        assert "host gpu1 is draining since" in " ".join(site_run.stderr.split())
        assert ssh("gpu1", CONNECTED).stdout == ""
        done = playbook("undrain", "-e", "drain_hosts=gpu1")
        assert done.returncode == 0, done.stdout
        assert not mark("gpu1")
    assert set(requests.statuses) == {"200"}
    assert requests.statuses["200"] > 50
    # Its health checks are back.
    assert ssh("gpu1", CONNECTED).stdout


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("drain", (), "drain_hosts: found that it is not defined"),
        ("drain", ("-e", "drain_hosts=gpu1", "--limit", "cluster"), "--limit: found cluster"),
        ("undrain", ("-e", "drain_hosts=gpu1,gpu9"), "found gpu9, no machine of the fleet"),
    ],
)
def test_hosts_that_are_not_named_rightly(name, options, told):
    done = playbook(name, *options)
    assert done.returncode != 0
    assert told in " ".join(done.stdout.split()).replace('\\"', '"')
    assert not mark("gpu1")
