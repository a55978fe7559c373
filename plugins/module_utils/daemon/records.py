# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What was loaded into a running process: beside it, in a folder that a boot empties."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Dict

from ansible_collections.tether.fleet.plugins.module_utils import files
from ansible_collections.tether.fleet.plugins.module_utils.daemon import root_folders
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal


def read(folder: str, unit: str) -> Dict[str, Any]:
    """The record of a unit; empty when there is none that can be read, or that root wrote."""
    if any(root_folders.strange(each) for each in (os.path.dirname(folder), folder)):
        return {}
    try:
        with open(_path(folder, unit), encoding="utf-8") as stream:
            record = json.load(stream)
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def write(folder: str, unit: str, record: Dict[str, Any]) -> None:
    for each in (os.path.dirname(folder), folder):
        make_folder(each)
    files.write_file(_path(folder, unit), json.dumps(record).encode("utf-8"), 0o644)


def make_folder(path: str) -> None:
    """A folder for all to read, whatever the umask.

    :raises Refusal: when somebody else made it, who could then swap what root writes in it
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
        os.chmod(path, 0o755)  # noqa: S103 - the records hold nothing secret
    problem = root_folders.strange(path)
    if problem:
        raise Refusal(
            "folder %s" % path,
            problem,
            "a directory of root's that nobody else may write",
            "Move it away and find out who made it, then run again",
        )


def remove(folder: str, unit: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(_path(folder, unit))


def _path(folder: str, unit: str) -> str:
    return os.path.join(folder, unit + ".json")
