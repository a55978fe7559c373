# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host that was taken over answers every module with lies; it costs that host alone."""

from __future__ import annotations

import json

import pytest
from bed import STATE, ssh
from days import Day, good_run, served

SITE = "/etc/python3.11/sitecustomize.py"
TAKEN = STATE / "taken"
TOKENS = "/etc/tether/ingress/tokens"
# Facts were variables once: this one has the controller run a program of the host's choice.
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "x",
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    "users": [
        {
            "name": "u",
            "user": {
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "interactiveMode": "Never",
                    "command": "/bin/sh",
                    "args": ["-c", f"id >{TAKEN}; exit 1"],
                }
            },
        }
    ],
}
LIE = {
    "changed": False,
    "parts": {"nonsense": {"differs": "{{ 1 + 1 }}", "actions": [], "facts": {}}},
    "differences": {},
    "preflight": {"platform": "plan9-vax"},
    "platform": "plan9-vax",
    "certificates": ["{{ lookup('ansible.builtin.pipe', 'id') }}"],
    "namespaces": ["away"],
    "record": {"host": "gpu1"},
    "msg": "\x1b[8m all is well",
    "ansible_facts": {"fleet_kubeconfig": KUBECONFIG, "fleet_name": "other"},
}
# A module is a program on Python's standard input: nothing but the interpreter is on its line.
LIAR = f"""cp {SITE} /root/sitecustomize.py
cat >> {SITE} <<'END'
import os, sys
if len(sys.orig_argv) == 1:
    sys.stdin.buffer.read()
    os.write(1, {json.dumps(LIE).encode()!r})
    os._exit(0)
END
"""


@pytest.fixture(scope="module")
def day():
    TAKEN.unlink(missing_ok=True)
    ssh("gpu1", f"chmod 0777 {TOKENS}")
    ssh("gpu4", LIAR)
    return Day()


def test_the_host_alone_fails_and_is_named(day):
    assert day.status != 0
    assert day.row("gpu4")["failed"] == 1
    day.says("this host's answer to the survey: found other parts", "it may have been taken over")
    assert "\x1b[8m" not in day.output


def test_nothing_ran_on_the_controller(day):
    assert not TAKEN.exists()


def test_the_others_are_mended(day):
    assert day.row("gpu1")["failed"] == 0
    assert day.row("gpu1")["changed"] > 0
    assert ssh("gpu1", f"stat -c %a {TOKENS}").stdout.strip() != "777"


def test_the_models_of_the_others_go_on(day):
    assert served("steady", "steady")


def test_the_next_good_run_finishes_the_job():
    ssh("gpu4", f"mv /root/sitecustomize.py {SITE}")
    good_run()
