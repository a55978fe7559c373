# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Lets the tests import the program they test, and gives them emulated Macs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mac.harness import EmulatedMac


@pytest.fixture(scope="module")
def mac() -> Iterator[EmulatedMac]:
    """An emulated Mac that the tests of a module share, each with labels and files of its own."""
    made = EmulatedMac()
    try:
        made.boot()
        yield made
    finally:
        made.destroy()


@pytest.fixture
def own_mac() -> Iterator[EmulatedMac]:
    """An emulated Mac that a test may reboot."""
    made = EmulatedMac()
    try:
        made.boot()
        yield made
    finally:
        made.destroy()
