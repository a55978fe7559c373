# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judgements about what the cluster answers: Leases, roll outs, errors, probes."""

from __future__ import annotations

import datetime
import json
from typing import Any, Dict, Optional

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    client,
    lease,
    ownership,
    probe,
    wait,
)

NOW = datetime.datetime(2026, 1, 1, 12, 0, 0, tzinfo=datetime.UTC)


def ago(seconds: float) -> str:
    stamp = NOW - datetime.timedelta(seconds=seconds)
    return stamp.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@pytest.mark.parametrize(
    ("spec", "free"),
    [
        ({}, True),
        ({"holderIdentity": ""}, True),
        ({"holderIdentity": "x"}, True),
        ({"holderIdentity": "x", "renewTime": ago(5), "leaseDurationSeconds": 20}, False),
        ({"holderIdentity": "x", "renewTime": ago(21), "leaseDurationSeconds": 20}, False),
        ({"holderIdentity": "x", "renewTime": ago(23), "leaseDurationSeconds": 20}, True),
        ({"holderIdentity": "x", "renewTime": ago(40), "leaseDurationSeconds": 60}, False),
        ({"holderIdentity": "x", "renewTime": ago(-500), "leaseDurationSeconds": 20}, False),
        ({"holderIdentity": "x", "acquireTime": "2026-01-01T11:59:59Z"}, False),
    ],
)
def test_when_a_lease_is_free(spec: Dict[str, Any], free: bool) -> None:
    assert lease.is_free(spec, NOW) is free


@pytest.mark.parametrize(
    "stamp", ["2026-01-01T12:00:00Z", "2026-01-01T12:00:00.0Z", "2026-01-01T12:00:00.000000000Z"]
)
def test_times(stamp: str) -> None:
    assert lease.parse_time(stamp) == NOW


def deployment(generation: int = 2, **status: int) -> Dict[str, Any]:
    full = {
        "observedGeneration": 2,
        "updatedReplicas": 2,
        "availableReplicas": 2,
        "replicas": 2,
        **status,
    }
    return {"metadata": {"generation": generation}, "spec": {"replicas": 2}, "status": full}


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (deployment(), None),
        (deployment(3), "not been looked at"),
        (deployment(updatedReplicas=1), "1 of 2 relays are updated"),
        (deployment(availableReplicas=0), "0 of 2 relays are available"),
        (deployment(replicas=3), "former version"),
        ({"metadata": {"generation": 1}, "spec": {}}, "not been looked at"),
    ],
)
def test_unfinished(item: Dict[str, Any], text: Optional[str]) -> None:
    found = wait.unfinished(item)
    assert found is None if text is None else text in str(found)


def pod(state: Dict[str, Any], **condition: str) -> Dict[str, Any]:
    return {"status": {"containerStatuses": [{"state": state}], "conditions": [condition]}}


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (pod({"running": {}}), None),
        (pod({"waiting": {"reason": "ContainerCreating"}}), None),
        (pod({"waiting": {"reason": "ErrImagePull", "message": "no"}}), "ErrImagePull: no"),
        (pod({"waiting": {"reason": "CrashLoopBackOff"}}), "CrashLoopBackOff"),
        ({}, None),
    ],
)
def test_hopeless(item: Dict[str, Any], text: Optional[str]) -> None:
    assert wait.hopeless(item) == text


def test_a_crash_is_told_by_its_exit_status() -> None:
    item = pod({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}})
    item["status"]["containerStatuses"][0]["lastState"] = {
        "terminated": {"exitCode": 137, "reason": "OOMKilled"}
    }
    assert wait.hopeless(item) == "CrashLoopBackOff: exit status 137 (OOMKilled)"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("ErrImagePull: not found", "Check relay_image"),
        ("InvalidImageName", "Check relay_image"),
        ("not scheduled: no Image cache", "Make room on the nodes"),
        ("CrashLoopBackOff: exit status 1 (Error)", ""),
    ],
)
def test_remedies_of_pods(reason: str, words: str) -> None:
    found = wait.remedy(reason)
    assert words in found if words else found == ""


def test_pods_that_the_cluster_refuses() -> None:
    item = deployment()
    assert wait.cannot_make_pods(item) is None
    assert wait.cannot_make_pods(None) is None
    item["status"]["conditions"] = [
        {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods"}
    ]
    assert wait.cannot_make_pods(item) == "exceeded quota: pods"
    item["status"]["conditions"][0]["status"] = "False"
    assert wait.cannot_make_pods(item) is None


def test_shortcoming() -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "no room"}
    assert wait.shortcoming(pod({}, **unscheduled)) == "not scheduled: no room"
    assert wait.shortcoming(pod({}, type="Ready", status="False")) == "not ready"
    assert wait.shortcoming(pod({}, type="Ready", status="True")) is None
    starting = pod({"waiting": {"reason": "ContainerCreating"}}, type="Ready", status="False")
    assert wait.shortcoming(starting) == "ContainerCreating"


