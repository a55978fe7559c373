# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A server that only its owner's catalogue file describes, on a loopback port of its host.

The program is llama-server once more, as the only one that is pinned for the bed; nothing of the
collection's own file for it is used.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from bed import chat, client, declared_models, site, ssh

ENGINE = {
    "engine": "house",
    "title": "the house's server",
    "artifact": "llama_server",
    "listener": "tcp",
    "argv": ["--model", "{file}", "--host", "127.0.0.1", "--port", "{port}", "--alias", "{model}"],
    "health": {"path": "/health", "status": 200, "timeout": 60},
    "stop_timeout": 10,
    "paths": [
        {"path": "/v1/models", "methods": ["GET"]},
        {"path": "/v1/chat/completions", "methods": ["POST"]},
    ],
}
PORT = 8099
URL = "http://own.team-b.svc"
DAEMON = "tether-engine-team-b.own"


def test_a_server_by_its_owners_file(tmp_path: Path) -> None:
    models = declared_models()
    (tiny,) = [model for model in models if model["name"] == "tiny"]
    pin = yaml.safe_load((Path(__file__).parents[3] / "fleet.lock.yml").read_text())
    llama = pin["artifacts"]["llama_server"]
    binary = llama["platforms"]["linux-x86_64"]["binary"]
    table = {
        "version": llama["version"],
        "flags": [
            *(
                {"names": [name], "type": "string", "collection": "it decides who reaches what"}
                for name in ("--model", "--host", "--port", "--alias")
            ),
            {"names": ["--ctx-size"], "type": "int", "min": 1, "max": 4096},
        ],
    }
    own = dict(
        tiny, name="own", namespace="team-b", engine="house", hosts=["gpu2"], engine_port=PORT
    )
    own.update(replicas=1, args=["--ctx-size", "256"])
    settings = {"fleet_engines_dir": str(tmp_path), "fleet_models": [*models, own]}
    # What the file does not list is refused, and so is a file that is none.
    (tmp_path / "house.yml").write_text(yaml.safe_dump({"engine": "house"}))
    done = site("--tags", "validate", "-e", json.dumps(settings))
    assert done.returncode != 0
    told = " ".join(done.stdout.split())
    assert f"fleet_engines_dir: {tmp_path}/house.yml: (file): 'title' is a required" in told
    (tmp_path / "house.yml").write_text(
        yaml.safe_dump({**ENGINE, "binary": binary, "arguments": table})
    )
    wrong = dict(own, args=["--threads", "1"])
    done = site("--tags", "validate", "-e", json.dumps({**settings, "fleet_models": [wrong]}))
    assert done.returncode != 0
    assert "team-b/own: args[0]: " in " ".join(done.stdout.split())
    try:
        done = site("-e", json.dumps(settings))
        assert done.returncode == 0, done.stdout
        ask = {"max_tokens": 3, "messages": [{"role": "user", "content": "hi"}]}
        answer = chat(URL, ask)
        assert answer["usage"]["completion_tokens"] >= 1
        # Paths that its file does not list end at the ingress.
        statuses = client(f"curl -s -o /dev/null -w '%{{http_code}}' -m 30 {URL}/props").stdout
        assert statuses == "403"
        # Nobody on the host but the ingress reaches its port.
        look = f"curl -s -o /dev/null -m 3 http://127.0.0.1:{PORT}/health"
        assert ssh("gpu2", f"runuser -u tether-ingress -- {look}").returncode == 0
        assert ssh("gpu2", f"runuser -u ops -- {look}", check=False).returncode != 0
        again = site("-e", json.dumps(settings))
        assert "nothing changed, nothing failed" in again.stdout, again.stdout
    finally:
        done = site("-e", "relay_prune=true")
        ssh(
            "gpu2",
            f"systemctl disable --now --quiet {DAEMON}; rm -f /etc/systemd/system/{DAEMON}.service;"
            " systemctl daemon-reload",
        )
    assert done.returncode == 0, done.stdout
