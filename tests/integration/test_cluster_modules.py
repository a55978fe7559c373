# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cluster modules against a real API server; no pod has to run for these."""

from __future__ import annotations

import base64
import json
import pathlib
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cluster_api as api
from cluster_ingress import Authority

pytestmark = [api.NEEDS_CLUSTER, pytest.mark.usefixtures("world")]

AUTHORITY = Authority()
# Nobody answers there, and at once: a name would keep the node's queue of pulls busy.
IMAGE = "127.0.0.1:1/envoy" + api.DIGEST
LEAVES = {"gpu1": AUTHORITY.leaf("10.9.0.11"), "gpu2": AUTHORITY.leaf("10.9.0.12")}
KINDS = ("NetworkPolicy", "ConfigMap", "Secret", "PodDisruptionBudget", "Deployment", "Service")


def record(host: str = "gpu1", address: str = "", **more: Any) -> Dict[str, Any]:
    return {
        "schema": 1,
        "host": host,
        "address": address or "10.9.0.1" + host[-1],
        "port": 9443,
        "certificates": [LEAVES[host].pem],
        "ingress": {"version": "2.11.7"},
        "engines": [
            {"namespace": place, "model": name, "engine": "llama_server", "version": "1"}
            for place in ("it-a", "it-b")
            for name in ("tiny", "big")
        ],
        **more,
    }


def model(name: str = "tiny", namespace: str = "it-a", **more: Any) -> Dict[str, Any]:
    return {"name": name, "namespace": namespace, "hosts": ["gpu1"], "engine": "x", **more}


def prepare(*records: Dict[str, Any]) -> Dict[str, str]:
    """Tokens and records, as the earlier phases leave them."""
    made = api.run("token", namespaces=["it-a", "it-b"])
    assert not made.failed, made
    written = api.run("registration", records=list(records or [record()]))
    assert not written.failed, written
    return {name: item["current"] for name, item in made["tokens"].items()}


def relay(*models: Dict[str, Any], check: bool = False, **more: Any) -> api.Result:
    arguments: Dict[str, Any] = {
        "image": IMAGE,
        "ca_certificate": AUTHORITY.pem,
        "models": list(models or [model()]),
        "create_namespaces": True,
        "wait": False,
    }
    arguments.update(more)
    return api.run("relay", check=check, **arguments)


def foreign_service(name: str = "tiny", namespace: str = "it-a") -> Dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "web"},
        },
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 8000}]},
    }


def namespace(name: str) -> Dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def created(name: str = "tiny", place: str = "it-a") -> List[str]:
    return [
        "create %s %s/%s" % (kind, place, name if kind == "Service" else name + "-relay")
        for kind in KINDS
    ]


def test_token_predicts_makes_and_keeps() -> None:
    predicted = api.run("token", check=True, namespaces=["it-a"])
    assert predicted["changed"]
    assert len(predicted["tokens"]["it-a"]["current"]) == 43
    assert predicted.writes == 0
    made = api.run("token", namespaces=["it-a"])
    assert made.changes == predicted.changes
    assert made["tokens"] != predicted["tokens"]
    again = api.run("token", namespaces=["it-a"])
    assert not again["changed"]
    assert again["tokens"] == made["tokens"]
    assert again["requests"] == {"GET": 1}
    secret = api.get("secret", "token-it-a", api.FLEET_NAMESPACE)
    assert secret is not None
    assert (
        base64.b64decode(secret["data"]["current"]).decode() == (made["tokens"]["it-a"]["current"])
    )
    assert made["tokens"]["it-a"]["current"] not in json.dumps(made["diff"])


def test_token_refuses_a_foreign_secret() -> None:
    api.apply(
        namespace(api.FLEET_NAMESPACE),
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "token-it-a", "namespace": api.FLEET_NAMESPACE},
            "stringData": {"current": "mine"},
        },
    )
    for check in (True, False):
        result = api.run("token", check=check, namespaces=["it-a", "it-b"])
        assert result.failed
        assert "Secret it-fleet/token-it-a" in result["msg"]
        assert "written by somebody" in result["msg"]
    assert api.get("secret", "token-it-b", api.FLEET_NAMESPACE) is None


def test_registration_writes_what_differs() -> None:
    api.run("token", namespaces=["it-a"])
    both = [record("gpu1"), record("gpu2")]
    predicted = api.run("registration", check=True, records=both)
    made = api.run("registration", records=both)
    assert made.changes == predicted.changes
    assert len(made.changes) == 2
    again = api.run("registration", records=both)
    assert not again["changed"]
    assert again["requests"] == {"GET": 1}
    moved = api.run("registration", records=[record("gpu2", "10.9.0.99")])
    assert moved.changes == ["update ConfigMap it-fleet/host-gpu2"]
    removed = api.run("registration", state="absent", hosts=["gpu2", "never"])
    assert removed.changes == ["remove ConfigMap it-fleet/host-gpu2"]


