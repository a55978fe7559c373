# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ansible_collections.tether.fleet.plugins.module_utils import ssh_session
from ansible_collections.tether.fleet.plugins.module_utils.daemon import commands
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("10.9.9.9 50000 10.9.0.1 22", {"peer": "10.9.9.9", "port": 22}),
        ("fe80::1%eth0 50000 fe80::2%eth0 2222", {"peer": "fe80::1", "port": 2222}),
        ("::ffff:10.9.9.9 50000 ::ffff:10.9.0.1 22", {"peer": "10.9.9.9", "port": 22}),
        ("", None),
        ("UNKNOWN 65535 UNKNOWN 65535", None),
        ("10.9.9.9 50000 10.9.0.1 ssh", None),
        ("10.9.9.9 50000 10.9.0.1 0", None),
    ],
)
def test_parse(text, wanted):
    assert ssh_session.parse(text) == wanted


def test_what_sudo_drops_is_found_further_up():
    inner = (
        "from ansible_collections.tether.fleet.plugins.module_utils.ssh_session import"
        " find_session; print(find_session())"
    )
    # A shell that has the variable, env -u in sudo's place, and the module's process below.
    outer = 'env -u SSH_CONNECTION "$0" -c "$1"; true'
    done = subprocess.run(
        ["sh", "-c", outer, sys.executable, inner],
        env={
            **os.environ,
            "SSH_CONNECTION": "10.1.2.3 4 10.1.2.4 2222",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "{'peer': '10.1.2.3', 'port': 2222}"


# sshd's two processes of a session, a shell, sudo: the nearer sshd also has what ssh forwards.
_ABOVE = "  800     1\n  801   800\n  802   801\n%5d   802\n"
_HELD = (
    "p801\ncsshd-session\nf9\ntIPv4\nn127.0.0.1:51000->127.0.0.1:8080\n"
    "f4\ntIPv6\nn[fd00::1]:2222->[fd00::9]:50000\n"
    "p800\ncsshd-session\nf4\ntIPv6\nn[fd00::1]:2222->[fd00::9]:50000\n"
    "p802\ncother\nf5\ntIPv4\nn10.0.0.1:443->10.0.0.2:50000\n"
)


@pytest.mark.parametrize(
    ("lsof", "wanted"),
    [
        ((0, _HELD), {"peer": "fd00::9", "port": 2222}),
        ((0, "p802\ncother\nf5\ntIPv4\nn10.0.0.1:443->10.0.0.2:50000\n"), None),
        ((1, ""), None),
        ((127, ""), Refusal),
    ],
)
def test_a_macs_session_is_its_sshds_connection(monkeypatch, lsof, wanted):
    asked = []

    def run(argv, timeout, **environment):
        asked.append(argv)
        out = _ABOVE % os.getpid() if argv[0] == "ps" else lsof[1]
        return subprocess.CompletedProcess(argv, 0 if argv[0] == "ps" else lsof[0], out, "")

    monkeypatch.setattr(commands, "run", run)
    monkeypatch.setattr(ssh_session.platform, "system", lambda: "Darwin")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    if wanted is Refusal:
        # None would pass for no session, whose port nobody keeps open.
        with pytest.raises(Refusal, match="nothing that can be read from lsof"):
            ssh_session.find_session()
    else:
        assert ssh_session.find_session() == wanted
        assert asked[-1][-5:] == [
            *("-a", "-p", "%d,802,801,800" % os.getpid(), "-iTCP", "-sTCP:ESTABLISHED"),
        ]


def test_what_the_caller_says_counts():
    given = "10.1.1.1 1 10.1.1.2 22"
    assert ssh_session.find_session(given) == {"peer": "10.1.1.1", "port": 22}
