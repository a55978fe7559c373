# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The collection's archive: build it, and unpack it where Ansible looks for collections."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from paths import BIN, ROOT


def build(folder: Path) -> Path:
    """Build the archive into ``folder``; returns its path.

    Of a copy of what git knows or would add: the build walks its whole folder, and trips when
    another check's cache changes under it.
    """
    names = _call(["git", "ls-files", "-co", "--exclude-standard"], ROOT).splitlines()
    with tempfile.TemporaryDirectory(prefix="tether-build-") as copy:
        for name in names:
            if (ROOT / name).is_file():
                target = Path(copy) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target)
        _call([BIN / "ansible-galaxy", "collection", "build", "--output-path", folder], Path(copy))
    (archive,) = folder.glob("tether-fleet-*.tar.gz")
    return archive


def unpack(archive: Path, collections: Path) -> Path:
    """Unpack into ``collections``/ansible_collections/tether/fleet; returns that folder."""
    target = collections / "ansible_collections" / "tether" / "fleet"
    target.mkdir(parents=True)
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")
    return target


def _call(argv: list[str | Path], folder: Path) -> str:
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{argv} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