def test_registration_names_all_mistakes() -> None:
    wrong = record(port=0, certificates=["x"])
    result = api.run("registration", records=[wrong, record("gpu2", "999.1.1.1")])
    assert result.failed
    for text in ("port 0", "certificates", "999.1.1.1"):
        assert text in result["msg"]


def test_relay_on_a_fresh_cluster() -> None:
    predicted = relay(check=True, predicted_records=[record(certificates=[])], ca_certificate="")
    assert not predicted.failed, predicted
    assert predicted.writes == 0
    assert predicted["models"]["it-a/tiny"]["state"] == "planned"
    tokens = prepare()
    checked = relay(check=True)
    made = relay()
    assert made.changes == predicted.changes == checked.changes
    assert made.changes == ["create Namespace it-a", *created()]
    assert made["models"]["it-a/tiny"]["hosts"] == {"gpu1": "accepted"}
    text = json.dumps([predicted, checked, made])
    assert tokens["it-a"] not in text
    assert (
        tokens["it-a"]
        in base64.b64decode(
            (api.get("secret", "tiny-relay", "it-a") or {})["data"]["cds.json"]
        ).decode()
    )
    assert made.failed  # no controller runs pods here, and so it says
    assert "waiting" in made["msg"]
    again = relay()
    assert again.changes == []
    assert again.writes == 0
    assert relay(check=True)["requests"] == {"GET": 7}


def test_one_model_and_many_cost_the_same() -> None:
    prepare()
    few = [model("tiny"), model("big")]
    many = [model(name, place) for name in ("tiny", "big") for place in ("it-a", "it-b")]
    relay(*few)
    costs = [relay(*few, check=True)["requests"]]
    relay(*many)
    costs.append(relay(*many, check=True)["requests"])
    assert costs[0] == costs[1] == {"GET": 7}


def test_changes_are_minimal_and_service_keeps_its_address() -> None:
    prepare(record(), record("gpu2"))
    relay()
    address = (api.get("service", "tiny", "it-a") or {})["spec"]["clusterIP"]
    predicted = relay(model(hosts=["gpu1", "gpu2"]), check=True)
    made = relay(model(hosts=["gpu1", "gpu2"]))
    assert (
        predicted.changes
        == made.changes
        == [
            "update NetworkPolicy it-a/tiny-relay",
            "update ConfigMap it-a/tiny-relay",
            "update Secret it-a/tiny-relay",
        ]
    )
    diff = json.dumps(made["diff"])
    assert "10.9.0.12" in diff
    assert "gpu2" in diff
    made = relay(model(hosts=["gpu1", "gpu2"], port=8080, replicas=3))
    assert made.changes == ["update Deployment it-a/tiny-relay", "update Service it-a/tiny"]
    service = api.get("service", "tiny", "it-a") or {}
    assert service["spec"]["clusterIP"] == address
    assert [port["port"] for port in service["spec"]["ports"]] == [8080, 9464]
    assert relay(model(hosts=["gpu1", "gpu2"], port=8080, replicas=3)).changes == []
    # Back again: what was ours and is no longer wanted goes.
    relay(model())
    policy = api.get("networkpolicy", "tiny-relay", "it-a") or {}
    assert len(policy["spec"]["egress"]) == 1
    assert relay(model()).changes == []


HALVES = ["update ConfigMap it-a/tiny-relay", "update Secret it-a/tiny-relay"]
MARKED = "update ConfigMap it-fleet/host-%s"


def mark(state: str, *hosts: str, check: bool = False) -> api.Result:
    return api.run("registration", check=check, state=state, hosts=list(hosts))


def serving() -> List[str]:
    """The hosts to which relays send requests."""
    text = (api.get("configmap", "tiny-relay", "it-a") or {})["data"]["eds.json"]
    found = json.loads(text)["resources"][0]["endpoints"][0]["lb_endpoints"]
    return [item["endpoint"]["hostname"] for item in found]


