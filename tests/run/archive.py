# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The collection's archive: build it, and unpack it where Ansible looks for collections."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

from paths import BIN, ROOT


def build(folder: Path) -> Path:
    """Build the archive into ``folder``; returns its path."""
    done = subprocess.run(
        [BIN / "ansible-galaxy", "collection", "build", "--force", "--output-path", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"ansible-galaxy collection build failed:\n{done.stdout}{done.stderr}")
    (archive,) = folder.glob("tether-fleet-*.tar.gz")
    return archive


def unpack(archive: Path, collections: Path) -> Path:
    """Unpack into ``collections``/ansible_collections/tether/fleet; returns that folder."""
    target = collections / "ansible_collections" / "tether" / "fleet"
    target.mkdir(parents=True)
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")
    return target
