# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Writes what one task took and found to the file named by ``TETHER_BENCH_RECORD``.

``{"seconds", "items", "result"}``: from the task's start to its result, a loop's items, and of the
result what the benchmark asks for.
"""

from __future__ import annotations

import json
import os
import time

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: record_task
type: notification
short_description: Write down what a task took and found
description: [Used by the benchmarks alone.]
"""

_KEPT = ("changed", "failed", "msg", "requests", "changes", "models", "orphans", "tokens")


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "record_task"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        self.start = 0.0

    def v2_playbook_on_task_start(self, task, is_conditional):
        self.start = time.monotonic()

    def v2_runner_on_ok(self, result):
        seconds = time.monotonic() - self.start
        found = result._result
        record = {
            "seconds": seconds,
            "items": len(found.get("results", [])),
            "result": {key: found[key] for key in _KEPT if key in found},
        }
        # It may hold tokens.
        descriptor = os.open(os.environ["TETHER_BENCH_RECORD"], os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(record, stream)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.v2_runner_on_ok(result)