def test_a_host_drains_and_serves_again() -> None:
    prepare(record(), record("gpu2"))
    both = model(hosts=["gpu1", "gpu2"])
    relay(both)
    # In the Secret, where the host's metrics are asked for.
    told = [MARKED % "gpu1", *HALVES]
    predicted = mark("draining", "gpu1", check=True)
    assert (predicted.changes, predicted.writes) == (told, 0)
    made = mark("draining", "gpu1")
    assert made.changes == told
    assert made["endpoints"] == predicted["endpoints"]
    assert list(made["endpoints"]) == ["it-a/tiny"]
    assert made["untold"] == {}
    again = mark("draining", "gpu1")
    assert (again.changes, again["requests"]) == ([], {"GET": 3})
    assert serving() == ["gpu2"]
    # The role finds nothing left to do.
    known = relay(both)
    assert known.changes == []
    assert known["models"]["it-a/tiny"]["draining"] == ["gpu1"]
    # Registered anew, changed or not, it goes on to drain.
    assert api.run("registration", records=[record()]).changes == []
    changed = record(ingress={"version": "2.11.8"})
    assert api.run("registration", records=[changed]).changes
    assert relay(both).changes == []
    # What somebody wrote by hand is told by the next run, and taken away as well.
    api.kubectl(
        "annotate", "configmap", "host-gpu2", "-n", "it-fleet", "tether.fleet/draining=today"
    )
    assert relay(both).changes == HALVES
    assert serving() == ["nobody"]
    assert mark("serving", "gpu1", "gpu2").changes == [
        MARKED % "gpu1",
        MARKED % "gpu2",
        *HALVES,
    ]
    assert mark("serving", "gpu1", "gpu2").changes == []
    assert relay(both).changes == []
    assert serving() == ["gpu1", "gpu2"]
    unknown = mark("draining", "gpu1", "gpu9")
    assert unknown.failed
    assert "found no registration record of gpu9 in namespace it-fleet" in unknown["msg"]
    assert mark("serving", "gpu1", "gpu9").changes == []


def test_a_mark_tells_what_runs_of_the_drain_and_of_nothing_else() -> None:
    """Whatever the inventory has come to, what runs has requests."""
    prepare(record(), record("gpu2"))
    relay(model(hosts=["gpu1", "gpu2"]), model("big"), model(namespace="it-b"))
    # Somebody's label on it stays somebody's, and a file of it is the role's to mend.
    api.kubectl("label", "configmap", "tiny-relay", "-n", "it-a", "theirs=1")
    api.kubectl(
        "patch", "configmap", "tiny-relay", "-n", "it-a", "--type=merge",
        "-p", '{"data":{"rds.json":"{}"}}',
    )  # fmt: skip
    # A model from before there was a list, and one whose list is spoilt.
    note = "tether.fleet/hosts"
    api.kubectl("annotate", "secret", "big-relay", "-n", "it-a", note + "-")
    api.kubectl("annotate", "secret", "tiny-relay", "-n", "it-b", "--overwrite", note + "={")
    made = mark("restarting", "gpu1")
    assert made.changes == [MARKED % "gpu1", *HALVES]
    assert sorted(made["untold"]) == ["it-a/big", "it-b/tiny"]
    warned = json.dumps(made["warnings"])
    assert all(json.dumps(reason)[1:-1] in warned for reason in made["untold"].values())
    assert serving() == ["gpu2"]
    item = api.get("configmap", "tiny-relay", "it-a") or {}
    assert item["data"]["rds.json"] == "{}"
    assert item["metadata"]["labels"]["theirs"] == "1"
    assert mark("restarting").changes == [MARKED % "gpu1", *HALVES]
    assert serving() == ["gpu1", "gpu2"]
    mended = relay(model(hosts=["gpu1", "gpu2"]), model("big"), model(namespace="it-b"))
    assert mended.changes == [
        "update Secret it-a/big-relay",
        "update ConfigMap it-a/tiny-relay",
        "update Secret it-b/tiny-relay",
    ]
    assert mark("draining", "gpu1")["untold"] == {}
    item = api.get("configmap", "tiny-relay", "it-a") or {}
    assert item["metadata"]["labels"]["theirs"] == "1"


def test_a_direct_service_is_left_by_who_drains() -> None:
    offers = [{"namespace": "it-a", "name": "art", "expose": "direct", "port": 8188}]
    prepare(record(services=offers), record("gpu2", services=offers))
    art = model("art", hosts=["gpu1", "gpu2"], kind="service", expose="direct", host_port=8188)
    made = relay(art)
    assert not made.failed, made

    def addresses() -> List[str]:
        item = api.get("endpointslice", "art-direct", "it-a") or {}
        return [one["addresses"][0] for one in item["endpoints"] or []]

    slices = ["update ConfigMap it-a/art-direct", "update EndpointSlice it-a/art-direct"]
    assert mark("restarting", "gpu1").changes == [MARKED % "gpu1"]
    assert mark("draining", "gpu1", "gpu2").changes == [
        MARKED % "gpu1",
        MARKED % "gpu2",
        *slices,
    ]
    assert addresses() == []
    assert mark("draining", "gpu1", "gpu2").changes == []
    assert relay(art).changes == []
    assert mark("serving", "gpu1").changes == [MARKED % "gpu1", *slices]
    assert addresses() == ["10.9.0.11"]
    assert relay(art).changes == []


