# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a refusal of the API server means; the texts are Kubernetes 1.34's own."""

from __future__ import annotations

import base64
import datetime
import json
import pathlib
import sys
from types import SimpleNamespace
from typing import Any, Optional

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.cluster import answers, client, way_in

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "integration"))
from cluster_ingress import Authority

NOW = datetime.datetime(2026, 1, 1, 12, 0, 0, tzinfo=datetime.UTC)
FORBIDDEN = 'configmaps "tiny-relay" is forbidden: '


@pytest.mark.parametrize(
    ("status", "message", "remedy"),
    [
        (
            403,
            FORBIDDEN + "exceeded quota: small, requested: count/configmaps=1, used:"
            " count/configmaps=1, limited: count/configmaps=1",
            "kubectl describe resourcequota small -n team-a",
        ),
        (
            403,
            FORBIDDEN + "unable to create new content in namespace team-a because it is being"
            " terminated",
            "kubectl get namespace team-a",
        ),
        (
            422,
            "deployments.apps \"tiny-relay\" is forbidden: ValidatingAdmissionPolicy 'owners' with"
            " binding 'owners' denied request: no owner",
            "Ask whoever runs that policy to allow it for namespace team-a",
        ),
        (
            400,
            'admission webhook "validate.kyverno.svc" denied the request: no owner',
            "Ask whoever runs that policy",
        ),
        (403, 'pods "x" is forbidden: violates PodSecurity "restricted:latest": no', "enforce"),
        (
            403,
            'configmaps is forbidden: User "fleet" cannot create resource "configmaps" in API group'
            ' "" in the namespace "team-a"',
            "Grant that verb on that resource to fleet; docs/cluster-rights.yml",
        ),
    ],
)
def test_each_refusal_has_its_own_remedy(status: int, message: str, remedy: str) -> None:
    text = json.dumps({"kind": "Status", "message": message})
    refusal = client.refusal_of(status, text, "create", "ConfigMap", "team-a", "tiny-relay")
    assert remedy in refusal.remedy
    assert message in refusal.found


@pytest.mark.parametrize(
    "message",
    [
        "namespaces \"team-a\" is forbidden: ValidatingAdmissionPolicy 'names' with binding 'names'"
        " denied request: no",
        'admission webhook "names.example" denied the request: no',
    ],
)
def test_a_refused_namespace_is_in_no_namespace(message: str) -> None:
    text = json.dumps({"kind": "Status", "message": message})
    refusal = client.refusal_of(403, text, "create", "Namespace", None, "team-a")
    assert refusal.remedy == "Ask whoever runs that policy to allow it, then run again"
    assert refusal.what == "create namespaces team-a in the whole cluster"


def test_an_ordinary_message_is_no_admission() -> None:
    assert answers.of_admission("the object has been modified", "team-a") is None


class PoolError(Exception):
    """As urllib3 nests them: the reason is the next one."""

    def __init__(self, reason: Any) -> None:
        super().__init__("HTTPSConnectionPool(host='x', port=6443): Max retries exceeded")
        self.reason = reason


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "HTTPSConnection(host='x', port=1): Failed to establish a new connection: [Errno 111]"
            " Connection refused",
            "connection refused",
        ),
        ("HTTPSConnection(host='x', port=1): Failed to resolve 'x'", "its name is not known"),
        ("timed out", "no answer"),
        ("[Errno 113] No route to host", "no answer"),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate",
            "a certificate that the kubeconfig's",
        ),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired"
            " (_ssl.c:1032)",
            "a certificate of the API server that has expired",
        ),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate is not yet"
            " valid (_ssl.c:1032)",
            "a certificate of the API server that has expired or is not yet valid",
        ),
        ("[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] alert", "a client certificate that is no longer"),
        ("something else", "something else"),
    ],
)
def test_no_connection_in_a_few_words(text: str, found: str) -> None:
    refusal = way_in.no_connection("https://x:6443", PoolError(OSError(text)))
    assert refusal.found.startswith(found)
    assert "https://x:6443" in refusal.what
    assert "Max retries" not in str(refusal)


