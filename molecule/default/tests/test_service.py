# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a client sees: an ordinary Service, as if pods served the model (N1)."""

from __future__ import annotations

import json

import pytest
from bed import chat, client, get, kubectl, ssh, streamed

ASK = {"model": "x", "max_tokens": 4, "messages": [{"role": "user", "content": "hello"}]}
MODELS = [("tiny", "team-a", 80), ("small", "team-b", 8080), ("lone", "team-b", 80)]


def by_name(name, namespace, port):
    return f"http://{name}.{namespace}.svc:{port}"


def by_address(name, namespace, port):
    return f"http://{get('service', name, '-n', namespace)['spec']['clusterIP']}:{port}"


@pytest.mark.parametrize("where", [by_name, by_address])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model[0])
def test_chat(model, where):
    answer = chat(where(*model), ASK)
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert answer["usage"]["completion_tokens"] >= 1


@pytest.mark.parametrize("where", [by_name, by_address])
def test_stream(where):
    events = streamed(where(*MODELS[0]), ASK)
    assert events[-1] == "[DONE]"
    assert len(events) >= 3
    assert all("choices" in json.loads(event) for event in events[:-1])


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model[0])
def test_models(model):
    listed = json.loads(client(f"curl -sS -m 30 {by_name(*model)}/v1/models").stdout)
    assert [entry["id"] for entry in listed["data"]] == [model[0]]


def test_the_client_mounts_nothing_and_has_no_rights():
    pod = get("pod", "client", "-n", "clients")
    assert not pod["spec"].get("volumes")
    allowed = kubectl(
        "auth",
        "can-i",
        "get",
        "secrets",
        "-A",
        "--as=system:serviceaccount:clients:default",
        check=False,
    )
    assert allowed.stdout.strip() == "no"


def test_the_engine_itself_saw_the_request():
    unit = "tether-engine-team-a.tiny.service"
    count = (
        f"journalctl -u {unit} -o cat | grep -cE 'POST /v1/chat/completions|done request|n_tokens'"
    )

    def seen():
        return sum(
            int(ssh(host, count + " || true").stdout.strip() or 0) for host in ("gpu1", "gpu2")
        )

    before = seen()
    test_chat(MODELS[0], by_name)
    assert seen() > before


def test_both_hosts_of_a_model_answer():
    """Neither is dead weight behind the other."""
    marks = {}
    for host in ("gpu1", "gpu2"):
        marks[host] = ssh(host, "journalctl -u tether-ingress -o cat --show-cursor -n 0").stdout
    for _request in range(12):
        client(f"curl -sS --fail -m 30 {by_name(*MODELS[0])}/v1/models")
    for host, mark in marks.items():
        cursor = mark.strip().removeprefix("-- cursor: ")
        log = ssh(host, f"journalctl -u tether-ingress -o cat --after-cursor '{cursor}'").stdout
        assert '"uri":"/v1/models"' in log, host
