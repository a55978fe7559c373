# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which machines the drain role takes a pattern for, in runs of ansible-playbook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, List, Tuple

import pytest

ROOT = Path(__file__).resolve().parents[4]
ANSIBLE = Path(sys.executable).with_name("ansible-playbook")

pytestmark = pytest.mark.skipif(not ANSIBLE.exists(), reason="needs ansible-playbook")

INVENTORY = {
    "all": {
        "children": {
            "fleet_hosts": {
                "children": {"pair": {"hosts": {"gpu1": {}, "gpu2": {}}}},
                "hosts": {"gpu3": {}, "gpu-4": {}},
            },
            "fleet_cluster": {"hosts": {"cluster": {}}},
            "others": {"hosts": {"web": {}}},
        },
        "vars": {"ansible_connection": "local"},
    }
}
EVERY = ["gpu-4", "gpu1", "gpu2", "gpu3"]
MEANT: List[Tuple[Any, List[str]]] = [
    ("gpu1", ["gpu1"]),
    ("gpu1,gpu3", ["gpu1", "gpu3"]),
    ("gpu1:gpu3", ["gpu1", "gpu3"]),
    ("gpu1, gpu-4", ["gpu-4", "gpu1"]),
    (["gpu1", "gpu3"], ["gpu1", "gpu3"]),
    ("pair", ["gpu1", "gpu2"]),
    ("pair:!gpu1", ["gpu2"]),
    ("fleet_hosts:&pair", ["gpu1", "gpu2"]),
    ("gpu*", EVERY),
    ("pair[0:1]", ["gpu1", "gpu2"]),
    ("~gpu[12]", ["gpu1", "gpu2"]),
    # What is no machine of the fleet is never meant.
    ("all", EVERY),
]
REFUSED: List[Tuple[Any, str]] = [
    ("gpu9", "found gpu9, no machine of the fleet"),
    # The others would drain, and this one be taken for drained.
    ("gpu1:gpu9,gpu8", "found gpu8, gpu9, no machine"),
    ("pair:!gpu9", "found gpu9, no machine"),
    ("gpu1,web", "found web, no machine"),
    ("others", 'found "others", no machine'),
    ("", 'found "", no machine'),
    ([], "found [], no machine"),
]


def play(folder: Path, hosts: str, found: str, patterns: List[Any]) -> List[Any]:
    """What the role says of each pattern.

    :param found: expression that is kept when the role refuses nothing
    """
    (folder / "hosts.json").write_text(json.dumps(INVENTORY))
    role = {"name": "tether.fleet.drain", "tasks_from": "hosts"}
    said = {"said": "{{ ansible_failed_result.msg }}"}
    plays = [
        {
            "hosts": hosts,
            "gather_facts": False,
            "vars": {"drain_hosts": pattern},
            "tasks": [
                {"ansible.builtin.set_fact": {"said": ""}},
                {
                    "block": [{"ansible.builtin.import_role": role}],
                    "rescue": [{"ansible.builtin.set_fact": said}],
                },
                {
                    "ansible.builtin.copy": {
                        "content": "{{ (said or (%s | sort)) | to_json }}" % found,
                        "dest": f"{folder}/{number}.json",
                        "mode": "0600",
                    },
                    "run_once": True,
                },
            ],
        }
        for number, pattern in enumerate(patterns)
    ]
    (folder / "play.yml").write_text(json.dumps(plays))
    done = subprocess.run(
        [ANSIBLE, "-i", "hosts.json", "play.yml"],
        cwd=folder,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible" / "collections"),
            "ANSIBLE_LOCAL_TEMP": str(folder / "local"),
            "ANSIBLE_REMOTE_TMP": str(folder / "remote"),
            "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((folder / f"{number}.json").read_text()) for number in range(len(patterns))]


def test_who_is_meant_and_who_is_refused(tmp_path: Path) -> None:
    patterns = [pattern for pattern, _result in (*MEANT, *REFUSED)]
    said = play(tmp_path, "fleet_cluster", "__drain_hosts", patterns)
    assert said[: len(MEANT)] == [hosts for _pattern, hosts in MEANT]
    for found, (_pattern, text) in zip(said[len(MEANT) :], REFUSED, strict=True):
        assert text in found


def test_those_who_are_meant_are_a_group(tmp_path: Path) -> None:
    found = play(tmp_path, "fleet_hosts:fleet_cluster", "groups.tether_drain", ["gpu1,gpu-4"])
    assert found == [["gpu-4", "gpu1"]]
