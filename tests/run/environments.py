# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Virtual environments beside .venv: of the oldest and newest versions claimed, of a tool.

They hold what a user installs and nothing of the tests. Kept in the user's cache under a digest of
what is in them, so that they are made once a change of the requirements.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from paths import CACHE, ROOT

# A requirement of requirements.in: its name, and its lower bound.
_BOUND = re.compile(r"(?P<name>[A-Za-z0-9_-]+)>=(?P<version>[0-9.]+)")
# What runs the unit tests, at the versions of requirements-dev.txt, in a folder beside the
# environment: a package of theirs must not stand in for one that a user lacks.
_TOOLS = ("pytest", "hypothesis")


def oldest() -> list[str]:
    """Every requirement at its lower bound."""
    lines = [line.split("#")[0].strip() for line in _read("requirements.in")]
    found = []
    for line in filter(None, lines):
        bound = _BOUND.match(line)
        if not bound:
            raise SystemExit(f"requirements.in: {line!r} has no lower bound (name>=version)")
        found.append(f"{bound['name']}=={bound['version']}")
    return found


def newest() -> list[str]:
    """What the README has users install."""
    return [line.split("#")[0].strip() for line in _read("requirements.txt")]


def builder() -> list[str]:
    """ansible-builder, whose own needs are nobody else's."""
    return ["ansible-builder==3.2.0"]


VERSIONS = {"oldest": oldest, "newest": newest, "builder": builder}


def make(name: str) -> Path:
    """Make the environment, if it is not there; returns its folder of programs."""
    folder = _cached(name, VERSIONS[name]())
    if not (folder / ".ready").exists():
        with _lock(folder):
            _build(folder, VERSIONS[name]())
    return folder / "bin"


def tools(name: str) -> Path:
    """A folder for PYTHONPATH with what runs the unit tests in that environment."""
    pins = [line.split("#")[0].strip() for line in _read("requirements-dev.txt")]
    wanted = [pin for pin in pins if pin.split("==")[0] in _TOOLS]
    python = make(name) / "python"
    folder = _cached(f"{name}-tools", [str(python), *wanted])
    if not (folder / ".ready").exists():
        with _lock(folder):
            shutil.rmtree(folder, ignore_errors=True)
            _pip(python, "--target", str(folder), *wanted)
            (folder / ".ready").touch()
    return folder


def _build(folder: Path, wanted: list[str]) -> None:
    if (folder / ".ready").exists():  # another run has just made it
        return
    # Programs of an environment know its path, so it is made in place; a half-made one has no mark.
    shutil.rmtree(folder, ignore_errors=True)
    print(f"   making {folder} (a minute)", flush=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    _pip(folder / "bin" / "python", *wanted)
    (folder / ".ready").touch()


def _pip(python: Path, *arguments: str) -> None:
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            # --no-compile: `ansible` alone is 20,000 files, of which a run needs a few hundred.
            [python, "-m", "pip", "install", "--quiet", "--no-compile",
             "--disable-pip-version-check", *arguments],
            cwd=empty, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"pip install {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Two runs at a time make it once."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _cached(name: str, contents: list[str]) -> Path:
    text = "\n".join([sys.version, *contents])
    return CACHE / "environments" / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _read(name: str) -> list[str]:
    return (ROOT / name).read_text().splitlines()