def test_an_error_that_is_its_own_reason_ends() -> None:
    error = PoolError(None)
    error.reason = error
    assert way_in.innermost(error).startswith("HTTPSConnectionPool")


@pytest.mark.parametrize(
    ("given", "environment", "words"),
    [
        ("/root/nowhere", {}, "no usable kubeconfig at /root/nowhere ("),
        (None, {"K8S_AUTH_KUBECONFIG": "/a", "KUBECONFIG": "/b"}, "no usable kubeconfig at /a ("),
        (None, {"KUBECONFIG": "/b"}, "no usable kubeconfig at /b ("),
        # A kubeconfig given whole is a secret.
        ({"users": [{"user": {"token": "secret"}}]}, {}, "no usable kubeconfig ("),
        (None, {}, "no usable kubeconfig ("),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, given: Any, environment: dict[str, str], words: str
) -> None:
    for name in ("K8S_AUTH_KUBECONFIG", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    path = client._path_given(None, {"kubeconfig": given})
    text = str(way_in.no_configuration(ValueError("Invalid kube-config file"), path))
    assert words in text
    assert "secret" not in text


def bearer(claims: Any) -> str:
    middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return "Bearer e30.%s.c2ln" % middle


@pytest.mark.parametrize(
    ("token", "ended"),
    [
        (bearer({"exp": NOW.timestamp() - 5}), True),
        (bearer({"exp": NOW.timestamp() + 5}), False),
        (bearer({}), False),
        (bearer([]), False),
        (bearer({"exp": 1e300}), False),
        ("Bearer opaque", False),
        ("Bearer a.b.c", False),
        ("", False),
    ],
)
def test_a_token_that_has_ended(token: str, ended: bool) -> None:
    configuration = SimpleNamespace(cert_file=None, api_key={"authorization": token})
    found: Optional[str] = way_in.ended_credentials(configuration, NOW)
    assert found == ("the token, which ended at 2026-01-01 11:59:55 UTC" if ended else None)


def test_a_client_certificate_that_has_ended(tmp_path: pathlib.Path) -> None:
    authority, now = Authority(), datetime.datetime.now(datetime.UTC)
    path = tmp_path / "client.crt"
    configuration = SimpleNamespace(cert_file=str(path), api_key={})
    assert way_in.ended_credentials(configuration, now) is None
    path.write_text(authority.leaf("10.0.0.1").pem)
    assert way_in.ended_credentials(configuration, now) is None
    path.write_text(authority.leaf("10.0.0.1", days=-1, since=2).pem)
    found = way_in.ended_credentials(configuration, now)
    assert found is not None and found.startswith("the client certificate, which ended at ")


@pytest.mark.parametrize(
    ("status", "seconds", "found"),
    [
        (401, 5, "the token, which ended at 2026-01-01 11:59:55 UTC"),
        (401, -5, "status 401 (Unauthorized)"),
        (403, 5, "status 403 (Unauthorized)"),
    ],
)
def test_credentials_that_ended_are_named_from_the_first_answer_on(
    status: int, seconds: int, found: str
) -> None:
    error = client.ApiException(status=status)
    error.body = json.dumps({"kind": "Status", "message": "Unauthorized"}).encode()
    # The server's clock counts, not this machine's.
    error.headers = {"Date": "Thu, 01 Jan 2026 12:00:00 GMT"}
    token = bearer({"exp": NOW.timestamp() - seconds})
    configuration = SimpleNamespace(cert_file=None, api_key={"authorization": token})
    refusal = client.refused_connection(error, configuration)
    assert (refusal.status, refusal.found) == (status, found)


def test_an_answer_without_headers_or_body() -> None:
    configuration = SimpleNamespace(cert_file=None, api_key={})
    refusal = client.refused_connection(client.ApiException(status=401), configuration)
    assert (refusal.status, refusal.found) == (401, "status 401 ()")
