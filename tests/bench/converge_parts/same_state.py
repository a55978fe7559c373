# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Takes down what the collection made on each host, so that the controls can manage the same.

On the controller, below the bed's folder: for each host its files, for all the archives and the
model. The tokens of the bed are among them; the folder is readable by its owner alone.
"""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

from bench_parts.command import run
from bench_parts.places import BED_STATE

from . import hosts
from .places import ON_HOST, STATE

_PROGRAM = (ON_HOST / "describe_state.py").read_text()


def take(host: str) -> dict[str, Any]:
    """The state of a host, each thing with the source that a control copies it from."""
    state: dict[str, Any] = json.loads(run([*hosts.inside(host), "python3", "-"], text_in=_PROGRAM))
    folder = STATE / "files" / host
    if folder.exists():
        shutil.rmtree(folder)
    for entry in state["files"]:
        source = folder / entry["path"].lstrip("/")
        source.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        source.write_bytes(base64.b64decode(entry.pop("content")))
        entry["source"] = str(source)
        entry["secret"] = "/tokens/" in entry["path"]
    for entry in state["models"]:
        entry["source"] = str(BED_STATE / "models" / Path(entry["path"]).name)
    for version in state["versions"]:
        version["source"] = str(_archive(host, version))
    state["health"] = _health(state["units"])
    return state


def _archive(host: str, version: dict[str, str]) -> Path:
    """A version's folder as an archive; the same on every host, so it is made once."""
    path = STATE / "archives" / version["name"]
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        source = hosts.disk(host) / version["path"].lstrip("/")
        run(["tar", "--create", "--gzip", f"--file={new}", f"--directory={source}", "."])
        new.rename(path)
    return path


def _health(units: list[str]) -> list[dict[str, Any]]:
    """What answers when all is well: the ingress refuses, each engine says that it is there."""
    checks: list[dict[str, Any]] = [
        {"url": "https://localhost:9443/", "status": 403, "socket": None, "insecure": True}
    ]
    for unit in units:
        if unit.startswith("tether-engine-"):
            name = unit.removeprefix("tether-engine-").removesuffix(".service")
            socket = f"/run/tether/engines/{name}/engine.sock"
            checks.append({"url": "http://localhost/health", "status": 200, "socket": socket,
                           "insecure": False})  # fmt: skip
    return checks
