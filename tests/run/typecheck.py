# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""mypy over each tree of Python by itself: every program of the tests has its own import root."""

from __future__ import annotations

import os
import subprocess
import sys

from paths import COLLECTIONS, LINKED, ROOT

# (what is checked, the import roots it has at run time)
TREES = [
    ((f"{LINKED}/plugins",), (COLLECTIONS,)),
    (("tests/run",), ("tests/run",)),
    (("tests/testbed",), ("tests/testbed",)),
    (("tests/bench",), ("tests/bench", "tests/integration")),
    (("tests/callbacks",), ("tests/callbacks",)),
    (("tests/demo",), ("tests/demo",)),
    (("tests/docs",), ("tests/docs",)),
]


def main() -> int:
    status = 0
    for paths, roots in TREES:
        if not any(any((ROOT / path).rglob("*.py")) for path in paths):
            continue
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--no-error-summary", *paths],
            cwd=ROOT,
            env={**os.environ, "MYPYPATH": os.pathsep.join((*roots, COLLECTIONS))},
            check=False,
        )
        status |= done.returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
