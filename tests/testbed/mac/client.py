# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Asking the emulated launchd."""

from __future__ import annotations

import json
import socket
from typing import Any

from . import places
from .program import EX_SOFTWARE, ProgramError


def ask(request: dict[str, Any]) -> dict[str, Any]:
    """Send a request, wait for the answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(places.socket_path()))
        except OSError as error:
            text = f"emulated Mac: launchd does not answer: {error}"
            raise ProgramError(EX_SOFTWARE, text) from error
        connection.sendall((json.dumps(request) + "\n").encode())
        line = connection.makefile("rb").readline()
    if not line:
        raise ProgramError(EX_SOFTWARE, "emulated Mac: launchd hung up")
    answer: dict[str, Any] = json.loads(line)
    return answer


def unlock() -> None:
    """Type the password that unlocks the disk; a test does, no tool of a Mac over ssh can."""
    ask({"verb": "unlock", "kind": "system", "uid": 0})
