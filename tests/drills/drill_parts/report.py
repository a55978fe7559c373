# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What every drill prints at its end."""

from __future__ import annotations

import json
from typing import Any

from .load import Outcome


def finish(name: str, outcome: Outcome, problems: list[str], **figures: Any) -> int:
    """A drill in which no request may be lost: the losses, then what ``end`` prints."""
    problems += losses(outcome)
    counts = dict(sorted(outcome.good.items()))
    return end(
        name,
        problems,
        requests=outcome.total,
        lost=len(outcome.bad),
        answered=counts,
        **figures,
    )


def losses(outcome: Outcome) -> list[str]:
    """The first losses, in words."""
    return [
        f"lost after {when:.2f} s ({kind}, {took:.2f} s): {lost}"
        for when, kind, lost, took in outcome.bad[:20]
    ]


def end(name: str, problems: list[str], **figures: Any) -> int:
    """The problems and one JSON object; the exit status."""
    for problem in problems:
        print(f"- {problem}")
    print(json.dumps({"name": name, "ok": not problems, "figures": figures}))
    return 1 if problems else 0
