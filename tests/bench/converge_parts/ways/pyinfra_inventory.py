# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The hosts for pyinfra; each host's state is the one that the ordinary playbook gets."""

from __future__ import annotations

import json
import os
from pathlib import Path

_folder = Path(os.environ["TETHER_BENCH_INVENTORY"])
_wanted = json.loads((_folder / "hosts.yml").read_text())["all"]["children"]["fleet_hosts"]["hosts"]


def _data(name: str, address: str) -> dict:
    # No host keys on first use: those of the bed, as for ssh.
    return {
        "ssh_hostname": address,
        "ssh_user": "ops",
        "ssh_key": os.environ["TETHER_BENCH_SSH_KEY"],
        "ssh_known_hosts_file": os.environ["TETHER_BENCH_KNOWN_HOSTS"],
        "ssh_strict_host_key_checking": "yes",
        "ssh_allow_agent": False,
        "ssh_look_for_keys": False,
        "state": json.loads((_folder / "host_vars" / f"{name}.json").read_text()),
    }


fleet_hosts = [(name, _data(name, host["ansible_host"])) for name, host in _wanted.items()]