def test_is_current() -> None:
    new, old = {"name": "envoy", "image": "new"}, {"name": "envoy", "image": "old"}
    item = {"spec": {"template": {"spec": {"containers": [new]}}}}
    sidecar = {"name": "sidecar", "image": "x"}
    for containers, metadata, current in (
        ([new], {}, True),
        ([sidecar, new], {}, True),
        ([old], {}, False),
        ([new], {"deletionTimestamp": "now"}, False),
    ):
        one = {"metadata": metadata, "spec": {"containers": containers}}
        assert wait.is_current(one, item) is current
        assert not wait.is_current(one, None)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "Renew the credentials"),
        (403, "the right to list secrets there"),
        (404, "create_namespaces"),
        (409, "who else writes it"),
        (422, "Correct the value"),
        (429, "less busy"),
        (500, "own log"),
    ],
)
def test_errors_name_verb_resource_and_namespace(status: int, words: str) -> None:
    text = json.dumps({"kind": "Status", "message": "no, thank you"})
    refusal = client.refusal_of(status, text, "list", "Secret", "team-a", None)
    assert refusal.status == status
    for part in ("list secrets", "in namespace team-a", "no, thank you", words):
        assert part in str(refusal)
    everywhere = client.refusal_of(status, "<html>", "list", "Secret", None, None)
    assert "in the whole cluster" in str(everywhere)


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "path"),
    [
        ("Secret", None, None, "/api/v1/secrets"),
        ("Secret", "a", "b", "/api/v1/namespaces/a/secrets/b"),
        ("Namespace", None, "b", "/api/v1/namespaces/b"),
        ("Deployment", "a", None, "/apis/apps/v1/namespaces/a/deployments"),
    ],
)
def test_paths(kind: str, namespace: Optional[str], name: Optional[str], path: str) -> None:
    assert client.path_of(kind, namespace, name) == path


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (200, {"data": []}, None),
        (200, "<html>", "without JSON"),
        (0, "timed out", "no answer in time"),
        (
            503,
            {"kind": "Status", "message": 'no endpoints available for service "x"'},
            "the API server answered 503: no endpoints",
        ),
        (
            503,
            {"error": {"message": "The relay reached no host of this model"}},
            "the relay answered 503",
        ),
        (401, {"error": {"message": "wrong token"}}, "the host answered 401: wrong token"),
        (502, "bad", "status 502: bad"),
    ],
)
def test_who_answered(status: int, body: Any, text: Optional[str]) -> None:
    found = probe.judge(status, body if isinstance(body, str) else json.dumps(body))
    assert found is None if text is None else text in str(found)


def test_first_model() -> None:
    assert probe.first_model('{"data": [{"id": "other"}]}', "tiny") == "other"
    for text in ("", "[]", '{"data": []}', '{"data": [3]}', "null"):
        assert probe.first_model(text, "tiny") == "tiny"


@pytest.mark.parametrize(
    ("meta", "text"),
    [
        ({}, "nobody that the object names"),
        ({"annotations": {"meta.helm.sh/release-name": "web"}}, "Helm release web"),
        (
            {"annotations": {"argocd.argoproj.io/tracking-id": "app:/Service:x/y"}},
            "Argo CD application app",
        ),
        ({"labels": {"argocd.argoproj.io/instance": "app"}}, "Argo CD application app"),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "k"}}, "Flux kustomization k"),
        ({"labels": {"app.kubernetes.io/managed-by": "me"}}, "managed by me"),
        (
            {
                "labels": {
                    "app.kubernetes.io/managed-by": "tether.fleet",
                    "tether.fleet/fleet": "other",
                }
            },
            "another fleet, other",
        ),
        ({"ownerReferences": [{"kind": "Foo", "name": "bar"}]}, "owned by Foo bar"),
        (
            {"managedFields": [{"manager": "kubectl"}, {"manager": "kube-controller-manager"}]},
            "written by kubectl",
        ),
    ],
)
def test_owners(meta: Dict[str, Any], text: str) -> None:
    assert ownership.describe_owner({"metadata": meta}) == text


def test_an_owner_that_anybody_may_write_stays_short_and_printable() -> None:
    notes = {"meta.helm.sh/release-name": "x\n\x1b[31m" + "y" * 262100}
    text = ownership.describe_owner({"metadata": {"annotations": notes}})
    assert len(text) <= 400 and text.isprintable()
