# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The unit and action tests with the oldest ansible-core, kubernetes.core and libraries claimed.

What does not depend on them (the tests' own programs) is left out: ``make unit`` runs it.
"""

from __future__ import annotations

import os
import subprocess
import sys

import environments
from paths import COLLECTIONS, ROOT

SUITES = ("tests/unit/plugins",)


def main(words: list[str]) -> int:
    python = environments.make("oldest") / "python"
    print("with", ", ".join(environments.oldest()), flush=True)
    path = os.pathsep.join([str(ROOT / COLLECTIONS), str(environments.tools("oldest"))])
    return subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(words or SUITES)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
