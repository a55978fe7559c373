# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs nft, and reads its JSON (libnftables-json(5))."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any, Dict, List, Optional

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

TABLE = ("inet", "tether")


def program() -> Optional[str]:
    """Absolute path of nft, or None."""
    return shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin")


def own_listing(nft: str) -> Optional[str]:
    """The fleet's table as the kernel has it now, one rule a line; None when there is none."""
    done = _run([nft, "-j", "list", "table", *TABLE])
    if done.returncode != 0:
        if "No such file or directory" in done.stderr:
            return None
        raise _broken(done)
    return normalise(_parse(done))


def ruleset(nft: str) -> List[Dict[str, Any]]:
    """All objects of all tables."""
    done = _run([nft, "-j", "list", "ruleset"])
    if done.returncode != 0:
        raise _broken(done)
    return _parse(done)


def normalise(objects: List[Dict[str, Any]]) -> str:
    """A listing as text in which only what filters packets counts.

    Handles, counters' values and the order in which the kernel lists a set's elements vary from
    load to load.
    """
    lines = []
    for item in objects:
        if "metainfo" not in item:
            lines.append(json.dumps(_plain(item), sort_keys=True))
    return "\n".join(lines) + "\n"


def check(nft: str, text: str) -> None:
    """Let nft try the text without loading it.

    :raises Refusal: with nft's own words
    """
    done = _run([nft, "-c", "-f", "-"], text)
    if done.returncode != 0:
        raise _broken(done, "nft -c")


def delete_own(nft: str) -> None:
    """Remove the fleet's table; it may be gone already."""
    done = _run([nft, "-f", "-"], "table inet tether {}\ndelete table inet tether\n")
    if done.returncode != 0:
        raise _broken(done)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"set"} and isinstance(value["set"], list):
            items = [_plain(item) for item in value["set"]]
            return {"set": sorted(items, key=lambda item: json.dumps(item, sort_keys=True))}
        if set(value) == {"counter"}:
            return {"counter": None}
        return {key: _plain(item) for key, item in value.items() if key not in ("handle", "index")}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _parse(done: subprocess.CompletedProcess[str]) -> List[Dict[str, Any]]:
    try:
        found = json.loads(done.stdout)["nftables"]
    except (ValueError, KeyError, TypeError):
        raise _broken(done) from None
    return [item for item in found if isinstance(item, dict)]


def _broken(done: subprocess.CompletedProcess[str], what: str = "nft") -> Refusal:
    said = " ".join(done.stderr.split()) or "output that is no JSON"
    return Refusal(
        what,
        "status %d: %s" % (done.returncode, said[:500]),
        "an answer",
        "Run it by hand as root; nft needs a kernel with nf_tables and a build with JSON",
    )


def _run(argv: List[str], text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, input=text, capture_output=True, text=True, errors="replace", check=False
    )
