# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""When a line of progress is due, and what it says."""

from __future__ import annotations

import threading
import time
from typing import List

from ansible_collections.tether.fleet.plugins.plugin_utils.progress import Board, Watch, describe


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_line_every_interval_while_somebody_works() -> None:
    clock = Clock()
    board = Board(15, clock)
    board.begin("gpu1", "t", "Run the engines")
    board.begin("gpu2", "t", "Run the engines")
    said = []
    for clock.now in range(50):  # type: ignore[assignment]
        said += [(clock.now, line) for line in board.lines()]
    text = 'still at work on "Run the engines" after %d s: gpu1, gpu2'
    assert said == [(at, text % at) for at in (15, 30, 45)]


def test_who_is_done_is_not_named_and_puts_the_next_line_off() -> None:
    clock = Clock()
    board = Board(15, clock)
    board.begin("gpu1", "t", "Wait")
    board.begin("gpu2", "t", "Wait")
    clock.now = 14
    board.end("gpu1", "t")
    clock.now = 16
    assert board.lines() == []
    clock.now = 29
    assert board.lines() == ['still at work on "Wait" after 29 s: gpu2']
    board.end("gpu2", "t")
    clock.now = 90
    assert board.lines() == []


def test_fast_tasks_are_passed_over_however_many() -> None:
    clock = Clock()
    board = Board(15, clock)
    said = []
    for number in range(100):
        board.begin("gpu1", str(number), "Quick")
        clock.now += 1
        said += board.lines()
        # The end of a task that is not on the board is somebody else's.
        board.end("gpu1", "other")
        board.end("gpu1", str(number))
    assert said == []


def test_the_watch_says_it_from_a_daemon_thread_and_ends() -> None:
    board = Board(0.1)
    heard: List[str] = []
    threads: List[threading.Thread] = []

    def say(line: str) -> None:
        heard.append(line)
        threads.append(threading.current_thread())

    watch = Watch(board, say)
    board.begin("gpu1", "t", "Wait")
    watch.start()
    watch.start()
    end = time.monotonic() + 10
    while len(heard) < 2 and time.monotonic() < end:
        time.sleep(0.02)
    watch.stop()
    assert len(heard) >= 2
    assert len(set(threads)) == 1
    assert threads[0].daemon
    assert not threads[0].is_alive()


def test_many_hosts_are_counted() -> None:
    hosts = [(float(number), "gpu%d" % number) for number in range(9)]
    assert describe("Wait", hosts, 20.0) == (
        'still at work on "Wait" after 20 s: gpu0, gpu1, gpu2, gpu3, gpu4 and 4 more'
    )
