# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The examples of the documentation, put into one playbook and run in check mode.

They are taken from the files as they stand. What they name and do not make is given to them:

* hosts: the inventory is ``inventories/example``, and its ``gpu1`` leads to a real host;
* ``~``: a home folder with a kubeconfig of a real cluster, a passphrase and the models;
* ``/srv/models`` is the one path of an example that is replaced, by a folder with that file in it;
* variables and files that a task before the example would have made.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent
MODELS = "/srv/models"
# Modules that run for the cluster's pseudo host; the others run for a machine.
OF_CLUSTER = {"cluster_survey", "registration", "relay", "relay_probe", "token"}


def documents() -> dict[str, str]:
    """Name of a module or filter -> its examples."""
    found = {}
    for path in sorted((ROOT / "plugins" / "modules").glob("[a-z]*.py")):
        found[path.stem] = path.read_text().split('EXAMPLES = r"""')[1].split('"""')[0]
    for path in sorted((ROOT / "plugins" / "filter").glob("*.yml")):
        found[path.stem] = yaml.safe_load(path.read_text())["EXAMPLES"]
    return found


def tasks(name: str, models: Path) -> list[dict[str, Any]]:
    """The tasks of an example; of variables, a task that evaluates them."""
    written = yaml.safe_load(documents()[name].replace(MODELS, str(models)))
    if isinstance(written, dict):
        written = [{"name": f"Variables of {name}", "ansible.builtin.set_fact": written}]
    return [
        {
            "register": f"of_{name}_{index}",
            **task,
            "name": f"{name}: {task['name']}",
            # One example that fails must not keep the others from running.
            "ignore_errors": True,
        }
        for index, task in enumerate(written)
    ]


def prepare() -> list[dict[str, Any]]:
    """What examples take for granted: minimal facts, and the plan of a checked inventory."""
    return [
        {"name": "prepare: facts", "ansible.builtin.setup": {"gather_subset": ["min"]}},
        {"name": "prepare: check", "tether.fleet.validate": {}, "register": "validated"},
        {
            "name": "prepare: plan",
            "ansible.builtin.set_fact": {"fleet_plan": "{{ validated.plan }}"},
        },
    ]


def playbook(names: list[str], models: Path, given: dict[str, Any]) -> list[dict[str, Any]]:
    """Two plays: what is for machines, then what is for the cluster."""
    handlers = [{"name": "Reload the ingress", "ansible.builtin.meta": "noop"}]
    machine = [task for name in names if name not in OF_CLUSTER for task in tasks(name, models)]
    cluster = [task for name in names if name in OF_CLUSTER for task in tasks(name, models)]
    return [
        {
            "name": "Examples for machines",
            "hosts": "gpu1",
            "gather_facts": False,
            "vars": given,
            "pre_tasks": prepare(),
            "tasks": machine,
            "handlers": handlers,
        },
        {
            "name": "Examples for the cluster",
            "hosts": "cluster",
            "gather_facts": False,
            # The Python that has the libraries, as a note of these modules says.
            "vars": {**given, "ansible_python_interpreter": "{{ ansible_playbook_python }}"},
            "tasks": cluster,
            # Nothing is registered in check mode; the prediction is carried forward, as roles do.
            "module_defaults": {
                "tether.fleet.relay": {
                    "predicted_records": "{{ of_registration_0['records'].values() | list }}"
                }
            },
        },
    ]


def run(
    folder: Path, book: list[dict[str, Any]], host_of: dict[str, str]
) -> dict[str, list[dict[str, Any]]]:
    """Run it; returns the results of each example's tasks, by its name.

    :param folder: the home folder, with everything that examples find there
    :param host_of: the connection variables of ``gpu1``
    """
    (folder / "examples.yml").write_text(yaml.safe_dump(book, sort_keys=False))
    (folder / "address.yml").write_text(
        yaml.safe_dump({"all": {"hosts": {"gpu1": host_of}}}, sort_keys=False)
    )
    # Not the repository's: its callbacks would write between the JSON.
    (folder / "ansible.cfg").write_text("# all settings are in the environment\n")
    done = subprocess.run(
        [
            PROGRAMS / "ansible-playbook", "--check", "--diff",
            "-i", ROOT / "inventories" / "example", "-i", folder / "address.yml",
            folder / "examples.yml",
        ],
        cwd=folder,
        env={
            **os.environ,
            "HOME": str(folder),
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
            "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible" / "collections"),
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_INJECT_FACT_VARS": "False",
            "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
            # Warnings and the like go elsewhere, so that the output is JSON.
            "ANSIBLE_DEPRECATION_WARNINGS": "0",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )  # fmt: skip
    start = done.stdout.find("{")
    assert start >= 0, done.stdout + done.stderr
    found: dict[str, list[dict[str, Any]]] = {}
    for play in json.loads(done.stdout[start:])["plays"]:
        for task in play["tasks"]:
            found.setdefault(task["task"]["name"].split(": ")[0], []).extend(task["hosts"].values())
    return found
