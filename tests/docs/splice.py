# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The generated part of a page that people write: between two comments that name it."""

from __future__ import annotations

import re


def splice(page: str, name: str, body: str) -> str:
    """``page`` with its part ``name`` replaced.

    :raises ValueError: when the page has no such part
    """
    begin, end = f"<!-- begin {name}: made by make pages -->", f"<!-- end {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"the page has no line {begin!r} with a line {end!r} after it")
    return pattern.sub(lambda _match: f"{begin}\n\n{body.strip()}\n\n{end}", page)
