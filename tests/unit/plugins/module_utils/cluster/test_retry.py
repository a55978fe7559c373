# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A failure that is older than the run is tried again before it counts."""

from __future__ import annotations

import datetime
import time
from types import SimpleNamespace
from typing import Any, Dict, List, Optional

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    client,
    labels,
    retry,
    wait,
)

BEGAN = datetime.datetime(2026, 1, 1, 12, 0, 0, tzinfo=datetime.UTC)
BEFORE, AFTER = "2026-01-01T11:59:59Z", "2026-01-01T12:00:00Z"
MODEL = ("a", "tiny")


def deployment(refused: Optional[str] = None, available: int = 0) -> Dict[str, Any]:
    conditions = [
        {
            "type": "ReplicaFailure",
            "status": "True",
            "message": "exceeded quota: small",
            "lastTransitionTime": refused,
        }
    ]
    return {
        "metadata": {
            "name": "tiny-relay",
            "namespace": "a",
            "uid": "d",
            "generation": 1,
            "labels": {labels.MODEL: "tiny"},
        },
        "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "envoy"}]}}},
        "status": {
            "observedGeneration": 1,
            "replicas": available,
            "updatedReplicas": available,
            "availableReplicas": available,
            "conditions": conditions if refused else [],
        },
    }


def pod(made: str, owner: str = "tiny-relay-5d4f", reason: str = "ErrImagePull") -> Dict[str, Any]:
    owners = [{"kind": "ReplicaSet", "name": owner, "controller": True}]
    return {
        "metadata": {
            "name": "tiny-relay-5d4f-" + made[17:19],
            "namespace": "a",
            "uid": "pod of " + made,
            "creationTimestamp": made,
            "labels": {labels.MODEL: "tiny"},
            "ownerReferences": owners if owner else [],
        },
        "spec": {"containers": [{"name": "envoy"}]},
        "status": {"containerStatuses": [{"state": {"waiting": {"reason": reason}}}]},
    }


class Cluster:
    """What a wait asks of an API server; a deleted pod is followed by the next one given."""

    def __init__(
        self,
        item: Dict[str, Any],
        pods: List[Dict[str, Any]],
        following: Optional[Dict[str, Any]] = None,
        forbidden: bool = False,
        mended: bool = False,
    ) -> None:
        self.item, self.pods, self.following = item, pods, following
        self.forbidden, self.mended = forbidden, mended
        self.asked: List[str] = []
        self.looks = 0

    def began(self) -> datetime.datetime:
        return BEGAN

    def now(self) -> datetime.datetime:
        return BEGAN

    def list(self, kind: str, selector: str) -> List[Dict[str, Any]]:
        self.looks += 1
        assert selector.endswith("component=relay")
        return [self.item] if kind == "Deployment" else list(self.pods)

    def logs(self, *_which: Any, **_more: Any) -> str:
        return ""

    def last_warning(self, *_which: Any) -> str:
        return ""

    def _ask(self, verb: str, kind: str, name: str) -> None:
        self.asked.append("%s %s" % (verb, name))
        if self.forbidden:
            raise client.refusal_of(403, "{}", verb, kind, "a", name)
        if self.mended:
            self.item, self.pods = deployment(available=1), []

    def delete(self, kind: str, _place: str, name: str, uid: str) -> None:
        self._ask("delete", kind, name)
        self.pods = [one for one in self.pods if one["metadata"]["uid"] != uid]
        self.pods += [self.following] if self.following else []

    def merge(self, kind: str, _place: str, name: str, body: Dict[str, Any], manager: str) -> None:
        assert list(body) == ["metadata"], "a change of the template would be a roll out"
        assert manager != labels.MANAGER, "the next plan would find a field that nobody wants"
        self._ask("patch", kind, name)


def run(cluster: Any, timeout: float = 0.3) -> Optional[str]:
    return wait.wait(cluster, "demo", [MODEL], timeout, pause=0.02)[MODEL]


