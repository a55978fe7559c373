# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Waiting until nobody is connected, on a clock of the test's own."""

from __future__ import annotations

import ipaddress
from typing import Callable, List

import pytest

from ansible_collections.tether.fleet.plugins.module_utils import drained, tcp_table


def sock(peer: str = "10.0.0.9") -> tcp_table.Socket:
    own = ipaddress.ip_address("10.0.0.1")
    return tcp_table.Socket(tcp_table.ESTABLISHED, own, 9443, ipaddress.ip_address(peer), "1")


class Clock:
    """Seconds that go by only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def wait(connected: Callable[[float], List[tcp_table.Socket]], timeout: float) -> dict[str, object]:
    clock = Clock()
    return drained.wait(9443, timeout, lambda _port: connected(clock.now - 100), clock, clock.sleep)


@pytest.mark.parametrize(
    ("one", "counts"),
    [
        (sock(), True),
        (sock("fd00::9"), True),
        (sock("127.0.0.1"), False),
        (sock("::1"), False),
        (sock("10.0.0.1"), False),  # the machine's own address
    ],
)
def test_who_counts(one: tcp_table.Socket, counts: bool) -> None:
    assert bool(drained.peers([one])) is counts


def test_nobody_from_the_first_look_on() -> None:
    assert wait(lambda _now: [], 60) == {"waited": drained.QUIET_SECONDS, "connected": []}


def test_a_request_that_ends() -> None:
    found = wait(lambda now: [sock()] if now < 10 else [], 60)
    assert found["connected"] == []
    assert 10 + drained.QUIET_SECONDS - 0.5 <= float(str(found["waited"])) <= 13


def test_a_relay_between_two_connections_is_still_there() -> None:
    """One second in three without a connection is no end."""
    found = wait(lambda now: [] if int(now) % 3 == 2 else [sock()], 19)
    assert found == {"waited": 19.0, "connected": ["10.0.0.9"]}


def test_the_time_is_over() -> None:
    found = wait(lambda _now: [sock("10.0.0.8"), sock(), sock()], 5)
    assert found == {"waited": 5.0, "connected": ["10.0.0.8", "10.0.0.9", "10.0.0.9"]}


def test_without_time_there_is_one_look() -> None:
    assert wait(lambda _now: [sock()], 0) == {"waited": 0.0, "connected": ["10.0.0.9"]}
