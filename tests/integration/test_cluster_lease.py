# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The Lease against a real API server: renewed, lost, released."""

from __future__ import annotations

import json
import pathlib
import sys
import time
from typing import Iterator

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.tether.fleet.plugins.module_utils.cluster import arguments, lease
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cluster_api as api

pytestmark = api.NEEDS_CLUSTER


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    api.next_world()
    monkeypatch.setattr(lease, "RENEW_EVERY", 0.3)
    api.kubectl("create", "namespace", api.FLEET_NAMESPACE)
    with patch_module_args({"kubeconfig": api.KUBECONFIG}):
        yield Client(arguments.start({}))
    api.clean()


def make(client: Client, timeout: float = 1) -> lease.Lease:
    return lease.Lease(client, api._real(api.FLEET_NAMESPACE), "demo", timeout)


def spec() -> dict:
    found = api.get("lease", "tether-writer", api.FLEET_NAMESPACE)
    assert found is not None
    return dict(found["spec"])


def test_held_renewed_and_released(client: Client) -> None:
    with make(client) as held:
        first = spec()
        assert first["holderIdentity"] == held.holder
        time.sleep(1)
        held.check()
        assert spec()["renewTime"] > first["renewTime"]
        with pytest.raises(Refusal, match="held by %s" % held.holder), make(client):
            pass
    assert not spec().get("holderIdentity")
    with make(client) as held:
        assert spec()["holderIdentity"] == held.holder


def test_lost_to_somebody_else_stops_the_writing(client: Client) -> None:
    with make(client) as held:
        api.kubectl(
            "patch",
            "lease",
            "tether-writer",
            "-n",
            api.FLEET_NAMESPACE,
            "--type=merge",
            "-p",
            json.dumps({"spec": {"holderIdentity": "thief"}}),
        )
        time.sleep(1)
        with pytest.raises(lease.LeaseLost, match="somebody else"):
            held.check()
    # It is not ours any more, so it is not released either.
    assert spec()["holderIdentity"] == "thief"


def test_no_renewal_for_long_stops_the_writing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(client) as held:
        monkeypatch.setattr(lease, "DURATION", 0.0)
        with pytest.raises(lease.LeaseLost, match="no renewal"):
            held.check()
