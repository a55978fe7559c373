# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fleet's very first run, on a day when four hosts and four namespaces have something else.

All of it is one run: whoever is well is served all the same, each of the others has one message
that says what was found and what to do, and one good run afterwards finishes everything.
"""

from __future__ import annotations

import json

import pytest
from bed import bed, get, kubectl, ssh
from days import Day, apply, eventually, good_run, namespace, served

HELD = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "held", "namespace": "leaving", "finalizers": ["example.org/held"]},
}
POLICY = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "owned-deployments"},
    "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": ["apps"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["deployments"],
                }
            ]
        },
        "validations": [
            {"expression": "has(object.metadata.labels.owner)", "message": "no label owner"}
        ],
    },
}
BINDING = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": "owned-deployments"},
    "spec": {
        "policyName": "owned-deployments",
        "validationActions": ["Deny"],
        "matchResources": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "rules"}}
        },
    },
}
PROBE = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "probe", "namespace": "rules"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "none"}]},
        },
    },
}


def quota(place: str, **hard: str) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small", "namespace": place},
        "spec": {"hard": hard},
    }


def in_force() -> bool:
    """Whether the cluster knows the quotas' use and the policy: both take a moment."""
    used = [get("resourcequota", "small", "-n", place) for place in ("quota", "crowd")]
    text = json.dumps(PROBE)
    denied = kubectl("create", "--dry-run=server", "-f", "-", text_in=text, check=False)
    return all("used" in item.get("status", {}) for item in used) and denied.returncode != 0


# Room for every byte, but not for every file, and nobody looks for that before the run: so the disk
# is full in the middle of the installation.
NO_LOOK = '{"preflight_space": []}'
SMALL = (
    "mkdir -p /opt/tether && mount -t tmpfs -o size=900m,nr_inodes=20,mode=755 tmpfs /opt/tether"
)


@pytest.fixture(scope="module")
def day():
    """The run. What is wrong stays so until the last test mends it."""
    apply(*map(namespace, ("quota", "crowd", "rules", "leaving")))
    apply(
        quota("quota", **{"count/configmaps": "1"}), quota("crowd", pods="0"), POLICY, BINDING, HELD
    )
    kubectl("delete", "namespace", "leaving", "--wait=false")
    ssh("gpu2", SMALL)
    ssh("gpu3", "mkdir /root/python && mv /usr/bin/python3* /root/python/")
    bed("link", "gpu4", "down")
    eventually(in_force)
    return Day("-e", NO_LOOK)


def test_the_run_ends_red_and_what_is_well_is_served(day):
    assert day.status != 0
    assert served("steady", "steady")
    assert day.row("gpu1")["failed"] == 0


def test_disk_full_in_the_middle_of_an_installation(day):
    day.says(
        "artifact llama_server",
        "found no inodes (that is, no more files) left on the file system at /opt/tether",
        "df -i /opt/tether",
    )
    # Nothing half-installed: no version, no link, no folder of an unpacking that was given up.
    assert ssh("gpu2", "ls -A /opt/tether/llama_server").stdout == ""
    assert day.row("gpu2")["failed"] == 1


def test_no_python_on_the_host(day):
    day.says("no Python", "Install python3, or set ansible_python_interpreter")
    assert day.row("gpu3")["failed"] == 1


def test_a_host_that_cannot_be_reached(day):
    assert day.row("gpu4")["unreachable"] == 1
    day.says("away/away (refused)", "gpu4: it has no registration record")


def test_quota_of_objects(day):
    day.says(
        "quota/counted (refused)", "exceeded quota: small", "kubectl describe resourcequota small"
    )
    assert kubectl("get", "service", "counted", "-n", "quota", check=False).returncode != 0


def test_quota_of_pods(day):
    day.says("crowd/crowded (waiting)", "its pods are refused", "exceeded quota: small")


def test_admission_policy(day):
    day.says("rules/ruled (refused)", "no label owner", "Ask whoever runs that policy")


def test_namespace_that_is_being_deleted(day):
    day.says("leaving/leaving (refused)", "namespace leaving: found it is being deleted, since")


def test_the_next_good_run_finishes_the_job(day):
    for place in ("quota", "crowd"):
        kubectl("delete", "resourcequota", "small", "-n", place)
    kubectl(
        "delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "owned-deployments"
    )
    kubectl("patch", "configmap", "held", "-n", "leaving", "--type=merge", "-p",
            '{"metadata":{"finalizers":null}}')  # fmt: skip
    kubectl("wait", "--for=delete", "namespace/leaving", "--timeout=60s")
    ssh("gpu2", "umount /opt/tether")
    ssh("gpu3", "mv /root/python/* /usr/bin/ && rmdir /root/python")
    bed("link", "gpu4", "up")
    good_run()
    for model, place in (("counted", "quota"), ("crowded", "crowd"), ("ruled", "rules"),
                         ("leaving", "leaving"), ("dark", "dark"), ("away", "away")):  # fmt: skip
        assert served(model, place)
