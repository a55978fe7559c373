# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is built once and kept: entries named by a hash of what they are made of."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

from . import files
from .layout import CACHE_ROOT, LOCKS


def key(*parts: str | bytes | Path) -> str:
    """A name for inputs; a path stands for what is in the file."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            part = part.read_bytes()
        elif isinstance(part, str):
            part = part.encode()
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:16]


def entry(kind: str, name: str) -> Path:
    """Where an entry is, or would be."""
    return CACHE_ROOT / f"{kind}-{name}"


def ensure(kind: str, name: str, build: Callable[[Path], None]) -> tuple[Path, bool]:
    """Return an entry, built if it is not there yet, and whether it was built.

    It is built under another name and renamed when it is complete, so that no
    interruption leaves half an entry. The lock makes a second command wait for
    the first one's build instead of building the same.
    """
    path = entry(kind, name)
    if path.exists():
        return path, False
    with files.locked(LOCKS / f"build-{kind}"):
        if path.exists():
            return path, False
        for abandoned in CACHE_ROOT.glob(f".{kind}-*"):
            files.remove_tree(abandoned)
        temporary = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=CACHE_ROOT))
        temporary.chmod(0o755)
        try:
            build(temporary)
            temporary.rename(path)
        finally:
            files.remove_tree(temporary)
    return path, True
