# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Notes what each task changed on each host, so that a check can be compared with its run.

Writes one JSON list a run to a file named after ``TETHER_RECORD``: ``<name>.check.1.json`` for the
first check, ``<name>.run.1.json`` for the first run, and so on. Only runs of converge.yml and
site.yml count. A list is ``[{"task", "host", "changed", "changes", "differences"}, ...]`` in the
results' order.
"""

from __future__ import annotations

import json
import os

from ansible import context
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: record_changes
type: notification
short_description: Note what each task changed
description: [Used by the tests alone.]
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "record_changes"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        self.rows = []
        self.playbook = ""

    def v2_playbook_on_start(self, playbook):
        self.playbook = os.path.basename(playbook._file_name)

    def v2_runner_on_ok(self, result):
        self.rows.append(
            {
                "task": result._task.get_name(),
                "host": result._host.get_name(),
                "changed": bool(result._result.get("changed")),
                "changes": result._result.get("changes", []),
                # What a survey found of each part.
                "differences": result._result.get("differences", {}),
            }
        )

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.v2_runner_on_ok(result)

    def v2_playbook_on_stats(self, stats):
        target = os.environ.get("TETHER_RECORD")
        if not target or self.playbook not in ("converge.yml", "site.yml"):
            return
        kind = "check" if context.CLIARGS.get("check") else "run"
        number = next(n for n in range(1, 1000) if not os.path.exists(f"{target}.{kind}.{n}.json"))
        with open(f"{target}.{kind}.{number}.json", "w", encoding="utf-8") as stream:
            json.dump(self.rows, stream, indent=1)
