# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The benchmarks' own bed: up, down, and questions to it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from .command import run
from .places import BED, ROOT

_TESTBED = (sys.executable, str(ROOT / "tests" / "testbed"), "--bed", BED)


def up(hosts: Sequence[str], *, fresh: bool) -> None:
    """Bring the bed up with these hosts.

    :param fresh: from nothing: what an earlier run left would be measured too
    """
    if fresh:
        down()
    run([*_TESTBED, "up", "--hosts", ",".join(hosts)], timeout=3000)


def down() -> None:
    run([*_TESTBED, "down"])


def status() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(run([*_TESTBED, "status", "--json"]))
    return content


def kubectl(*arguments: str, text_in: str | None = None, timeout: float = 900) -> str:
    return run([*_TESTBED, "kubectl", *arguments], text_in=text_in, timeout=timeout)


def objects(kind: str, *arguments: str) -> list[dict[str, Any]]:
    """The objects of a kind."""
    text = kubectl("get", kind, "-o", "json", *arguments)
    items: list[dict[str, Any]] = json.loads(text)["items"]
    return items
