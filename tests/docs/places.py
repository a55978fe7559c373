# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where things are, for the programs of this folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGES = ROOT / "docs"
PLUGINS = ROOT / "plugins"
AREAS = HERE / "areas.yml"
# The program and its settings; without them it keeps a log in the home folder.
ANTSIBULL = ("antsibull-docs", "--config-file", str(HERE / "antsibull.cfg"))
SCHEMA = PLUGINS / "plugin_utils" / "inventory_schema.yml"
SERVICES = PLUGINS / "plugin_utils" / "services_schema.yml"
PROGRAMS = Path(sys.executable).parent
COLLECTIONS = ROOT / ".ansible" / "collections"


def environment() -> dict[str, str]:
    """What antsibull-docs and sphinx need around them.

    The collections of the package `ansible` lie in the virtual environment, which git ignores: by
    git's word their folders are empty to antsibull-docs. So git is told not to look there.
    """
    packages = next(PROGRAMS.parent.glob("lib/python*/site-packages"))
    return {
        **os.environ,
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "GIT_CEILING_DIRECTORIES": str(packages / "ansible_collections"),
    }
