# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The question to the cluster through a real ansible-playbook, as far as it needs no cluster.

What it answers is tested on a real one (tests/integration/test_cluster_handover.py, molecule).
"""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[4]
WANTED = {
    "fleet": "demo",
    "image": "envoy@sha256:" + "0" * 64,
    "ca_certificate": "",
    "models": [],
    "namespaces": [],
}
# name -> the options that differ, where K8S_AUTH_HOST points, and what is said of it
CASES = {
    "a whole kubeconfig": (
        {"kubeconfig": {"users": []}},
        "",
        "kubeconfig: found a mapping",
    ),
    "a name": ({"fleet": "no label"}, "", "fleet 'no label': found a name that no label"),
    "an option": ({"relay": 1}, "", "Unsupported parameters"),
    "nobody there": ({}, "https://127.0.0.1:{closed}", "127.0.0.1:{closed}"),
}


def access(host):
    """What kubernetes.core reads where a task says nothing."""
    return {"K8S_AUTH_HOST": host, "K8S_AUTH_API_KEY": "an example, not real"}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Name of a case -> the task's result; all in one run."""
    folder = tmp_path_factory.mktemp("play")
    with socket.socket() as one:
        # Bound and not listening: every connection is refused, and nobody else gets the port.
        one.bind(("127.0.0.1", 0))
        closed = str(one.getsockname()[1])
        tasks = [
            {
                "name": name,
                "tether.fleet.cluster_survey": {**WANTED, **options},
                "environment": access(host.format(closed=closed)) if host else {},
                "ignore_errors": True,
            }
            for name, (options, host, _words) in CASES.items()
        ]
        play = {"hosts": "localhost", "gather_facts": False, "tasks": tasks}
        (folder / "play.yml").write_text(yaml.safe_dump([play]))
        done = subprocess.run(
            [pathlib.Path(sys.executable).with_name("ansible-playbook"), folder / "play.yml"],
            env={
                **os.environ,
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible" / "collections"),
                "ANSIBLE_CALLBACKS_ENABLED": "tether.fleet.progress",
                "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
                "KUBECONFIG": str(folder / "none"),
            },
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    found = {
        task["task"]["name"]: task["hosts"]["localhost"]
        for play in json.loads(done.stdout)["plays"]
        for task in play["tasks"]
    }
    return found, closed


@pytest.mark.parametrize("name", CASES)
def test_refusals(said, name):
    found, closed = said
    answer = found[name]
    assert answer["failed"]
    assert CASES[name][2].format(closed=closed) in answer["msg"], answer["msg"]
