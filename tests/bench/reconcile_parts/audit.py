# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the API server was asked, by its own audit log."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bench_parts.places import BED_STATE

_LOG = BED_STATE / "audit.log"
READS = frozenset({"get", "list", "watch"})
# How the Python client calls itself; the cluster's own parts and kubectl are Go programs.
_CLIENT = "OpenAPI-Generator/"


class Ledger:
    """Counts the requests of Python's client between two moments. One of them runs at a time."""

    def __init__(self) -> None:
        self._place = _LOG.stat().st_size

    def counts(self) -> dict[str, int]:
        """Requests since the beginning, by the audit log's verb."""
        return dict(sorted(Counter(str(entry["verb"]) for entry in self.entries()).items()))

    def entries(self) -> Iterator[dict[str, Any]]:
        """What was asked since the beginning."""
        _settle()
        with _LOG.open("rb") as stream:
            stream.seek(self._place)
            for line in stream:
                entry = json.loads(line)
                if str(entry.get("userAgent", "")).startswith(_CLIENT):
                    yield entry


def writes(counts: dict[str, int]) -> int:
    return sum(number for verb, number in counts.items() if verb not in READS)


def _settle() -> None:
    """A request is written down just after its answer."""
    time.sleep(0.5)
