# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The image's definition: ansible-builder takes it, and finds in the archive what to install.

No image is built: that takes a registry, Galaxy's server and a container engine.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "run"))
archive = importlib.import_module("archive")
environments = importlib.import_module("environments")
DEFINITION = yaml.safe_load((ROOT / "execution-environment.yml").read_text())
# ansible-builder installs the first two by itself; the third is for building the archive.
NOT_LISTED = {"ansible", "ansible-core", "distlib"}


def run(*argv: object, folder: Path) -> str:
    done = subprocess.run(
        list(map(str, argv)),
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ansible-builder makes of the definition and of the archive."""
    folder = tmp_path_factory.mktemp("image")
    (folder / "build").mkdir()
    archive.build(folder / "build")
    shutil.copy(ROOT / "execution-environment.yml", folder)
    run(environments.make("builder") / "ansible-builder", "create", folder=folder)
    return folder / "context"


def pins() -> dict[str, str]:
    return dict(line.split("==") for line in environments.newest())


def test_the_context_holds_the_archive_where_the_image_looks_for_it(context: Path) -> None:
    """As in the image's second stage: ansible-galaxy started beside requirements.yml."""
    run(
        Path(sys.executable).with_name("ansible-galaxy"), "collection", "install", "--offline",
        "-r", "requirements.yml", "-p", context / "collections", folder=context / "_build",
    )  # fmt: skip
    assert (context / "collections/ansible_collections/tether/fleet/playbooks/site.yml").exists()


def test_the_images_recipe(context: Path) -> None:
    (recipe,) = [path for path in context.iterdir() if path.name in ("Containerfile", "Dockerfile")]
    text = recipe.read_text()
    image = DEFINITION["images"]["base_image"]["name"]
    assert f'ARG EE_BASE_IMAGE="{image}"' in text
    assert re.search(r":\d+\.\d+$|@sha256:[0-9a-f]{64}$", image), "the base image is not pinned"
    assert f"ansible-core=={pins()['ansible-core']} ansible-runner==" in text


def test_the_packages_are_those_that_were_tried() -> None:
    wanted = {re.split("[><=]", line)[0] for line in environments.oldest()} - NOT_LISTED
    assert DEFINITION["dependencies"]["python"] == [
        f"{name}=={pins()[name]}" for name in pins_in_order(wanted)
    ]


def test_builder_finds_what_the_collection_needs(context: Path, tmp_path: Path) -> None:
    archive.unpack(next((context.parent / "build").glob("*.tar.gz")), tmp_path)
    found: Any = yaml.safe_load(
        run(
            environments.make("builder") / "ansible-builder",
            "introspect",
            tmp_path,
            folder=tmp_path,
        )
    )
    python = [line.split("#")[0].strip() for line in found["python"]]
    names = {re.split("[><=]", line)[0] for line in python}
    assert names == {line.split("==")[0] for line in environments.oldest()} - {
        "ansible",
        "ansible-core",
    }
    assert all(">=" in line for line in python)
    assert any(line.startswith("openssh-clients [platform:rpm]") for line in found["system"])


def pins_in_order(names: set[str]) -> list[str]:
    """In the order of requirements.in."""
    return [line.split("==")[0] for line in environments.oldest() if line.split("==")[0] in names]
