# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the tests of a scenario need of the bed: its hosts, its cluster, its client pod."""

from __future__ import annotations

import base64
import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
# Another scenario with a bed of its own uses these helpers too, and says so before it imports them.
SCENARIO = ROOT / "molecule" / os.environ.get("MOLECULE_SCENARIO_NAME", "default")
NAME = os.environ.get("TETHER_TEST_BED", "test")
STATE = Path("/var/lib/tether-bed") / NAME
GPU1, GPU2, NEIGHBOUR = "10.99.1.11", "10.99.1.12", "10.99.1.21"
CLIENTS = "clients"


def run(
    *command: str, check: bool = True, timeout: float = 120, text_in: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command and keep its output; the error of a failed one shows both streams."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, input=text_in, check=False
    )
    if check and done.returncode:
        raise AssertionError(f"{command} -> {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def bed(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return run(
        sys.executable, str(ROOT / "tests" / "testbed"), "--bed", NAME, *arguments, **options
    )


def kubectl(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return bed("kubectl", *arguments, **options)


def get(*arguments: str) -> Any:
    return json.loads(kubectl("get", *arguments, "-o", "json").stdout)


# One connection a host for the whole session: a login costs more than most of the commands.
MULTIPLEX = ("ControlMaster=auto", "ControlPersist=60", f"ControlPath={STATE}/mux-%n")


def ssh(host: str, command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a shell command as root on a host of the bed."""
    words = ["ssh", "-F", str(STATE / "ssh_config")]
    for option in MULTIPLEX:
        words += ["-o", option]
    return run(*words, host, "sudo", "sh", "-s", text_in=command, **options)


def client(command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a shell command in the client pod, which mounts nothing and has no rights."""
    return kubectl("exec", "-n", CLIENTS, "client", "--", "sh", "-c", command, **options)


def chat(model: str, body: dict[str, Any]) -> dict[str, Any]:
    """A model's answer to a chat, as the client pod gets it.

    :param model: where it answers, ``http://...``
    """
    said = json.dumps(body)
    answer: dict[str, Any] = json.loads(
        client(
            f"curl -sS --fail-with-body -m 30 {model}/v1/chat/completions"
            f" -H 'Content-Type: application/json' -d '{said}'"
        ).stdout
    )
    return answer


def streamed(model: str, body: dict[str, Any]) -> list[str]:
    """The events of a streamed chat with a model, as the client pod gets them.

    :param model: where it answers, ``http://...``
    """
    said = json.dumps(dict(body, stream=True))
    text = client(
        f"curl -sSN --fail-with-body -m 30 {model}/v1/chat/completions"
        f" -H 'Content-Type: application/json' -d '{said}'"
    ).stdout
    return [line[6:] for line in text.splitlines() if line.startswith("data: ")]


def token(namespace: str) -> str:
    """The namespace's current relay token, read as the fleet's owner."""
    secret = get("secret", f"token-{namespace}", "-n", "tether-fleet")
    return base64.b64decode(secret["data"]["current"]).decode()


def audit_size() -> int:
    """Where the API server's audit log ends now, in bytes."""
    return (STATE / "audit.log").stat().st_size


def requests_since(offset: int) -> list[dict[str, Any]]:
    """What the kubeconfig's user asked of the API server since then, by its own audit log.

    Kubelets and controllers, who have names of their own, go on all the time.
    """
    whoami = json.loads(kubectl("auth", "whoami", "-o", "json").stdout)
    name = whoami["status"]["userInfo"]["username"]
    with (STATE / "audit.log").open(encoding="utf-8") as stream:
        stream.seek(offset)
        events = [json.loads(line) for line in stream if line.strip()]
    return [event for event in events if event["user"]["username"] == name]


def writes(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Those requests that wrote, as verb and path."""
    return [
        (event["verb"], event["requestURI"])
        for event in events
        if event["verb"] in ("create", "update", "patch", "delete", "deletecollection")
        # The probe's POST travels through the API server to the model: it writes nothing there.
        and event.get("objectRef", {}).get("subresource") != "proxy"
        # So does the question who is asking.
        and not event["requestURI"].startswith("/apis/authentication.k8s.io/")
    ]


def declared_models() -> list[dict[str, Any]]:
    """The models of this scenario's inventory, for a test that adds or changes one."""
    text = (SCENARIO / "inventory" / "group_vars" / "all.yml").read_text()
    models: list[dict[str, Any]] = yaml.safe_load(text)["fleet_models"]
    return copy.deepcopy(models)


def site(*arguments: str, **options: Any) -> Any:
    """Run playbooks/site.yml on this scenario's inventory."""
    return playbook("site", *arguments, **options)


def playbook(name: str, *arguments: str, record: str | None = None, **options: Any) -> Any:
    """Run a playbook of the collection on this scenario's inventory."""
    environment = dict(os.environ, ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"), ANSIBLE_NOCOLOR="1")
    if record:
        environment.update(
            ANSIBLE_CALLBACK_PLUGINS=str(ROOT / "tests" / "callbacks"),
            ANSIBLE_CALLBACKS_ENABLED="record_changes",
            TETHER_RECORD=record,
        )
    return subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"),
            str(ROOT / "playbooks" / f"{name}.yml"),
            "-i",
            str(SCENARIO / "inventory"),
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=options.pop("timeout", 600),
        env=environment,
        cwd=ROOT,
        check=False,
    )
