# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What every drill under load can be told."""

from __future__ import annotations

import argparse

# Requests of a phase, or of a whole drill: what its promise is made for, and for `make test`.
LONG, SHORT = 1000, 200


def read(doc: str, **numbers: tuple[int, int, str]) -> argparse.Namespace:
    """The options of a drill.

    :param doc: its docstring
    :param numbers: options of its own, each with its long default, its short one, and its meaning
    :return: ``short``, ``requests`` and the options of its own
    """
    numbers = {"requests": (LONG, SHORT, "requests, at least"), **numbers}
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="the short form, for make test")
    for name, (long, short, meaning) in numbers.items():
        defaults = f"{long}, or {short} with --short"
        parser.add_argument(f"--{name}", type=int, help=f"{meaning} ({defaults})")
    options = parser.parse_args()
    for name, (long, short, _meaning) in numbers.items():
        if getattr(options, name) is None:
            setattr(options, name, short if options.short else long)
    return options
