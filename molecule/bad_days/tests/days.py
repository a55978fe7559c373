# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the tests of bad days have in common: whole runs, and what they say."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from bed import kubectl, site


class Day:
    """One run of site.yml and its outcome.

    :ivar text: what it said, with every run of blanks as one, so that no line break hides a message
    """

    def __init__(self, *arguments: str) -> None:
        start = time.monotonic()
        done = site(*arguments)
        self.status, self.output = done.returncode, done.stdout + done.stderr
        self.text = " ".join(self.output.split())
        print(self.output, f"\n{time.monotonic() - start:.0f} s")

    def says(self, *parts: str) -> None:
        """Each of these is in what the run said, and no stack trace is."""
        assert "Traceback (most recent call last)" not in self.output, self.output
        for part in parts:
            assert part in self.text, part

    def row(self, host: str) -> Counter[str]:
        """A host's line of the recap; all zero for one that the run never came to."""
        found = re.search(rf"(?m)^{host} +: (.*)$", self.output)
        text = found[1] if found else ""
        return Counter({key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", text)})


def good_run() -> None:
    """The next good run finishes the job: everything is served, and the one after it has nothing
    left to do."""
    done = Day()
    assert done.status == 0
    again = Day("--check")
    assert again.status == 0
    assert not re.search(r"changed=[1-9]", again.output)


def apply(*objects: dict[str, Any]) -> None:
    """Put objects into the cluster, as somebody else."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    kubectl("apply", "-f", "-", text_in=text)


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def served(model: str, place: str) -> bool:
    """Whether a model answers at its Service, asked through the API server as an administrator."""
    path = f"/api/v1/namespaces/{place}/services/http:{model}:80/proxy/v1/models"
    done = kubectl("get", "--raw", path, check=False)
    return done.returncode == 0 and json.loads(done.stdout)["data"][0]["id"] == model


def eventually(what: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.3)
