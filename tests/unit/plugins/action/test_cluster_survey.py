# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The question to the cluster through a real ansible-playbook, as far as it needs no cluster.

What it answers is tested on a real one (tests/integration/test_cluster_handover.py, molecule).
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest
import yaml

from ansible_collections.tether.fleet.plugins.module_utils.cluster import arguments
from ansible_collections.tether.fleet.plugins.plugin_utils import cluster_question

ROOT = pathlib.Path(__file__).resolve().parents[4]
WANTED = {
    "fleet": "demo",
    "image": "envoy@sha256:" + "0" * 64,
    "ca_certificate": "",
    "models": [],
    "namespaces": [],
}
CLOSED = "https://127.0.0.1:{closed}"
# name -> the options that differ, the task's environment, and what is said of it
CASES = {
    "a whole kubeconfig": ({"kubeconfig": {"users": []}}, {}, "kubeconfig: found a mapping"),
    "a name": ({"fleet": "no label"}, {}, "fleet 'no label': found a name that no label"),
    "an option": ({"relay": 1}, {}, "Unsupported parameters"),
    # What kubernetes.core reads where a task says nothing.
    "nobody there": ({}, {"K8S_AUTH_HOST": CLOSED, "K8S_AUTH_API_KEY": "no"}, "API at " + CLOSED),
    "by the variable": ({}, {"KUBECONFIG": "{folder}/config"}, "API at " + CLOSED),
    "by a file": ({"kubeconfig": "{folder}/config"}, {}, "API at " + CLOSED),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("play")


@pytest.fixture(scope="module")
def told(place):
    """Name of a case -> (what is said, what is expected in it); all in one run."""
    with socket.socket() as one:
        # Bound and not listening: every connection is refused, and nobody else gets the port.
        one.bind(("127.0.0.1", 0))
        words = {"closed": str(one.getsockname()[1]), "folder": str(place)}

        def filled(value):
            return value.format(**words) if isinstance(value, str) else value

        write_config(place, filled(CLOSED))
        tasks = [
            {
                "name": name,
                "tether.fleet.cluster_survey": {
                    **WANTED,
                    **{key: filled(value) for key, value in options.items()},
                },
                "environment": {key: filled(value) for key, value in environment.items()},
                "ignore_errors": True,
            }
            for name, (options, environment, _expected) in CASES.items()
        ]
        answers = run(place, [{"hosts": "localhost", "gather_facts": False, "tasks": tasks}])
    return {name: (answers[name], filled(CASES[name][2])) for name in CASES}


def write_config(place, server):
    """A kubeconfig with a client's certificate and key in it, as kubeadm writes them."""
    key, certificate = place / "key.pem", place / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-subj", "/CN=admin", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )  # fmt: skip

    def coded(path):
        return base64.b64encode(path.read_bytes()).decode()

    user = {"client-certificate-data": coded(certificate), "client-key-data": coded(key)}
    cluster = {"server": server, "certificate-authority-data": coded(certificate)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "one", "cluster": cluster}],
        "users": [{"name": "one", "user": user}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "current-context": "one",
    }
    (place / "config").write_text(json.dumps(config))


def run(place, plays):
    (place / "play.yml").write_text(yaml.safe_dump(plays))
    (place / "tmp").mkdir()
    done = subprocess.run(
        [pathlib.Path(sys.executable).with_name("ansible-playbook"), place / "play.yml"],
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible" / "collections"),
            "ANSIBLE_CALLBACKS_ENABLED": "tether.fleet.progress",
            "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
            "ANSIBLE_LOCAL_TEMP": str(place / "local"),
            "KUBECONFIG": str(place / "none"),
            "TMPDIR": str(place / "tmp"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    return {
        task["task"]["name"]: task["hosts"]["localhost"]
        for play in json.loads(done.stdout)["plays"]
        for task in play["tasks"]
    }


@pytest.mark.parametrize("name", CASES)
def test_refusals(told, name):
    answer, expected = told[name]
    assert answer["failed"]
    assert expected in answer["msg"], answer["msg"]


def test_no_credential_stays_in_a_file(told, place):
    """The kubernetes library writes a kubeconfig's key into files of the temporary folder."""
    assert list((place / "tmp").iterdir()) == []
    assert [path for path in (place / "local").rglob("*") if path.is_file()] == []


def test_no_credential_is_in_a_result():
    options = dict.fromkeys(cluster_question.AUTH_ARG_SPEC) | {
        "api_key": "first",
        "password": "second",
        "proxy_headers": {"basic_auth": "third", "user_agent": "fourth", "proxy_basic_auth": None},
        "kubeconfig": "/home/config",
    }
    result = {"msg": "first, second, third, fourth of /home/config", "failed": True}
    assert cluster_question.without_secrets(result, options) == {
        "msg": "********, ********, ********, fourth of /home/config",
        "failed": True,
    }


def test_its_documentation_names_its_options():
    """There is no module's code that ansible-test could compare with it."""
    text = (ROOT / "plugins" / "modules" / "cluster_survey.py").read_text()
    documented = yaml.safe_load(text.split('DOCUMENTATION = r"""')[1].split('"""')[0])["options"]
    own = {
        key: item
        for key, item in cluster_question.ARGUMENT_SPEC.items()
        if key not in cluster_question.AUTH_ARG_SPEC and key not in arguments.FLEET_ARG_SPEC
    }
    assert set(documented) == set(own)
    for key, item in own.items():
        for name in ("type", "default", "required", "choices", "elements"):
            assert documented[key].get(name) == item.get(name), (key, name)
