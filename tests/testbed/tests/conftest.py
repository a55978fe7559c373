# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Lets the tests import the program they test, and gives them emulated Macs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mac.harness import EmulatedMac


@pytest.fixture(scope="module")
def mac() -> Iterator[EmulatedMac]:
    """An emulated Mac that the tests of a module share, each with labels and files of its own."""
    with _booted() as made:
        yield made


@pytest.fixture
def own_mac() -> Iterator[EmulatedMac]:
    """An emulated Mac that a test may reboot, and leave as it likes."""
    with _booted() as made:
        yield made


@contextmanager
def _booted() -> Iterator[EmulatedMac]:
    if os.geteuid() != 0:
        pytest.skip("an emulated Mac needs root: its launchd starts processes of other accounts")
    made = EmulatedMac()
    try:
        made.boot()
        yield made
    finally:
        made.destroy()
