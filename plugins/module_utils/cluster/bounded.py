# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Requests whose answers come from a host: bounded in size and in time, and never acted upon.

The API server's proxy passes on what an engine says, and that host may have been taken over. The
kubernetes package reads an answer whole, follows redirects with the caller's own credentials, and
waits as long as a Retry-After asks for. So these requests go through a stand-in for its pool of
connections. That is the one place both of its generations (24 to 37) share: their clients differ,
and both read the bodies of errors themselves.
"""

from __future__ import annotations

import copy
import threading
import time
from typing import Any, Dict

try:
    from urllib3 import HTTPResponse
    from urllib3.exceptions import TimeoutError as PoolTimeout
    from urllib3.util import Retry
except ImportError:
    # kubernetes.core says so when the module starts.
    pass

_BLOCK = 64 * 1024


class TooLargeError(Exception):
    """An answer with more than it may have, and its status."""

    def __init__(self, status: int, limit: int) -> None:
        self.status = status
        super().__init__("an answer of more than %d MiB" % (limit // 1024**2))


def bounded(dynamic: Any, limit: int, seconds: float) -> Any:
    """A dynamic client for one request, with the connections and credentials of another.

    :param limit: bytes that an answer may have
    :param seconds: how long all of the request may take
    """
    ours = copy.copy(dynamic)
    ours.client = copy.copy(dynamic.client)
    ours.client.rest_client = copy.copy(dynamic.client.rest_client)
    ours.client.rest_client.pool_manager = _Pool(
        dynamic.client.rest_client.pool_manager, limit, seconds
    )
    return ours


class _Pool:
    """Makes a request and reads its answer, like urllib3's pool manager."""

    def __init__(self, pool: Any, limit: int, seconds: float) -> None:
        self._pool, self._limit, self._seconds = pool, limit, seconds

    def request(self, method: str, url: str, **options: Any) -> Any:
        """The answer, read; made beside, since time limits of sockets hold for each read alone.

        What takes too long is left behind: it ends with the block that it waits for, or with the
        module.
        """
        # No try but the first: the caller tries again, within its own time. And no redirect: with
        # the caller's credentials it could lead anywhere in the cluster.
        options.update(preload_content=False, redirect=False, retries=Retry(0, redirect=False))
        outcome: Dict[str, Any] = {}
        end = time.monotonic() + self._seconds

        def ask() -> None:
            try:
                outcome["answer"] = self._read(self._pool.request(method, url, **options), end)
            except Exception as error:  # noqa: BLE001 - raised below, in the thread that asked
                outcome["error"] = error

        beside = threading.Thread(target=ask, daemon=True)
        beside.start()
        beside.join(self._seconds)
        if "error" in outcome:
            raise outcome["error"]
        if "answer" not in outcome:
            raise PoolTimeout("timed out")
        return outcome["answer"]

    def _read(self, response: Any, end: float) -> Any:
        """The same answer with its body in memory, as far as it may be there."""
        body = bytearray()
        try:
            while True:
                # As it came: unpacked it could be a thousand times as large. The request asks for
                # no packing, so that nobody honest sends any.
                block = response.read(_BLOCK, decode_content=False)
                if not block:
                    break
                body += block
                if len(body) > self._limit:
                    raise TooLargeError(int(response.status), self._limit)
                if time.monotonic() > end:
                    raise PoolTimeout("timed out")
        except BaseException:
            response.close()  # what is left of it must not go to the connection's next user
            raise
        response.release_conn()
        return HTTPResponse(
            body=bytes(body),
            headers=response.headers,
            status=response.status,
            reason=response.reason,
            preload_content=True,
            decode_content=False,
        )