def test_drift_is_mended_and_additions_of_others_stay() -> None:
    prepare()
    relay()
    api.kubectl(
        "patch",
        "service",
        "tiny",
        "-n",
        "it-a",
        "--type=merge",
        "-p",
        '{"metadata":{"annotations":{"theirs":"1"}},"spec":{"selector":{"app":"stolen"}}}',
    )
    # An annotation is theirs; a label more in the selector would select no relay.
    assert relay().changes == ["update Service it-a/tiny"]
    api.kubectl(
        "patch",
        "configmap",
        "tiny-relay",
        "-n",
        "it-a",
        "--type=merge",
        "-p",
        '{"data":{"eds.json":"{}","more":"x"}}',
    )
    assert relay().changes == ["update ConfigMap it-a/tiny-relay"]
    assert relay().changes == []
    service = api.get("service", "tiny", "it-a") or {}
    assert service["metadata"]["annotations"]["theirs"] == "1"
    assert "app" not in service["spec"]["selector"]


def test_foreign_service_is_refused_once_and_others_go_on() -> None:
    prepare()
    api.apply(namespace("it-a"), foreign_service())
    before = api.get("service", "tiny", "it-a")
    predicted = relay(model("tiny"), model("big"), check=True)
    made = relay(model("tiny"), model("big"))
    assert predicted.failed
    assert made.failed
    assert made.changes == predicted.changes
    assert made.changes == [
        "create Event OwnershipRefused on Service it-a/tiny",
        "create ConfigMap it-fleet/state",
        *created("big"),
    ]
    refused = made["models"]["it-a/tiny"]
    assert refused["state"] == "refused"
    assert "Helm release web" in refused["reason"]
    assert "written by somebody" in refused["reason"]
    assert made["models"]["it-a/big"]["state"] == "waiting"
    assert api.get("service", "tiny", "it-a") == before
    assert api.get("deployment", "tiny-relay", "it-a") is None
    again = relay(model("tiny"), model("big"))
    assert again.failed
    assert again.writes == 0
    events = json.loads(api.kubectl("get", "events", "-n", "it-a", "-o", "json"))["items"]
    ours = [item for item in events if item["reason"] == "OwnershipRefused"]
    assert len(ours) == 1
    assert ours[0]["type"] == "Warning"
    assert ours[0]["involvedObject"]["name"] == "tiny"
    api.kubectl("delete", "service", "tiny", "-n", "it-a")
    mended = relay(model("tiny"), model("big"))
    assert mended.changes == ["update ConfigMap it-fleet/state", *created("tiny")]


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_other_foreign_objects_are_refused_too(kind: str) -> None:
    prepare()
    api.apply(
        namespace("it-a"),
        {
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {"name": "tiny-relay", "namespace": "it-a"},
        },
    )
    result = relay()
    assert result["models"]["it-a/tiny"]["state"] == "refused"
    assert "%s it-a/tiny-relay" % kind in result["msg"]
    assert api.get("service", "tiny", "it-a") is None


def test_another_fleets_model_is_foreign() -> None:
    prepare()
    relay()
    api.run("token", fleet="other", fleet_namespace="it-other", namespaces=["it-a"])
    api.run("registration", fleet="other", fleet_namespace="it-other", records=[record()])
    result = relay(fleet="other", fleet_namespace="it-other", prune=True)
    assert result["models"]["it-a/tiny"]["state"] == "refused"
    assert "another fleet, it%d" % api._serial[0] in result["msg"]
    assert api.get("service", "tiny", "it-a") is not None


