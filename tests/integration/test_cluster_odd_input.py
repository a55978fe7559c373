# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What others, or the cluster's own rules, put in a run's way, against a real API server.

Quotas, a ValidatingAdmissionPolicy and namespaces that end are in molecule/bad_days, with a fleet.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import pathlib
import ssl
import sys
import threading
from typing import Any, Dict, Iterator, List

import pytest
import yaml

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cluster_api as api
from cluster_ingress import Authority
from test_cluster_modules import created, model, namespace, prepare, relay
from test_cluster_pods import own_address

pytestmark = [api.NEEDS_CLUSTER, pytest.mark.usefixtures("world")]

RIGHTS = pathlib.Path(__file__).parents[2] / "docs" / "cluster-rights.yml"


def live(kind: str, name: str, place: str = "it-a") -> Dict[str, Any]:
    return api.get(kind, name, place) or {}


def bare(item: Dict[str, Any]) -> Dict[str, Any]:
    """An object as somebody would make it anew from what there is."""
    meta = {key: item["metadata"][key] for key in ("name", "namespace", "labels")}
    return {**{key: item[key] for key in ("apiVersion", "kind", "spec")}, "metadata": meta}


def replace(kind: str, name: str, item: Dict[str, Any]) -> None:
    api.kubectl("delete", kind, name, "-n", "it-a")
    api.apply(item)


def reason(result: api.Result, key: str = "it-a/tiny") -> str:
    assert result["models"][key]["state"] == "refused", result["models"][key]
    text: str = result["models"][key]["reason"]
    return text


def test_a_deployment_whose_selector_is_another_is_named() -> None:
    """Its selector cannot be changed: what it says to do is enough."""
    prepare()
    relay()
    item = bare(live("deployment", "tiny-relay"))
    item["spec"]["selector"]["matchLabels"] = {"tether.fleet/model": "tiny"}
    replace("deployment", "tiny-relay", item)
    both = [model("tiny"), model("big")]
    assert relay(*both, check=True)["models"]["it-a/tiny"]["state"] == "refused"
    made = relay(*both)
    text = reason(made)
    assert "Deployment it-a/tiny-relay" in text
    assert "kubectl delete deployment tiny-relay -n it-a" in text
    assert made.changes == created("big")
    assert relay(*both).writes == 0
    api.kubectl("delete", "deployment", "tiny-relay", "-n", "it-a")
    # With a new key for its drain, which was in the Deployment alone.
    assert relay(*both).changes == [
        "update ConfigMap it-a/tiny-relay",
        "create Deployment it-a/tiny-relay",
    ]


def test_our_service_made_another_kind_is_named_or_mended() -> None:
    prepare()
    relay()
    headless = bare(live("service", "tiny"))
    spec = headless["spec"]
    headless["spec"] = {"selector": spec["selector"], "ports": spec["ports"], "clusterIP": "None"}
    replace("service", "tiny", headless)
    predicted = relay(check=True)
    made = relay()
    assert reason(predicted) == reason(made)
    assert "found a headless Service" in reason(made)
    assert "kubectl delete service tiny -n it-a" in reason(made)
    assert relay().writes == 0
    api.kubectl("delete", "service", "tiny", "-n", "it-a")
    assert relay().changes == ["create Service it-a/tiny"]
    # A type can be changed, and so it is, back.
    alias = {"spec": {"type": "ExternalName", "externalName": "x.example", "clusterIP": None}}
    alias["spec"]["clusterIPs"] = None
    patch = ("patch", "service", "tiny", "-n", "it-a", "--type=merge", "-p", json.dumps(alias))
    api.kubectl(*patch)
    assert live("service", "tiny")["spec"]["type"] == "ExternalName"
    assert relay().changes == ["update Service it-a/tiny"]
    assert live("service", "tiny")["spec"]["type"] == "ClusterIP"
    assert relay().changes == []


def test_objects_of_others_under_our_names() -> None:
    """Every kind, untouched; the rest of such a model is not made."""
    prepare()
    relay(model("big"))
    templates = {
        kind: bare(live(kind, "big-relay"))
        for kind in ("networkpolicy", "deployment", "poddisruptionbudget")
    }
    relay(model("big", "it-b"), prune=True)
    for kind, item in templates.items():
        prepare()
        item["metadata"].update(name="tiny-relay", labels={"app": "theirs"})
        api.apply(item)
        before = live(kind, "tiny-relay")
        predicted = relay(check=True)
        made = relay()
        assert made.changes == predicted.changes
        assert "%s it-a/tiny-relay exists and is not this fleet's" % item["kind"] in reason(made)
        assert "written by somebody" in reason(made)
        assert live("service", "tiny") == {}
        after = live(kind, "tiny-relay")
        assert (after["spec"], after["metadata"]["labels"]) == (
            before["spec"],
            before["metadata"]["labels"],
        )
        assert relay().writes == 0
        api.kubectl("delete", kind, "tiny-relay", "-n", "it-a")


class Webhook:
    """An admission webhook that refuses every Service, told to the API server for one namespace."""

    def __init__(self) -> None:
        authority, address = Authority(), own_address()
        self.leaf = authority.leaf(address)
        self.server = http.server.ThreadingHTTPServer((address, 0), _Refuser)
        self.name = "refuser%d" % api._serial[0]
        self.url = "https://%s:%d/" % (address, self.server.server_address[1])
        self.ca = base64.b64encode(authority.pem.encode()).decode()

    def serve(self, folder: pathlib.Path) -> None:
        (folder / "leaf.pem").write_text(self.leaf.pem + self.leaf.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "leaf.pem")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @contextlib.contextmanager
    def configured(self) -> Iterator[None]:
        hook = {
            "name": "no-services.example.org",
            "clientConfig": {"url": self.url, "caBundle": self.ca},
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["services"],
                }
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "it-a"}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 5,
        }
        kind = "ValidatingWebhookConfiguration"
        api.apply(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": self.name},
                "webhooks": [hook],
            }
        )
        try:
            yield
        finally:
            api.kubectl("delete", kind, self.name)