@pytest.mark.parametrize(("made", "asked"), [(BEFORE, ["delete tiny-relay-5d4f-59"]), (AFTER, [])])
def test_a_pod_that_fails_in_this_run_is_final(made: str, asked: List[str]) -> None:
    cluster = Cluster(deployment(), [pod(made)], pod(AFTER))
    found = run(cluster, timeout=30)
    assert found is not None and "pod tiny-relay-5d4f-00: ErrImagePull" in found
    assert cluster.asked == asked
    assert cluster.looks < 10, "it does not wait to the end of its time"


def test_a_mended_cause_is_tried_at_once() -> None:
    for item, pods in ((deployment(), [pod(BEFORE)]), (deployment(refused=BEFORE), [])):
        cluster = Cluster(item, pods, mended=True)
        assert run(cluster, timeout=30) is None
        assert len(cluster.asked) == 1


def test_without_the_right_the_wait_goes_on_to_its_end() -> None:
    for item, pods, text in (
        (deployment(), [pod(BEFORE)], "ErrImagePull"),
        (deployment(refused=BEFORE), [], "quota"),
    ):
        cluster = Cluster(item, pods, forbidden=True)
        began = time.monotonic()
        found = run(cluster)
        assert time.monotonic() - began >= 0.3
        assert found is not None and text in found
        assert len(cluster.asked) == 1


def test_a_look_without_waiting_asks_for_nothing() -> None:
    cluster = Cluster(deployment(refused=BEFORE), [pod(BEFORE)])
    found = run(cluster, timeout=0)
    assert found is not None and "quota" in found
    assert cluster.asked == []


def test_pods_refused_in_this_run_are_final() -> None:
    cluster = Cluster(deployment(refused=AFTER), [])
    found = run(cluster, timeout=30)
    assert found is not None and "its pods are refused (exceeded quota: small)" in found
    assert cluster.asked == []


def test_pods_that_stay_refused_are_final_after_a_while() -> None:
    cluster: Any = Cluster(deployment(refused=BEFORE), [])
    again = retry.Retry(cluster, patience=0.1)
    assert again.awaits_pods(cluster.item)
    time.sleep(0.11)
    assert not again.awaits_pods(cluster.item)
    assert cluster.asked == ["patch tiny-relay"]


@pytest.mark.parametrize("owner", ["", "other-relay-5d4f"])
def test_a_pod_that_nobody_would_make_anew_stays(owner: str) -> None:
    cluster = Cluster(deployment(), [pod(BEFORE, owner)])
    found = run(cluster, timeout=30)
    assert found is not None and "ErrImagePull" in found
    assert cluster.asked == []


def test_what_has_no_time_is_judged_as_it_is() -> None:
    assert not retry.refused_before(deployment(), BEGAN)
    assert not retry.refused_before(None, BEGAN)
    assert not retry.made_before(pod(BEFORE), None, BEGAN)
    undated = pod(BEFORE)
    del undated["metadata"]["creationTimestamp"]
    assert not retry.made_before(undated, deployment(), BEGAN)


def test_the_run_began_by_the_servers_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    connected = SimpleNamespace(configuration=SimpleNamespace(host="https://x"))
    monkeypatch.setattr(client, "_connect", lambda *_access: connected)
    before = time.monotonic()
    one = client.Client(None)  # type: ignore[arg-type]
    time.sleep(0.05)
    one._note_time({"date": "Thu, 01 Jan 2026 12:00:30 GMT"})
    stamp = datetime.datetime(2026, 1, 1, 12, 0, 30, tzinfo=datetime.UTC)
    # What went by between the two is not known here; a whole second is taken off besides.
    passed = datetime.timedelta(seconds=time.monotonic() - before + 1)
    assert stamp - passed <= one.began() < stamp <= one.now()
    assert one.began().microsecond == 0
