# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What ships: the archive is built, looked at, installed into an empty folder, used from there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PLUGIN_TYPES = {
    "modules": "module", "filter": "filter", "test": "test", "lookup": "lookup",
    "callback": "callback",
}  # fmt: skip

# Beside what galaxy itself adds. A file that matches none of these has no business in the archive.
ALLOWED = re.compile(
    r"""(
    MANIFEST\.json | FILES\.json | README\.md | LICENSE | CONTRIBUTING\.md | CHANGELOG\.rst
    | fleet\.lock\.yml | requirements\.(in|txt|yml) | bindep\.txt
    | meta/(runtime|execution-environment)\.yml
    | changelogs/(config|changelog)\.yaml
    | docs/.+\.(md|rst|svg|png|yml|json)
    | plugins/(action|callback|doc_fragments|filter|lookup|module_utils|modules|plugin_utils|test)/
      .+\.(py|json|ya?ml|j2)
    | roles/[a-z_]+/(defaults|files|handlers|meta|tasks|templates|vars)/.+
    | playbooks/.+\.(ya?ml|j2|md)
    | inventories/example/.+
    )""",
    re.VERBOSE,
)
REQUIRED = [
    "README.md", "LICENSE", "requirements.txt", "meta/runtime.yml", "playbooks/site.yml",
    "fleet.lock.yml", "bindep.txt", "meta/execution-environment.yml",
    "inventories/example/ansible.cfg",
]  # fmt: skip
SECRETS = [
    re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/]{20}"),
    re.compile(rb"\$ANSIBLE_VAULT;"),
]


def run(*argv: object, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in argv],
        cwd="/",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    run(BIN / "ansible-galaxy", "collection", "build", ROOT, "--output-path", folder)
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def files(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        assert not [member.name for member in members if member.issym() or member.islnk()]
        return {
            member.name: stream.read()
            for member in members
            if member.isfile() and (stream := tar.extractfile(member))
        }


@pytest.fixture(scope="module")
def installed(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An empty collections path with the archive installed, from no server and with no dependency.

    Returns the environment in which Ansible finds collections there (and those of its own package).
    """
    path = tmp_path_factory.mktemp("collections")
    settings = tmp_path_factory.mktemp("settings") / "ansible.cfg"
    settings.write_text("# nothing of the user's\n")
    environment = {"ANSIBLE_COLLECTIONS_PATH": str(path), "ANSIBLE_CONFIG": str(settings)}
    run(
        BIN / "ansible-galaxy", "collection", "install", "--offline", "--no-deps", archive,
        "--collections-path", path, **environment,
    )  # fmt: skip
    return environment


@pytest.fixture(scope="module")
def documentation(installed: dict[str, str]) -> dict[tuple[str, str], dict[str, Any]]:
    """What ansible-doc says of every plugin of the installed collection: one call a kind."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for kind in {kind for kind, _ in documented()}:
        names = [name for each, name in documented() if each == kind]
        wanted = [f"tether.fleet.{name}" for name in names]
        text = json.loads(run(BIN / "ansible-doc", "--json", "-t", kind, *wanted, **installed))
        found.update({(kind, name): text.get(f"tether.fleet.{name}", {}) for name in names})
    return found


def documented() -> list[tuple[str, str]]:
    return [
        (kind, path.stem)
        for folder, kind in PLUGIN_TYPES.items()
        for path in sorted((ROOT / "plugins" / folder).glob("[a-z]*.py"))
        if path.stem != "__init__"
    ]


def test_nothing_else_ships(files: dict[str, bytes]) -> None:
    assert [name for name in files if not ALLOWED.fullmatch(name)] == []


@pytest.mark.parametrize("name", REQUIRED)
def test_ships(files: dict[str, bytes], name: str) -> None:
    assert name in files


def test_every_plugin_and_role_ships(files: dict[str, bytes]) -> None:
    """A new kind of file that the manifest's patterns do not know would be left behind."""
    tracked = run(
        "git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "plugins", "roles", "playbooks"
    )
    missing = [
        name for name in tracked.splitlines() if name not in files and (ROOT / name).exists()
    ]
    assert missing == []


def test_no_secret_ships(files: dict[str, bytes]) -> None:
    assert [
        name for name, text in files.items() if any(each.search(text) for each in SECRETS)
    ] == []


def test_manifest(files: dict[str, bytes]) -> None:
    info = json.loads(files["MANIFEST.json"])["collection_info"]
    assert (info["namespace"], info["name"]) == ("tether", "fleet")
    assert info["license"] == ["GPL-3.0-or-later"]
    assert "kubernetes.core" in info["dependencies"]


@pytest.mark.parametrize("plugin", documented(), ids=" ".join)
def test_documented_where_it_is_installed(
    documentation: dict[tuple[str, str], dict[str, Any]], plugin: tuple[str, str]
) -> None:
    entry = documentation[plugin]
    assert "doc" in entry, entry
    assert entry["doc"]["short_description"]
    assert entry["examples"].strip(), "EXAMPLES is missing or empty"
    if plugin[0] == "module":
        assert entry["return"], "RETURN is missing or empty"


def test_roles_are_documented_where_they_are_installed(installed: dict[str, str]) -> None:
    text = run(BIN / "ansible-doc", "--json", "-t", "role", "-l", "tether.fleet", **installed)
    found = {name.removeprefix("tether.fleet.") for name in json.loads(text)}
    assert found == {
        path.parent.parent.name for path in ROOT.glob("roles/*/meta/argument_specs.yml")
    }
