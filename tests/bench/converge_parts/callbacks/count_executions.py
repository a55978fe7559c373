# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Counts what Ansible itself executes, by connection, and how long each task took.

Writes one JSON object to the file named by ``TETHER_BENCH_RECORD``:
``{"tasks", "changed": {host: n}, "bad": {host: n}, "commands": {"local": n, "ssh": {host: n}},
"modules": {the same}, "profile": [[task, seconds]]}``.

No callback sees the several modules that one action plugin may run. So the two functions that all
of them go through are wrapped, in the parent of Ansible's workers, before it forks them: the one
that sends a module, and the one that sends any command. The ssh count is held against the hosts'
own (sessions.py).
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import Counter

from ansible.plugins.action import ActionBase
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: count_executions
type: notification
short_description: Count what is executed where
description: [Used by the benchmarks alone.]
"""


def _count(name, kind, target):
    """Wrap a method of ActionBase so that each call leaves a line; workers share the file."""
    original = getattr(ActionBase, name)

    def counted(self, *arguments, **options):
        host = self._connection._play_context.remote_addr
        line = f"{kind} {self._connection.transport} {host}\n"
        # One short write to a file opened for appending is not torn by another process's.
        descriptor = os.open(target, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
        return original(self, *arguments, **options)

    setattr(ActionBase, name, counted)


def _by_connection(counts, wanted):
    """``{"local": n, "ssh": {host: n}}`` of one kind."""
    rows = [(transport, host, n) for (kind, transport, host), n in counts.items() if kind == wanted]
    return {
        "local": sum(n for transport, _host, n in rows if transport == "local"),
        "ssh": {host: n for transport, host, n in rows if transport == "ssh"},
    }


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "count_executions"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        self.target = os.environ["TETHER_BENCH_RECORD"]
        self.tasks = []
        descriptor, self.lines = tempfile.mkstemp(prefix="tether-bench-")
        os.close(descriptor)
        _count("_execute_module", "modules", self.lines)
        _count("_low_level_execute_command", "commands", self.lines)

    def v2_playbook_on_task_start(self, task, is_conditional):
        self.tasks.append([task.get_name(), time.monotonic()])

    def v2_playbook_on_handler_task_start(self, task):
        self.v2_playbook_on_task_start(task, False)

    def v2_playbook_on_stats(self, stats):
        end = time.monotonic()
        said = {host: stats.summarize(host) for host in stats.processed}
        with open(self.lines, encoding="utf-8") as stream:
            counts = Counter(tuple(line.split()) for line in stream)
        os.unlink(self.lines)
        starts = [start for _name, start in self.tasks]
        record = {
            "tasks": len(self.tasks),
            "changed": {host: row["changed"] for host, row in said.items()},
            "bad": {
                host: row["failures"] + row["unreachable"] + row["rescued"]
                for host, row in said.items()
            },
            "modules": _by_connection(counts, "modules"),
            "commands": _by_connection(counts, "commands"),
            "profile": [
                [name, following - start]
                for (name, start), following in zip(self.tasks, [*starts[1:], end], strict=True)
            ],
        }
        with open(self.target, "w", encoding="utf-8") as stream:
            json.dump(record, stream)
