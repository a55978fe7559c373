# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""For tests: the product's functions in this process, with the places of an emulated Mac."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from mac.harness import EmulatedMac

from ansible_collections.tether.fleet.plugins.module_utils.daemon import (
    darwin_processes,
    launchd_apply,
    launchd_state,
    log_file,
    logins,
    plist,
    plist_place,
    processes,
)

_PLACES = (
    (log_file, "FOLDER", "/var/log/tether"),
    (launchd_state, "RECORD_DIR", "/var/run/tether/loaded"),
    (launchd_apply, "LOCK", "/var/run/tether/daemons.lock"),
    (plist, "RUNTIME_ROOT", "/var/lib/tether/run/"),
    (darwin_processes, "LSOF", "/usr/sbin/lsof"),
    (logins, "FOLDER", "/var/lib/tether/logins"),
)


def redirect(
    mac: EmulatedMac, monkeypatch: pytest.MonkeyPatch, places: Iterable[tuple[Any, str, str]] = ()
) -> None:
    """Make launchd's back end work there, and what else is named.

    :param places: modules, names of paths in them, and where those are on a Mac
    """
    root = str(mac.root)
    for module, name, path in (*_PLACES, *places):
        monkeypatch.setattr(module, name, root + path)
    system = plist_place.Place("system", root + "/Library/LaunchDaemons")
    monkeypatch.setattr(plist_place, "SYSTEM", system)
    monkeypatch.setattr(processes.platform, "system", lambda: "Darwin")
    monkeypatch.setenv("PATH", f"{root}/bin:{os.environ['PATH']}")


def at_once(act: Callable[[Any], object], plans: Iterable[Any]) -> list[Exception]:
    """Carry plans out side by side; returns what went wrong."""
    wrong: list[Exception] = []

    def carry_out(plan: Any) -> None:
        try:
            act(plan)
        except Exception as error:  # noqa: BLE001 - whatever a thread raises fails the test
            wrong.append(error)

    threads = [threading.Thread(target=carry_out, args=(plan,)) for plan in plans]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    return wrong
