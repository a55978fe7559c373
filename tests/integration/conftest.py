# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What tests of several files begin with."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cluster_api
from cluster_ingress import Authority


@pytest.fixture
def world() -> Iterator[None]:
    """A fleet of its own in the cluster, taken away again."""
    cluster_api.next_world()
    yield
    cluster_api.clean()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()
