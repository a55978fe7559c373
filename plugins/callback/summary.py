# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
name: summary
type: aggregate
short_description: One table at the end, of what a run did to the fleet
version_added: "0.1.0"
description:
  - Prints for each host and each model what changed, where the model answers, and what failed with
    what to do about it. Hosts that say the same share a row.
  - In check mode it says what would change.
  - Says nothing when no task of this collection ran. Prints nothing where standard output is for a
    program (as with the callback P(ansible.posix.json#callback)); the file is written all the same.
  - Results of tasks with C(no_log) are never read.
author: tether.fleet contributors (@tether-fleet)
requirements:
  - Enable it in C(callbacks_enabled) of C(ansible.cfg), or in E(ANSIBLE_CALLBACKS_ENABLED).
options:
  json_file:
    description:
      - File for the same as JSON. It is replaced in one step, and only its owner can read it.
      - While a run is under way there is no such file, so what is in it is the last run that ended.
      - docs/summary.md describes its keys.
    type: path
    ini:
      - section: callback_tether_fleet_summary
        key: json_file
    env:
      - name: TETHER_SUMMARY_JSON
seealso:
  - plugin: tether.fleet.progress
    plugin_type: callback
"""

EXAMPLES = r"""
# ansible.cfg
#
# [defaults]
# callbacks_enabled = tether.fleet.summary, tether.fleet.progress
#
# [callback_tether_fleet_summary]
# json_file = ~/.local/state/tether/last-run.json
"""

import contextlib
import json
import os
import shutil
import tempfile
from typing import Any, Dict

from ansible import constants, context
from ansible.plugins.callback import CallbackBase

from ansible_collections.tether.fleet.plugins.plugin_utils import summary, summary_table
from ansible_collections.tether.fleet.plugins.plugin_utils.callbacks import action_of, people_read
from ansible_collections.tether.fleet.plugins.plugin_utils.plain import plain

_COLOURS = {
    summary_table.HEAD: None,
    summary_table.PLAIN: None,
    summary_table.CHANGED: constants.COLOR_CHANGED,
    summary_table.FAILED: constants.COLOR_ERROR,
}


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "tether.fleet.summary"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, display: Any = None, options: Any = None) -> None:
        super().__init__(display=display, options=options)
        self._run = summary.Run()

    def v2_playbook_on_start(self, playbook: Any) -> None:
        name = os.path.basename(playbook._file_name)
        self._run = summary.Run(name, bool(context.CLIARGS.get("check")))

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        if self._run.ours or not action_of(task).startswith(summary.COLLECTION):
            return
        self._run.ours = True
        # What an earlier run left must not pass for this one's, should this one be killed.
        if path := self._json_file():
            with contextlib.suppress(OSError):
                os.unlink(path)

    def v2_runner_on_ok(self, result: Any) -> None:
        self._run.ok(*_told(result))

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            self._run.failed(*_told(result))

    def v2_runner_on_unreachable(self, result: Any) -> None:
        host, task, _action, values = _told(result)
        self._run.unreachable(host, task, values)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        if not self._run.ours:
            return
        document = self._run.finish({*stats.failures, *stats.dark})
        if people_read():
            self._show(document)
        if path := self._json_file():
            self._write(path, document)

    def _json_file(self) -> str:
        return os.path.expanduser(self.get_option("json_file") or "")

    def _show(self, document: Dict[str, Any]) -> None:
        checked = " (check mode: nothing was changed)" if document["check_mode"] else ""
        self._display.banner("FLEET SUMMARY" + checked)
        width = summary_table.clamp(shutil.get_terminal_size((100, 24)).columns)
        for line in summary_table.draw(document, width):
            self._display.display(line.text, color=_COLOURS[line.style])
        self._display.display("")

    def _write(self, path: str, document: Dict[str, Any]) -> None:
        """Complete or not there; made for its owner alone, as mkstemp does."""
        half = ""
        try:
            handle, half = tempfile.mkstemp(prefix=".summary-", dir=os.path.dirname(path) or ".")
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump(document, stream, indent=2)
                stream.write("\n")
            os.replace(half, path)
        except OSError as error:
            if half:
                with contextlib.suppress(OSError):
                    os.unlink(half)
            self._display.warning(
                "json_file %s: found %s; expected a folder that exists and can be written. Make "
                "it, or name another file in json_file of [callback_tether_fleet_summary] or in "
                "TETHER_SUMMARY_JSON." % (path, error.strerror)
            )


def _told(result: Any) -> Any:
    """Host, task, action and values of a result, as plain data."""
    task = result._task
    values = result._result
    if not summary.is_hidden(values):
        values = plain(values)
    host = summary.CONTROLLER if _is_done_once(task) else result._host.get_name()
    return host, task.get_name(), action_of(task), values


def _is_done_once(task: Any) -> bool:
    """Whether it is the controller's work for all hosts; Ansible counts it as the first one's."""
    role = str(task._role.get_name()) if task._role else ""
    return bool(task.run_once) and any(
        name.startswith(summary.COLLECTION) for name in (action_of(task), role)
    )
