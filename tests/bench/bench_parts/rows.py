# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tables for people."""

from __future__ import annotations

from collections.abc import Sequence


def line(cells: Sequence[str], widths: Sequence[int], numbers: Sequence[int]) -> str:
    """One row of a table.

    :param numbers: the places of the cells that stand at the right of their column
    """
    padded = [
        cell.rjust(width) if place in numbers else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()
