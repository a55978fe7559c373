# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What there is of a daemon on a Mac: its plist, its label in launchd, its process. Reads only."""

from __future__ import annotations

import pwd
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.daemon import (
    darwin_processes,
    launchctl,
    launchd_job,
    log_file,
    logins,
    plist,
    plist_place,
    records,
    runtime_directories,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

# Emptied at boot, as the processes that it speaks of are.
RECORD_DIR = "/var/run/tether/loaded"


@dataclass
class State:
    """One daemon at one place.

    :ivar text: what its plist says, None without one
    :ivar directories: its runtime directories, as its plist says, of a login session our record
    :ivar ours: whether that file is ours, or there is none
    :ivar trusted: whether the file has the owner and mode that we give it
    :ivar job: what launchd has loaded under its label, from wherever; None when nothing
    :ivar session: whether its domain is there
    :ivar disabled: whether an override keeps it from being loaded
    :ivar record: what an earlier run noted of it
    :ivar process: which process runs, to compare with the record's; "" without one
    :ivar started: when that started, in seconds since the epoch
    :ivar log_needs: what has to be done for its account to write its log: create, update or ""
    :ivar wrong_directories: runtime directories that are not as wanted
    :ivar recorded: whether root's record has it at that login session
    :ivar login_needs: what that record takes: create, update or ""
    :ivar patience: seconds that its process may take to end, as recorded; None where nothing is
    :ivar trouble: why launchd could not be asked for a login session's label, or ""
    """

    name: str
    place: plist_place.Place
    text: Optional[str] = None
    directories: List[str] = field(default_factory=list)
    ours: bool = True
    trusted: bool = False
    job: Optional[launchd_job.Job] = None
    session: bool = True
    disabled: bool = False
    record: Dict[str, Any] = field(default_factory=dict)
    process: str = ""
    started: Optional[float] = None
    log_needs: str = ""
    wrong_directories: List[str] = field(default_factory=list)
    recorded: bool = False
    login_needs: str = ""
    patience: Optional[int] = None
    trouble: str = ""


def look(
    name: str,
    place: plist_place.Place,
    disabled: bool,
    entry: Optional[Dict[str, Any]] = None,
) -> State:
    """Read everything of a daemon.

    :param disabled: whether its domain has an override that disables it
    :param entry: what is wanted of it; None for what goes
    """
    state = State(name, place, disabled=disabled)
    data = place.read(name)
    if data is not None:
        state.trusted = place.is_trusted(name)
    if place.account:
        _look_at_login(state, data, entry)
    elif data is not None:
        state.text = plist.shown(data)
        state.directories = plist.runtime_directories(plist.parse(data))
        state.ours = plist.is_ours(data)
    try:
        state.job = launchctl.look(place.target(name))
    except launchctl.NoSessionError:
        state.session = False
    except Refusal as refusal:
        if not place.account:
            raise
        state.trouble = str(refusal)
    state.record = records.read(RECORD_DIR, name)
    if state.job and state.job.pid:
        state.process, state.started = process(state.job.pid)
    if entry is not None:
        state.log_needs = log_file.needs(name, account_uid(entry))
        state.wrong_directories = runtime_directories.wrong(entry["runtime_directories"])
    return state


def _look_at_login(state: State, data: Optional[bytes], entry: Optional[Dict[str, Any]]) -> None:
    """What an account's file says is shown, and compared; what counts is root's record."""
    if data is not None:
        state.text = data.decode("utf-8", "replace")
        state.ours = plist.names_us(data)
    found = logins.find(state.name, state.place)
    if found is not None:
        state.recorded = True
        state.directories, state.patience = list(found.directories), found.stop_timeout
    if entry is not None and found != logins.of(entry, state.place):
        state.login_needs = "update" if found else "create"


def process(pid: int) -> Tuple[str, Optional[float]]:
    """What tells a process from any other, and when it started."""
    text, started = darwin_processes.started(pid)
    return "%d %s" % (pid, text), started


def account_uid(entry: Dict[str, Any]) -> Optional[int]:
    """Whom a daemon's process runs as; None when there is no such account yet."""
    try:
        return pwd.getpwnam(entry.get("user") or "root").pw_uid
    except KeyError:
        return None
