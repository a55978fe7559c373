# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The archive, installed into an empty environment, provisions a fleet; nothing is the checkout's.

Once with the oldest versions that are claimed, once with those that the README has users install;
each on a host of its own, from nothing to a model that answers, and again without a change.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT / "tests" / "run", Path(__file__).parent):
    sys.path.insert(0, str(folder))
archive = importlib.import_module("archive")
environments = importlib.import_module("environments")
fleet = importlib.import_module("fleet")

HOSTS = {"oldest": "gpu1", "newest": "gpu2"}
SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Downloads, which no run needs twice; verified by digest at each use.
DEPOT = Path.home() / ".cache" / "tether.fleet" / "depot"
RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.M)


@pytest.fixture(scope="module")
def bed() -> Iterator[Any]:
    one = fleet.Bed(os.environ.get("TETHER_PACKAGE_BED", "package"), tuple(HOSTS.values()))
    one.up()
    yield one
    one.down()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(archive.build(tmp_path_factory.mktemp("archive")))


@dataclass
class User:
    """A person with a home and a virtual environment, and nothing else."""

    name: str
    home: Path
    programs: Path

    @property
    def fleet(self) -> Path:
        return self.home / "fleet"

    def run(self, *argv: object, folder: Path | None = None) -> str:
        done = subprocess.run(
            [self.programs / str(argv[0]), *map(str, argv[1:])],
            cwd=folder or self.home,
            # Not the caller's environment: no ANSIBLE_*, no PYTHONPATH, no programs of a checkout.
            env={
                "HOME": str(self.home),
                "PATH": f"{self.programs}:{SYSTEM}",
                "LANG": "C.UTF-8",
                "COLUMNS": "100",
                **{key: os.environ[key] for key in ("http_proxy", "https_proxy", "no_proxy")
                   if key in os.environ},
            },
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        text = done.stdout + done.stderr
        assert done.returncode == 0, text[-12000:]
        return text

    def converge(self) -> tuple[str, Any]:
        """Run the site playbook, as the README says; returns its output and its summary."""
        text = self.run("ansible-playbook", "-vvv", "tether.fleet.site", folder=self.fleet)
        return text, json.loads((self.home / "last-run.json").read_text())


@pytest.fixture(scope="module", params=HOSTS)
def user(
    request: pytest.FixtureRequest, built: Path, bed: Any, tmp_path_factory: pytest.TempPathFactory
) -> User:
    home = tmp_path_factory.mktemp(f"home-{request.param}")
    one = User(request.param, home, environments.make(request.param))
    # kubernetes.core comes with the package `ansible`: so there is no dependency left to ask for.
    one.run("ansible-galaxy", "collection", "install", "--offline", "-p",
            home / ".ansible" / "collections", built)  # fmt: skip
    one.fleet.mkdir()
    example = home / ".ansible/collections/ansible_collections/tether/fleet/inventories/example"
    shutil.copy(example / "ansible.cfg", one.fleet)
    with (one.fleet / "ansible.cfg").open("a") as stream:
        stream.write(f"\n[callback_tether_fleet_summary]\njson_file = {home}/last-run.json\n")
    fleet.write(one.fleet, one.name, bed, HOSTS[one.name], DEPOT)
    return one


@pytest.fixture(scope="module")
def first(user: User) -> tuple[str, Any]:
    return user.converge()


def test_from_nothing_to_a_model_that_answers(user: User, first: tuple[str, Any]) -> None:
    text, summary = first
    key = f"{user.name}-a/tiny"
    assert summary["ok"] is True
    assert summary["hosts"][HOSTS[user.name]]["changes"]
    model = summary["models"][key]
    assert (model["state"], model["answers"]) == ("served", True)
    assert model["url"] == f"http://tiny.{user.name}-a.svc"
    table = text.partition("FLEET SUMMARY")[2]
    assert re.search(rf"^{key} .*{re.escape(model['url'])}$", table, re.M), table
    assert "nothing failed." in table


def test_the_versions_are_those_that_are_claimed(user: User) -> None:
    wanted = {
        line.split("==")[0]: line.split("==")[1] for line in environments.VERSIONS[user.name]()
    }
    assert f"[core {wanted['ansible-core']}]" in user.run("ansible", "--version")
    listing = json.loads(user.run("ansible-galaxy", "collection", "list", "--format", "json"))
    found = {name: row["version"] for path in listing.values() for name, row in path.items()}
    low, high = re.fullmatch(r">=([\d.]+),<([\d.]+)", claimed()).groups()  # type: ignore[union-attr]
    version = found["kubernetes.core"]
    if user.name == "oldest":
        assert version == low
    assert number(low) <= number(version) < number(high)


def test_everything_comes_from_what_was_installed(user: User, first: tuple[str, Any]) -> None:
    text, _summary = first
    assert str(ROOT) not in text
    collections = f"{user.home}/.ansible/collections"
    tasks = set(re.findall(r"^task path: (\S+):\d+$", text, re.M))
    assert tasks and all(path.startswith(collections) for path in tasks), tasks
    modules = set(re.findall(r"Using module file (\S+)", text))
    assert any(path.startswith(collections) for path in modules)
    assert all(path.startswith((collections, str(user.programs.parent))) for path in modules), (
        modules
    )
    assert f"Using {user.fleet}/ansible.cfg as config file" in text


def test_a_second_run_changes_nothing(user: User, first: tuple[str, Any]) -> None:
    text, summary = user.converge()
    recap = RECAP.findall(text)
    assert {row[0] for row in recap} == {HOSTS[user.name], "cluster"}
    assert all(row[2:] == ("0", "0", "0") for row in recap), recap
    rows = [*summary["hosts"].values(), *summary["models"].values()]
    assert summary["ok"] and rows
    assert not any(row["changes"] for row in rows)


def test_no_secret_is_in_what_the_runs_said(user: User, bed: Any, first: tuple[str, Any]) -> None:
    passphrase = (bed.state / "ca_passphrase").read_text().strip()
    assert passphrase not in first[0] + json.dumps(first[1])
    assert "PRIVATE KEY" not in first[0]


def claimed() -> str:
    """The range of kubernetes.core in galaxy.yml."""
    (found,) = re.findall(r'^  kubernetes\.core: "(.+)"', (ROOT / "galaxy.yml").read_text(), re.M)
    return str(found)


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
