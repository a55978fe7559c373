# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kills the whole run, as a power cut of the controller would: used by tests/drills/killed.py
alone.

``TETHER_KILL_AT`` is the number of a task (from 1), or a part of its name; the run ends at its
start. With ``TETHER_KILL_AFTER`` the task may still work for so many seconds. ``TETHER_TASKS`` is a
file that gets the name of each task.
"""

from __future__ import annotations

import os
import signal
import threading

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: kill_at
type: notification
short_description: End the run with SIGKILL
description: [Used by the tests alone.]
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "kill_at"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        self.number = 0
        self.here = False

    def v2_playbook_on_task_start(self, task, is_conditional):
        self.number += 1
        with open(os.environ["TETHER_TASKS"], "a", encoding="utf-8") as stream:
            stream.write(task.get_name() + "\n")
        wanted = os.environ.get("TETHER_KILL_AT") or "0"
        own = task.get_name().rpartition(" : ")[2]
        self.here = self.number == int(wanted) if wanted.isdigit() else wanted == own
        if self.here and not os.environ.get("TETHER_KILL_AFTER"):
            _end()

    def v2_runner_on_start(self, host, task):
        """The first host begins with the task in which the run is to end."""
        if self.here:
            self.here = False
            timer = threading.Timer(float(os.environ["TETHER_KILL_AFTER"]), _end)
            timer.daemon = True
            timer.start()


def _end():
    # The run is a session of its own: its workers and ssh clients end with it.
    os.killpg(os.getpgid(0), signal.SIGKILL)
