# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Calls the load generator."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_parts.command import run
from bench_parts.places import BenchError

PATH = "/v1/chat/completions"
# One token of a stream: what comes first is all that is timed.
BODY = json.dumps(
    {
        "model": "bench",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 1,
        "stream": True,
        "cache_prompt": False,
    }
)


@dataclass(frozen=True)
class Client:
    """The built load generator."""

    program: Path

    def turns(self, targets: Mapping[str, str], rounds: int) -> dict[str, Any]:
        """Every target is asked once a round.

        :param targets: name to address: ``host:port``, or the path of a unix socket
        :return: by name ``{"first": [milliseconds to the first byte], "errors"}``
        """
        found: dict[str, Any] = self._call("turns", targets, rounds=rounds)
        return found

    def wait(self, address: str, seconds: float = 30) -> None:
        """Until a target answers: a proxy first has to find its host healthy.

        :raises BenchError: when it does not
        """
        end = time.monotonic() + seconds
        while errors := self.turns({"one": address}, 1)["one"]["errors"]:
            if time.monotonic() > end:
                raise BenchError(f"{address} does not answer within {seconds:.0f} s: {errors[0]}")
            time.sleep(0.2)

    def push(self, address: str, clients: int, seconds: float) -> dict[str, Any]:
        """One target, asked by so many clients at once, each with one request at a time."""
        plan: dict[str, Any] = {"clients": clients, "seconds": seconds}
        return self._call("push", {"one": address}, **plan)

    def _call(self, word: str, targets: Mapping[str, str], **more: Any) -> dict[str, Any]:
        listed = [
            {"name": name, "network": "unix" if "/" in where else "tcp", "address": where}
            for name, where in targets.items()
        ]
        plan = json.dumps({"targets": listed, "path": PATH, "body": BODY, **more})
        found: dict[str, Any] = json.loads(run([self.program, word, plan]))
        return found