@pytest.mark.parametrize(
    ("leaf", "reason"),
    [
        (Authority().leaf("10.9.0.11"), "not signed by the fleet's CA"),
        (AUTHORITY.leaf("10.9.0.12"), "not for the address 10.9.0.11"),
        (AUTHORITY.leaf("10.9.0.11", days=-1, since=2), "expired"),
        (AUTHORITY.leaf("10.9.0.11", ca=True), "is a CA"),
        (AUTHORITY.leaf("10.9.0.11", usages=[]), "extended key usage"),
    ],
    ids=["other CA", "other address", "expired", "CA", "no server use"],
)
def test_record_with_a_swapped_pin_is_refused(leaf: Any, reason: str) -> None:
    prepare(record(certificates=[leaf.pem]), record("gpu2"))
    alone = relay(model("tiny"))
    assert alone["models"]["it-a/tiny"]["state"] == "refused"
    assert reason in alone["models"]["it-a/tiny"]["hosts"]["gpu1"]
    assert api.get("service", "tiny", "it-a") is None
    both = relay(model("tiny", hosts=["gpu1", "gpu2"]))
    assert both.failed
    assert both["models"]["it-a/tiny"]["hosts"]["gpu2"] == "accepted"
    secret = (api.get("secret", "tiny-relay", "it-a") or {})["data"]["cds.json"]
    assert "gpu1" not in base64.b64decode(secret).decode()


def test_what_is_missing_is_named() -> None:
    prepare()
    no_record = relay(model(hosts=["gpu9"]))
    assert "gpu9: it has no registration record" in no_record["msg"]
    no_engine = relay(model("unknown"))
    assert "lists no engine of this model" in no_engine["msg"]
    other = record(engines=[{"namespace": "it-c", "model": "tiny", "engine": "x"}])
    api.run("registration", records=[other])
    no_token = relay(model(namespace="it-c"))
    assert "Secret it-fleet/token-it-c" in no_token["msg"]
    api.run("registration", records=[record()])
    no_namespace = relay(create_namespaces=False)
    assert "namespace it-a does not exist" in no_namespace["msg"]
    no_digest = relay(image="envoy:1.40")
    assert "no digest" in no_digest["msg"]
    assert "requests" not in no_digest
    wrong = relay(model(port=0), model("UPPER"))
    assert "port is not a number" in wrong["msg"]
    assert "UPPER" in wrong["msg"]


def test_prune_removes_what_left_the_inventory_and_nothing_else() -> None:
    prepare()
    relay(model("tiny"), model("big"))
    api.apply(foreign_service("web"))
    kept = relay(model("tiny"))
    assert kept["orphans"] == ["it-a/big"]
    assert kept.changes == []
    predicted = relay(model("tiny"), check=True, prune=True)
    gone = relay(model("tiny"), prune=True)
    assert gone.changes == predicted.changes
    assert [change.split()[1] for change in gone.changes] == [
        "Service",
        "Deployment",
        "PodDisruptionBudget",
        "Secret",
        "ConfigMap",
        "NetworkPolicy",
    ]
    assert api.get("service", "big", "it-a") is None
    assert api.get("service", "tiny", "it-a") is not None
    assert api.get("service", "web", "it-a") is not None


def test_lease_of_a_running_writer_is_respected_and_of_a_dead_one_followed() -> None:
    prepare()
    lease = api.get("lease", "tether-writer", api.FLEET_NAMESPACE) or {}
    assert not lease["spec"].get("holderIdentity")
    held = {
        "spec": {
            "holderIdentity": "other-run",
            "renewTime": "2999-01-01T00:00:00.000000Z",
            "leaseDurationSeconds": 20,
        }
    }
    patch = ("patch", "lease", "tether-writer", "-n", api.FLEET_NAMESPACE, "--type=merge", "-p")
    api.kubectl(*patch, json.dumps(held))
    blocked = relay(lease_timeout=2)
    assert blocked.failed
    assert "held by other-run" in blocked["msg"]
    assert api.get("service", "tiny", "it-a") is None
    held["spec"]["renewTime"] = "2020-01-01T00:00:00.000000Z"
    api.kubectl(*patch, json.dumps(held))
    assert len(relay(lease_timeout=2).changes) == 7
    lease = api.get("lease", "tether-writer", api.FLEET_NAMESPACE) or {}
    assert lease["spec"]["leaseTransitions"] >= 1


def test_two_runs_at_once_make_everything_once() -> None:
    prepare()
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _number: relay(), range(2)))
    assert sorted(len(result.changes) for result in both) == [0, 7]
    assert relay().changes == []


def test_missing_rights_are_named() -> None:
    prepare()
    result = relay(impersonate_user="nobody")
    assert result.failed
    assert "list configmaps in the whole cluster" in result["msg"]
    assert "Grant that verb" in result["msg"]


def test_no_api_server() -> None:
    for module, more in (("token", {"namespaces": []}), ("relay_probe", {"models": []})):
        result = api.run(module, kubeconfig=None, host="https://127.0.0.1:1", api_key="x", **more)
        assert result.failed
        assert "the Kubernetes API" in result["msg"]
        assert "exception" not in result
