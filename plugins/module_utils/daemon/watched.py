# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files that a process reads: what it must have read, and whether it can have."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional

from ansible_collections.tether.fleet.plugins.module_utils.daemon import base


def reload_digest(entry: Dict[str, Any]) -> Optional[str]:
    """What a running process must have loaded since; None when it has nothing to reload."""
    if not entry["reload_files"]:
        return None
    return base.digest_of(base.watched_digests(entry["reload_files"]))


def newest(items: List[Dict[str, Any]]) -> Optional[float]:
    """The newest change of watched files; infinity when one is not (yet) what is expected."""
    found: Optional[float] = None
    for item in items:
        if item.get("sha256") and base.file_digest(item["path"]) != item["sha256"]:
            return float("inf")
        try:
            # ctime: a rename of an older file into place counts as a change of now.
            changed = os.stat(item["path"]).st_ctime
        except OSError:
            return float("inf")
        found = changed if found is None else max(found, changed)
    return found


def must_reload(
    record: Mapping[str, Any],
    loaded: Optional[str],
    newest_change: Optional[float],
    started: Optional[float],
) -> bool:
    """Whether a running process has yet to read its files again.

    :param record: what is recorded of this very process; empty when nothing is
    :param loaded: as ``reload_digest`` gives it
    :param started: when the process started, in seconds since the epoch
    """
    if loaded is None or record.get("loaded") == loaded:
        return False
    if "loaded" not in record and newest_change is not None and started is not None:
        # The supervisor started this process by itself. It has read what was there; a second is
        # left for clocks that tick coarsely.
        return newest_change >= started - 1
    return True
