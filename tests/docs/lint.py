# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""antsibull-docs on the collection: schema and markup of all documentation, and its pages."""

from __future__ import annotations

import subprocess

from places import ANTSIBULL, ROOT, environment


def run() -> int:
    # References to collections that this one depends on are checked too.
    return subprocess.run(
        [
            *ANTSIBULL, "lint-collection-docs", "--plugin-docs", "--check-extra-docs-refs",
            "--validate-collection-refs", "dependent", ".",
        ],
        cwd=ROOT,
        env=environment(),
        check=False,
    ).returncode  # fmt: skip
