# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Clients of a model's Service: ordinary ones, that never try again, so that every loss is counted.

Three kinds run side by side: those that open a connection for each request, those that keep one as
long as the server does, and those that read a stream, which has to come whole.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Optional

PATH = "/v1/chat/completions"
KINDS = ("single", "kept", "stream")


@dataclass
class Outcome:
    """What became of the requests.

    :ivar good: answers by kind
    :ivar bad: ``(seconds since the start, kind, what happened, seconds it took)`` of each loss
    :ivar longest: seconds that the slowest good answer took
    """

    good: Counter[str] = field(default_factory=Counter)
    bad: list[tuple[float, str, str, float]] = field(default_factory=list)
    longest: float = 0.0

    @property
    def total(self) -> int:
        return sum(self.good.values()) + len(self.bad)


class Load:
    """Requests that go on until ``stop``.

    :param address: the Service's address, ``(host, port)``
    :param short: the load of short forms: a client of each kind, which leaves the machine to what
        is drilled
    :param stream_tokens: tokens of a streamed answer; each is one event. All clients together must
        fit into the context of one engine of the bed, 512 tokens
    """

    def __init__(
        self,
        address: tuple[str, int],
        model: str,
        short: bool = False,
        stream_tokens: int = 100,
        timeout: float = 60,
    ) -> None:
        clients = (1, 1, 1) if short else (3, 3, 2)
        # Seconds that a client rests between requests.
        self._rest = 0.05 if short else 0.0
        self.address, self.model, self.timeout = address, model, timeout
        self.stream_tokens = stream_tokens
        self.outcome = Outcome()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._start = time.monotonic()
        self._threads = [
            threading.Thread(target=self._client, args=(kind,), daemon=True)
            for kind, number in zip(KINDS, clients, strict=True)
            for _ in range(number)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the clients, each after its running request."""
        self._stop.set()
        for thread in self._threads:
            thread.join(self.timeout + 10)
            if thread.is_alive():
                self._note("?", "a client did not end", 0)

    def seconds(self) -> float:
        """Since the start, as in ``Outcome.bad``."""
        return time.monotonic() - self._start

    def wait_for(self, requests: int, seconds: float = 600) -> None:
        """Until so many requests more have ended."""
        end, wanted = time.monotonic() + seconds, self.outcome.total + requests
        while self.outcome.total < wanted:
            if time.monotonic() > end:
                self._note("?", f"no {requests} requests within {seconds:.0f} s", seconds)
                return
            time.sleep(0.1)

    def _note(self, kind: str, lost: str, took: float) -> None:
        with self._lock:
            if lost:
                self.outcome.bad.append((round(self.seconds(), 2), kind, lost, round(took, 2)))
            else:
                self.outcome.good[kind] += 1
                self.outcome.longest = max(self.outcome.longest, round(took, 2))

    def _client(self, kind: str) -> None:
        connection: Optional[http.client.HTTPConnection] = None
        while not self._stop.is_set():
            began = time.monotonic()
            if connection is None:
                connection = http.client.HTTPConnection(*self.address, timeout=self.timeout)
            try:
                lost, kept = self._ask(connection, kind)
            except (OSError, http.client.HTTPException) as error:
                lost, kept = f"{type(error).__name__}: {error}", False
            self._note(kind, lost, time.monotonic() - began)
            if kind == "single" or not kept:
                connection.close()
                connection = None
            time.sleep(0.2 if lost else self._rest)  # a refused client must not fill the report

    def _ask(self, connection: http.client.HTTPConnection, kind: str) -> tuple[str, bool]:
        """One request: what went wrong, and whether the server keeps the connection."""
        stream = kind == "stream"
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": self.stream_tokens if stream else 1,
            "stream": stream,
            # The models of the bed would end when it pleases them.
            "ignore_eos": True,
        }
        connection.request("POST", PATH, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            return f"status {answer.status}: {text[:200].decode(errors='replace')}", False
        if stream and not text.rstrip().endswith(b"data: [DONE]"):
            return f"a stream that ends with {text[-80:]!r}", False
        return "", not answer.will_close
