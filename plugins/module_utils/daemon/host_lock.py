# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One run at a time changes something of a host; another one waits."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import Iterator

from ansible_collections.tether.fleet.plugins.module_utils.daemon import records
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

# Another run may wait for as many processes to end.
_PATIENCE = 900
_POLL = 0.2


@contextlib.contextmanager
def held(path: str, what: str) -> Iterator[None]:
    """No other run changes the thing at hand meanwhile.

    :param path: of the lock, whose folder is root's
    :param what: what the other run changes, for the message
    :raises Refusal: when one does so for a quarter of an hour
    """
    records.make_folder(os.path.dirname(path))
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        end = time.monotonic() + _PATIENCE
        while not _lock(handle):
            if time.monotonic() > end:
                raise Refusal(
                    what,
                    "another run that has been changing this for %d s" % _PATIENCE,
                    "one run at a time",
                    "Find that run (sudo lsof %s), then run again" % path,
                )
            time.sleep(_POLL)
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
