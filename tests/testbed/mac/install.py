# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Puts the emulated Mac's programs into a root folder, at the paths that they have on a Mac."""

from __future__ import annotations

import shutil
from pathlib import Path

from .places import ROOT_VARIABLE

LIBRARY = "usr/lib/emulated-mac"
"""Where the code itself goes, below the root."""

PROGRAMS = {
    "launchctl": "bin/launchctl",
}
"""Module in `tools`, and its program's path below the root."""

# Isolated from the caller's variables and packages, as the real programs are.
_LAUNCHER = """\
#!/usr/bin/python3 -IS
# Emulated {name}, part of an emulated Mac: see docs/testing.md of tether.fleet.
import os, sys
sys.path.insert(0, {library!r})
os.environ.setdefault({variable!r}, {root!r})
from mac import program
from mac.tools import {module} as tool
sys.exit(program.run({name!r}, tool.main))
"""
_FOLDERS = (
    "Library/LaunchDaemons",
    "Library/LaunchAgents",
    "Users/Shared",
    "var/db/com.apple.xpc.launchd",
    "var/log",
    "var/run",
    "etc",
)


def programs(root: Path, seen_as: str) -> None:
    """Install the programs.

    :param root: the folder to fill
    :param seen_as: how the programs see that folder when they run: `/` on a host
    """
    for name in _FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    library = root / LIBRARY / "mac"
    shutil.rmtree(library, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(__file__).parent, library, ignore=ignored)
    for module, path in PROGRAMS.items():
        program = root / path
        program.parent.mkdir(parents=True, exist_ok=True)
        # Never through a link that is there: usr-merged systems have /bin/X and /usr/bin/X in one.
        program.unlink(missing_ok=True)
        program.write_text(
            _LAUNCHER.format(
                name=program.name,
                library=str(Path(seen_as) / LIBRARY),
                variable=ROOT_VARIABLE,
                root=seen_as,
                module=module,
            )
        )
        program.chmod(0o755)
