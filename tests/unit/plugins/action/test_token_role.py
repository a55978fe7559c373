# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The token role in runs of ansible-playbook: its failures are told, its tokens are not."""

from __future__ import annotations

import base64
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.cluster import labels, tokens
from ansible_collections.tether.fleet.plugins.plugin_utils.summary import CONTROLLER, HIDDEN

ROOT = Path(__file__).resolve().parents[4]
ANSIBLE = Path(sys.executable).with_name("ansible-playbook")
PLACE = "tether-fleet"
CREDENTIAL = "xyzzy-must-not-show"

pytestmark = pytest.mark.skipif(not ANSIBLE.exists(), reason="needs ansible-playbook")


def play(folder: Path, port: int, *options: str) -> Tuple[int, str, Dict[str, Any]]:
    """Status, all output, and the summary's document of a run against an API server there."""
    server = "http://127.0.0.1:%d" % port
    entry = {"cluster": "c", "user": "u"}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": CREDENTIAL}}],
        "contexts": [{"name": "x", "context": entry}],
    }
    (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
    plays = [
        {
            "hosts": "all",
            "gather_facts": False,
            "vars": {
                "fleet_name": "demo",
                "fleet_kubeconfig": str(folder / "kubeconfig"),
                "fleet_plan": {"namespaces": ["team-a", "team-b"]},
            },
            "roles": ["tether.fleet.token"],
            "tasks": [
                {
                    "name": "Go on",
                    "ansible.builtin.debug": {
                        "msg": "went on with {{ token_result.tokens | length }}"
                    },
                }
            ],
        }
    ]
    (folder / "play.yml").write_text(json.dumps(plays))
    (folder / "ansible.cfg").write_text("[defaults]\ncallbacks_enabled = tether.fleet.summary\n")
    document = folder / "summary.json"
    document.unlink(missing_ok=True)
    done = subprocess.run(
        [ANSIBLE, "-i", "gpu1,gpu2,", "-c", "local", "play.yml", *options],
        cwd=folder,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible" / "collections"),
            "ANSIBLE_LOCAL_TEMP": str(folder / "local"),
            "ANSIBLE_REMOTE_TMP": str(folder / "remote"),
            "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
            "ANSIBLE_NOCOLOR": "1",
            # kubernetes.core keeps there what it knows of a server, by its address.
            "TMPDIR": str(folder),
            "TETHER_SUMMARY_JSON": str(document),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr, json.loads(document.read_text())


def secret(namespace: str, **data: str) -> Dict[str, Any]:
    return {
        "metadata": {"name": labels.token_name(namespace), "namespace": PLACE},
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
    }


class Api(http.server.BaseHTTPRequestHandler):
    """As much of an API server as a run needs that finds all Secrets there: its answers."""

    items: List[Dict[str, Any]] = []

    def do_GET(self) -> None:
        answers: Dict[str, Any] = {
            # What the client library asks first.
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "groups": []},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": []},
            "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
            "/api/v1/namespaces/%s/secrets" % PLACE: {"kind": "SecretList", "items": self.items},
        }
        answer = answers.get(self.path.partition("?")[0])
        body = json.dumps(answer or {"message": "not found"}).encode()
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        pass


@pytest.fixture
def api() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("options", [(), ("--check",)])
def test_why_there_are_no_tokens_is_told(tmp_path: Path, options: Tuple[str, ...]) -> None:
    with socket.socket() as taken:
        # Bound and not listening: nobody else answers there meanwhile.
        taken.bind(("127.0.0.1", 0))
        status, text, document = play(tmp_path, taken.getsockname()[1], "-vvv", *options)
    assert status != 0
    said = "found connection refused; expected an answer. See whether the API server runs"
    _before, fatal = text.split("fatal: ")
    assert said in " ".join(fatal.split())
    (failure,) = document["hosts"][CONTROLLER]["failures"]
    assert failure["task"] == "tether.fleet.token : Say why there are no tokens"
    assert said in failure["message"]
    assert HIDDEN not in json.dumps(document)
    assert CREDENTIAL not in text
    # Once for all hosts, and none of them goes on without tokens.
    assert "went on" not in text


def test_a_failure_with_tokens_at_hand_tells_none(
    tmp_path: Path, api: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, broken = tokens.new_token(), tokens.new_token() + "-and-more"
    pair = [secret("team-a", current=good, generation="1")]
    monkeypatch.setattr(Api, "items", [*pair, secret("team-b", current=broken, generation="1")])
    status, text, document = play(tmp_path, api, "-vvv")
    assert status != 0
    (failure,) = document["hosts"][CONTROLLER]["failures"]
    assert "Secret tether-fleet/token-team-b, key current" in failure["message"]
    assert "something that is not a token" in failure["message"]
    assert "went on" not in text

    monkeypatch.setattr(Api, "items", [*pair, secret("team-b", current=good, generation="1")])
    status, went, document = play(tmp_path, api, "-vvv")
    assert status == 0
    assert document["ok"]
    # Every host has what one of them asked for.
    assert went.count("went on with 2") == 2

    for value in (good, broken, CREDENTIAL):
        assert value not in text + went
        assert base64.b64encode(value.encode()).decode() not in text + went
