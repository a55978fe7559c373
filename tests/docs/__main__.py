# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The documentation: `make pages`, `make docs`, and the part `docs` of `make lint`.

Usage: python tests/docs pages          writes the generated parts of docs/*.md
       python tests/docs lint           lets antsibull-docs look at plugins and roles
       python tests/docs site FOLDER    builds the site; a warning is an error
"""

from __future__ import annotations

import sys
from pathlib import Path

import lint
import pages
import site_builder
from message_tables import GapError


def main(words: list[str]) -> int:
    match words:
        case ["pages"]:
            for page in pages.write():
                print(f"wrote {page}")
            return 0
        case ["lint"]:
            return lint.run()
        case ["site", folder]:
            return site_builder.build(Path(folder).resolve())
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except GapError as error:
        sys.exit(str(error))
