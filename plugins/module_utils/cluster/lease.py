# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One writer at a time: a Lease in the fleet's namespace.

Times are the API server's, read from its answers, so writers' clocks need not agree. A holder that
died is followed as soon as its last renewal is older than the duration.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
import socket
import threading
import time
from types import TracebackType
from typing import Any, Dict, Optional, Type

from ansible_collections.tether.fleet.plugins.module_utils.cluster import labels
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client, Failed
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

DURATION = 20.0
RENEW_EVERY = 5.0
# The API server's time comes with a resolution of one second, on both sides.
MARGIN = 2.0
_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


class LeaseLost(Refusal):
    """The Lease went to somebody else while we wrote: nothing more may be written."""


def is_free(spec: Dict[str, Any], now: datetime.datetime) -> bool:
    """Whether a Lease may be taken: released, or its holder stopped renewing it. Pure."""
    if not spec.get("holderIdentity"):
        return True
    stamp = spec.get("renewTime") or spec.get("acquireTime")
    if not stamp:
        return True
    renewed = parse_time(stamp)
    duration = float(spec.get("leaseDurationSeconds") or DURATION)
    return now > renewed + datetime.timedelta(seconds=duration + MARGIN)


def parse_time(stamp: str) -> datetime.datetime:
    """A MicroTime of the API; its fraction may be missing."""
    head = stamp.rstrip("Z")
    if "." not in head:
        head += ".0"
    parsed = datetime.datetime.strptime(head[:26] + "Z", _FORMAT)
    return parsed.replace(tzinfo=datetime.timezone.utc)


class Lease:
    """Use as ``with Lease(...) as lease:`` and call ``lease.check()`` before each write.

    :param timeout: seconds to wait for another holder
    """

    def __init__(self, client: Client, namespace: str, fleet: str, timeout: float = 60) -> None:
        self.client, self.namespace, self.fleet, self.timeout = client, namespace, fleet, timeout
        self.holder = "%s-%d-%s" % (socket.gethostname(), os.getpid(), secrets.token_hex(4))
        self._live: Dict[str, Any] = {}
        self._renewed = 0.0
        self._lost: Optional[str] = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Lease:
        end = time.monotonic() + self.timeout
        while True:
            holder = self._try()
            if holder is None:
                break
            if time.monotonic() > end:
                raise Refusal(
                    "Lease %s/%s" % (self.namespace, labels.LEASE_NAME),
                    "it is held by %s, who keeps renewing it" % holder,
                    "it to become free within %d s" % self.timeout,
                    "Wait for that run to end, or stop it, then run again",
                )
            time.sleep(1)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._lost:
            return
        with contextlib.suppress(Refusal):  # it runs out by itself
            self._put("", 1)

    def check(self) -> None:
        """Fail unless the Lease is ours for long enough to carry out one write."""
        if self._lost:
            raise LeaseLost(
                "Lease %s/%s" % (self.namespace, labels.LEASE_NAME),
                self._lost,
                "it to stay ours (%s) until the end" % self.holder,
                "Let the other run end, then run again: it goes on from what is there",
            )
        if time.monotonic() - self._renewed > DURATION - RENEW_EVERY:
            raise LeaseLost(
                "Lease %s/%s" % (self.namespace, labels.LEASE_NAME),
                "no renewal for %d s" % (time.monotonic() - self._renewed),
                "a renewal every %d s" % RENEW_EVERY,
                "Check the connection to the API server, then run again",
            )

    def _try(self) -> Optional[str]:
        """Take it. Returns who has it instead, or None when it is ours now."""
        live = self.client.get("Lease", labels.LEASE_NAME, self.namespace)
        try:
            if live is None:
                self._live = self.client.create(self._object({}, self.holder, DURATION))
            elif is_free(live.get("spec") or {}, self.client.now()):
                self._live = live
                self._put(self.holder, DURATION)
            else:
                return str(live["spec"]["holderIdentity"])
        except Failed as error:
            if error.status == 409:
                return "somebody who was faster"
            raise
        self._renewed = time.monotonic()
        return None

    def _keep(self) -> None:
        while not self._stop.wait(RENEW_EVERY):
            try:
                self._put(self.holder, DURATION)
                self._renewed = time.monotonic()
            except Failed as error:
                if error.status in (404, 409):
                    self._lost = "somebody else changed or removed it"
                    return
            except Refusal:
                pass  # tried again; check() notices when it goes on for too long

    def _put(self, holder: str, duration: float) -> None:
        self._live = self.client.replace(self._object(self._live, holder, duration))

    def _object(self, live: Dict[str, Any], holder: str, duration: float) -> Dict[str, Any]:
        now = self.client.now().strftime(_FORMAT)
        spec = dict(live.get("spec") or {})
        if holder and spec.get("holderIdentity") != holder:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (1 if live else 0)
        spec.update(holderIdentity=holder, leaseDurationSeconds=int(duration), renewTime=now)
        meta: Dict[str, Any] = {
            "name": labels.LEASE_NAME,
            "namespace": self.namespace,
            "labels": labels.fleet_labels(self.fleet),
        }
        if live:
            meta["resourceVersion"] = live["metadata"]["resourceVersion"]
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": meta,
            "spec": spec,
        }
