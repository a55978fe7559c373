# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
name: progress
type: notification
short_description: Say which hosts are still at work during a long task
version_added: "0.1.0"
description:
  - Prints a line every few seconds while a task of this collection goes on, with the task's name
    and the hosts that are not done. A task that ends sooner prints nothing.
  - Downloads and transfers say how far they are by themselves, with or without this callback.
  - Prints nothing where standard output is for a program (as with the callback
    P(ansible.posix.json#callback)).
author: tether.fleet contributors (@tether-fleet)
requirements:
  - Enable it in C(callbacks_enabled) of C(ansible.cfg), or in E(ANSIBLE_CALLBACKS_ENABLED).
options:
  interval:
    description: Seconds between two lines, and before the first. 0 for none.
    type: float
    default: 15
    ini:
      - section: callback_tether_fleet_progress
        key: interval
    env:
      - name: TETHER_PROGRESS_INTERVAL
seealso:
  - plugin: tether.fleet.summary
    plugin_type: callback
"""

EXAMPLES = r"""
# ansible.cfg
#
# [defaults]
# callbacks_enabled = tether.fleet.summary, tether.fleet.progress
#
# [callback_tether_fleet_progress]
# interval = 30
"""

import atexit
from typing import Any, Optional

from ansible.plugins.callback import CallbackBase

from ansible_collections.tether.fleet.plugins.plugin_utils.callbacks import action_of, people_read
from ansible_collections.tether.fleet.plugins.plugin_utils.progress import Board, Watch
from ansible_collections.tether.fleet.plugins.plugin_utils.summary import COLLECTION


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "tether.fleet.progress"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, display: Any = None, options: Any = None) -> None:
        super().__init__(display=display, options=options)
        self._board: Optional[Board] = None
        self._watch: Optional[Watch] = None

    def v2_playbook_on_start(self, playbook: Any) -> None:
        interval = self.get_option("interval")
        if interval > 0 and people_read():
            self._board = Board(interval)
            self._watch = Watch(self._board, lambda line: self._display.display("  " + line))
            # Also when the run ends by an exception or by Ctrl-C, after which no callback comes.
            atexit.register(self._watch.stop)

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        if self._board and self._watch and action_of(task).startswith(COLLECTION):
            self._board.begin(host.get_name(), task._uuid, task.get_name())
            self._watch.start()

    def _end(self, result: Any) -> None:
        if self._board:
            self._board.end(result._host.get_name(), result._task._uuid)

    def v2_runner_on_ok(self, result: Any) -> None:
        self._end(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._end(result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._end(result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._end(result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        if self._watch:
            self._watch.stop()