class _Refuser(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = {
            "uid": review["request"]["uid"],
            "allowed": False,
            "status": {"message": "no\x1b[2Jservices here"},
        }
        body = json.dumps({**review, "request": None, "response": answer}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        """Not to the test's output."""


def test_an_admission_webhook_that_refuses_and_one_that_is_down(tmp_path: pathlib.Path) -> None:
    prepare()
    api.apply(namespace("it-a"))
    webhook = Webhook()
    webhook.serve(tmp_path)
    both = [model("tiny"), model("big", "it-b")]
    with webhook.configured():

        def refused() -> api.Result:
            made = relay(*both)
            return made if made["models"]["it-a/tiny"]["state"] == "refused" else refused()

        made = refused()
        text = reason(made)
        assert "create services in namespace it-a" in text
        assert "the cluster's admission webhook no-services.example.org to allow it" in text
        assert "no [2Jservices here" in text
        assert made["models"]["it-b/big"]["state"] == "waiting"
        assert live("service", "big", "it-b") != {}
        webhook.server.shutdown()
        webhook.server.server_close()
        text = reason(relay(*both))
        assert "create services in namespace it-a" in text
        assert "the cluster's admission webhook no-services.example.org to answer" in text
    assert relay(*both).changes == ["create Service it-a/tiny"]


# A right that is taken away -> a model's request that then fails, in words
LACKING = {
    ("", "services", "create"): "create services in namespace it-a",
    ("apps", "deployments", "create"): "create deployments in namespace it-a",
    ("networking.k8s.io", "networkpolicies", "create"): "create networkpolicies in namespace it-a",
}


def role_without(group: str, resource: str, verb: str) -> Dict[str, Any]:
    role: Dict[str, Any] = yaml.safe_load(RIGHTS.read_text())
    rules: List[Dict[str, Any]] = []
    for rule in role["rules"]:
        for one in rule["resources"]:
            lost = [verb] if (rule["apiGroups"], one) == ([group], resource) else []
            verbs = [each for each in rule["verbs"] if each not in lost]
            rules.append({"apiGroups": rule["apiGroups"], "resources": [one], "verbs": verbs})
    role["rules"] = [rule for rule in rules if rule["verbs"]]
    return role


@contextlib.contextmanager
def lacking(group: str, resource: str, verb: str) -> Iterator[str]:
    """The name of a user who has all documented rights but one."""
    user = "poor%d" % api._serial[0]
    role = role_without(group, resource, verb)
    role["metadata"]["name"] = user
    api.kubectl("apply", "-f", "-", stdin=json.dumps(role))
    api.kubectl("create", "clusterrolebinding", user, "--clusterrole", user, "--user", user)
    try:
        yield user
    finally:
        api.kubectl("delete", "clusterrolebinding,clusterrole", user)


def test_one_right_that_is_missing_is_named() -> None:
    prepare()
    api.apply(namespace("it-a"))
    for (group, resource, verb), words in LACKING.items():
        with lacking(group, resource, verb) as user:
            text = reason(relay(impersonate_user=user))
        assert words in text
        assert "the right to %s %s there. Grant that verb on that resource" % (verb, resource) in (
            text
        )
        assert user in text
        relay(model("big", "it-b"), prune=True)
    # Those of reading end the run before it writes anything.
    for resource, group in (("endpointslices", "discovery.k8s.io"), ("deployments", "apps")):
        with lacking(group, resource, "list") as user:
            result = relay(impersonate_user=user)
        assert "list %s in the whole cluster" % resource in result["msg"]
        assert live("configmap", "tiny-relay") == {}
    # A changed one needs patch.
    relay()
    with lacking("", "services", "patch") as user:
        text = reason(relay(model(port=8080), impersonate_user=user))
    assert "patch services tiny in namespace it-a" in text
    assert [port["port"] for port in live("service", "tiny")["spec"]["ports"]] == [80, 9464]


def test_a_model_that_is_renamed_or_moved() -> None:
    prepare()
    relay(model("tiny"))
    address = live("service", "tiny")["spec"]["clusterIP"]
    # Renamed: the new one is made, the old one serves on until it is pruned.
    renamed = relay(model("big"))
    assert renamed.changes == created("big")
    assert renamed["orphans"] == ["it-a/tiny"]
    assert live("service", "tiny")["spec"]["clusterIP"] == address
    # Moved, and pruned: first what was there goes, in one run with what comes.
    predicted = relay(model("big", "it-b"), prune=True, check=True)
    moved = relay(model("big", "it-b"), prune=True)
    assert moved.changes == predicted.changes
    assert moved["orphans"] == ["it-a/big", "it-a/tiny"]
    assert [change for change in moved.changes if change.startswith("create")] == [
        "create Namespace it-b",
        *created("big", "it-b"),
    ]
    assert live("service", "big") == live("service", "tiny") == {}
    secret = base64.b64decode(live("secret", "big-relay", "it-b")["data"]["cds.json"]).decode()
    token = live("secret", "token-it-b", api.FLEET_NAMESPACE)["data"]["current"]
    assert base64.b64decode(token).decode() in secret
    assert relay(model("big", "it-b"), prune=True).writes == 0
