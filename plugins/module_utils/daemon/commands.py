# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs the host's own programs, whose words are read: in English, with an end."""

from __future__ import annotations

import os
import subprocess
from typing import List


def run(
    argv: List[str], timeout: float, text: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program; one that hangs or does not exist is a status of its own.

    :param text: its input
    :param environment: variables beside the module's own
    """
    try:
        return subprocess.run(
            argv,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=dict(os.environ, LC_ALL="C", **environment),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, "", "no answer within %d s" % timeout)
    except FileNotFoundError:
        return subprocess.CompletedProcess(argv, 127, "", "no program %s" % argv[0])
    except OSError as error:
        return subprocess.CompletedProcess(argv, 126, "", "%s: %s" % (argv[0], error.strerror))


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The first line of what a program said."""
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[0] if lines else "no message"
