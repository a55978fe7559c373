# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""fleet_ca and identity through ansible-playbook, for several hosts in parallel."""

from __future__ import annotations

import getpass
import grp
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from ansible_collections.tether.fleet.plugins.plugin_utils import ca

ROOT = Path(__file__).resolve().parents[2]
PASSPHRASE = "correct horse battery"
HOSTS = {"gpu%d" % number: "10.0.0.%d" % number for number in range(1, 5)}
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - tether.fleet.fleet_ca:
        ca_dir: "{{ base }}/ca"
        fleet: demo
        ca_passphrase: "{{ passphrase }}"
      run_once: true
    - tether.fleet.identity:
        host: "{{ inventory_hostname }}"
        addresses: ["{{ address }}"]
        ca_dir: "{{ base }}/ca"
        ca_passphrase: "{{ passphrase }}"
        directory: "{{ base }}/{{ inventory_hostname }}"
        owner: "{{ account }}"
        group: "{{ account_group }}"
"""


class Fleet:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "play.yml").write_text(PLAY)
        lines = ["%s address=%s" % pair for pair in HOSTS.items()]
        lines += ["[all:vars]", "ansible_connection=local", "base=%s" % folder]
        lines += ["ansible_python_interpreter=%s" % sys.executable]
        lines += ["account=%s" % getpass.getuser()]
        lines += ["account_group=%s" % grp.getgrgid(os.getgid()).gr_name]
        (folder / "inventory").write_text("\n".join(lines) + "\n")
        (folder / "secret.json").write_text(json.dumps({"passphrase": PASSPHRASE}))

    def play(self, *arguments: str) -> Tuple[Dict[str, List[Dict[str, str]]], str]:
        """What changed by host, and everything that was printed."""
        done = subprocess.run(
            [
                *(str(Path(sys.executable).parent / "ansible-playbook"), "-vvv", "--diff"),
                *("-i", "inventory", "play.yml", "-e", "@secret.json", *arguments),
            ],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env={
                **os.environ,
                "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible" / "collections"),
                "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
                "ANSIBLE_FORKS": "4",
                "ANSIBLE_NOCOLOR": "1",
            },
        )
        assert done.returncode == 0, done.stdout + done.stderr
        result = json.loads(done.stdout[done.stdout.index("{\n") :])
        changes: Dict[str, List[Dict[str, str]]] = {}
        for task in result["plays"][0]["tasks"]:
            for host, found in task["hosts"].items():
                changes[host] = changes.get(host, []) + found["changes"]
        return changes, done.stdout + done.stderr


def test_check_run_and_run_again(tmp_path: Path) -> None:
    pytest.importorskip("ansible_collections.ansible.posix")
    fleet = Fleet(tmp_path)
    predicted, _text = fleet.play("--check")
    assert not (tmp_path / "ca").exists()
    changed, text = fleet.play()
    assert changed == predicted
    assert all(len(changes) >= 4 for changes in changed.values())
    assert set(ca.record(str(tmp_path / "ca"))) == set(HOSTS)

    keys: List[Any] = [tmp_path / host / "host.key" for host in HOSTS]
    assert len({key.read_text() for key in keys}) == len(HOSTS)
    secrets = [line for key in keys for line in key.read_text().split("\n")[1:3]]
    again, more = fleet.play()
    assert not any(again.values())
    for secret in [*secrets, PASSPHRASE, "PRIVATE KEY"]:
        assert secret not in text + more
