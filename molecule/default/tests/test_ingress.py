# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What another machine on the network sees of a host (N2, N3)."""

from __future__ import annotations

import json

import pytest
from bed import GPU1, client, ssh, token

CHAT = "/v1/chat/completions"
ASK = json.dumps({"max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]})
INGRESS = f"https://{GPU1}:9443"


def ask(path, *options, namespace="team-a", model="tiny", key=None, method="GET", body=None):
    """Ask gpu1's ingress from the neighbour; returns (status, body)."""
    headers = {"X-Relay-Namespace": namespace, "X-Relay-Model": model, "X-Relay-Token": key}
    words = ["curl", "-sSk", "-m", "20", "--path-as-is", "-X", method, "-w", "'\\n%{http_code}'"]
    for name, value in headers.items():
        if value is not None:
            words += ["-H", f"'{name}: {value}'"]
    if body is not None:
        words += ["-H", "'Content-Type: application/json'", "-d", f"'{body}'"]
    words += [*options, f"'{INGRESS}{path}'"]
    out = ssh("neighbour", " ".join(words), check=False).stdout
    text, _, status = out.rpartition("\n")
    return int(status), text


@pytest.fixture(scope="module")
def key():
    return token("team-a")


def test_the_engines_have_no_port_at_all():
    for host in ("gpu1", "gpu2"):
        listening = ssh(host, "ss -Hltnp").stdout.splitlines()
        public = {
            line.split()[3].rsplit(":", 1)[1]
            for line in listening
            if not line.split()[3].startswith(("127.", "[::1]"))
        }
        assert public == {"22", "9443"}
        assert not any("llama" in line for line in listening)


def test_a_port_opened_by_somebody_else_is_closed_to_the_network():
    """Even a program that listens on every interface is out of the network's reach."""
    listen = "python3 -m http.server 8099 --bind 0.0.0.0 >/dev/null 2>&1 & echo $!"
    pid = ssh("gpu1", f"setsid {listen}").stdout.strip()
    try:
        assert (
            ssh(
                "gpu1", "sleep 1; curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8099/"
            ).stdout
            == "200"
        )
        done = ssh("neighbour", f"curl -sS -m 3 http://{GPU1}:8099/", check=False)
        assert done.returncode != 0
    finally:
        ssh("gpu1", f"kill {pid}")


def test_an_address_that_is_not_listed_does_not_reach_the_ingress():
    ssh("neighbour", "ip address add 10.99.1.99/24 dev host0")
    try:
        done = ssh(
            "neighbour",
            f"curl -sSk -m 3 --interface 10.99.1.99 {INGRESS}/health",
            check=False,
        )
        assert done.returncode != 0
    finally:
        ssh("neighbour", "ip address del 10.99.1.99/24 dev host0")


def test_all_three_right(key):
    status, body = ask(CHAT, key=key, method="POST", body=ASK)
    assert status == 200
    assert json.loads(body)["object"] == "chat.completion"


def test_order_of_checks(key):
    """Namespace, then token, then path: each hides what comes after it."""
    wrong = "A" * 43
    assert ask("/slots", namespace="nobody", key=wrong)[0] == 403
    assert ask("/slots", namespace=None, key=None)[0] == 403
    assert ask("/slots", key=wrong)[0] == 401
    assert ask("/slots", key=None)[0] == 401
    assert ask("/slots", key="")[0] == 401
    assert ask("/slots", key=key)[0] == 403
    for status, body in (
        ask("/slots", namespace="nobody"),
        ask("/slots", key=wrong),
        ask("/slots", key=key),
    ):
        assert "error" in json.loads(body), (status, body)


def test_tls_1_2_fails():
    done = ssh("neighbour", f"curl -sSk -m 10 --tls-max 1.2 {INGRESS}/v1/models", check=False)
    assert done.returncode == 35  # CURLE_SSL_CONNECT_ERROR
    assert ssh("neighbour", f"curl -sSk -m 10 -o /dev/null {INGRESS}/v1/models").returncode == 0


@pytest.mark.parametrize(
    "path", ["/slots", "/props", "/metrics", "/lora-adapters", "/", "/v1", "/index.html"]
)
def test_admin_paths(path, key):
    assert ask(path, key=key)[0] == 403
    assert ask(path, key=key, method="POST", body="{}")[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "/V1/models",
        "//v1/models",
        "/v1//models",
        "/v1/./models",
        "/v1/x/../models",
        "/v1/%6dodels",
        "/v1%2fmodels",
        "/v1/models/",
        "/v1/models;x",
        "/v1/models%00",
        "/v1/models%20",
        "/slots/../v1/models",
        "/v1/models/..%2f..%2fslots",
        "/v1/%2e%2e/slots",
        "/v1/models/../../slots",
        "/v1/models%3f",
        "/v1\\models",
        "/\\v1/models",
    ],
)
def test_path_tricks(path, key):
    assert ask(path, key=key)[0] in (400, 403)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_methods(method, key):
    assert ask(CHAT, key=key, method=method)[0] == 403


def test_a_token_of_one_namespace_does_not_reach_anothers_model(key):
    """team-b's small runs on this very host."""
    assert ask("/v1/models", key=token("team-b"), namespace="team-b", model="small")[0] == 200
    assert ask("/v1/models", key=key, namespace="team-a", model="small")[0] == 403
    assert ask("/v1/models", key=key, namespace="team-b", model="small")[0] == 401
    assert ask("/v1/models", "-H", "'X-Relay-Namespace: team-b'", key=key, model="small")[0] in (
        401,
        403,
    )


def test_a_model_of_another_host_is_not_served_here(key):
    assert ask("/v1/models", key=token("team-b"), namespace="team-b", model="lone")[0] == 403


def test_a_pod_cannot_go_around_the_relay():
    """Pods reach the ingress's port, and without the token that is all they reach."""
    header = "-H 'X-Relay-Namespace: team-a'"
    out = client(f"curl -sSk -m 10 -o /dev/null -w '%{{http_code}}' {header} {INGRESS}/v1/models")
    assert out.stdout == "401"
