# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ansible_collections.tether.fleet.plugins.module_utils import ssh_session


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


def test_what_the_caller_says_counts():
    given = "10.1.1.1 1 10.1.1.2 22"
    assert ssh_session.find_session(given) == {"peer": "10.1.1.1", "port": 22}
