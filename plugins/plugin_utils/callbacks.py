# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the callback plugins have in common: whose a task is, and whether people read along."""

from __future__ import annotations

from typing import Any

from ansible import constants

# Callbacks whose standard output a program reads, or that ask for silence: one line more breaks it.
_FOR_PROGRAMS = ("json", "jsonl", "junit", "null", "selective", "dense")


def action_of(task: Any) -> str:
    """The full name of a task's action, also where the play wrote a short one."""
    return str(getattr(task, "resolved_action", None) or task.action)


def people_read() -> bool:
    """Whether standard output is for people."""
    return str(constants.DEFAULT_STDOUT_CALLBACK).rsplit(".", 1)[-1] not in _FOR_PROGRAMS
