# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Requests of the client pod to the model team-a/tiny that go on beside a test."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter

from bed import client

ASK = json.dumps({"max_tokens": 2, "messages": [{"role": "user", "content": "hello"}]})
# Asks one after the other, each on a connection of its own, until it is told to stop.
LOOP = f"""
end=$(($(date +%s) + 800))
while [ ! -e /tmp/stop ] && [ "$(date +%s)" -lt "$end" ]; do
    curl -s -o /dev/null -m 60 -w '%{{http_code}}\\n' http://tiny.team-a.svc/v1/chat/completions \
        -H 'Content-Type: application/json' -d '{ASK}' >>/tmp/answers
done
cat /tmp/answers
"""


class Requests:
    """``statuses`` counts their answers."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        done = client(LOOP, timeout=900, check=False)
        self.statuses.update(done.stdout.split() or [done.stderr])

    def number(self) -> int:
        """How many have been answered so far."""
        return int(client("cat /tmp/answers 2>/dev/null | wc -l").stdout)

    def go_on(self) -> None:
        """Wait for twenty more."""
        wanted, end = self.number() + 20, time.monotonic() + 60
        while self.number() < wanted:
            assert time.monotonic() < end
            time.sleep(0.2)

    def __enter__(self) -> Requests:
        # Before the first look at them: those of an earlier test do not count.
        client("rm -f /tmp/stop; : >/tmp/answers")
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        client("touch /tmp/stop")
        self.thread.join()
