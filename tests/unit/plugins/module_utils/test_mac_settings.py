# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.tether.fleet.plugins.module_utils import mac_settings
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

# `pmset -g custom` of a laptop: two sources, and no start after a power failure.
LAPTOP = """\
Battery Power:
 powernap             0
 sleep                1
 Sleep On Power Button 1
AC Power:
 powernap             1
 sleep                0
"""
DESKTOP = {"AC Power": {"sleep": "1", "disksleep": "10", "autorestart": "0"}}
FIT = {"power": DESKTOP, "gpu_memory_mb": 0, "memory_mb": 65536}


def steps(
    power: Dict[str, Any], gpu: int = 0, seen: Optional[Dict[str, Any]] = None
) -> List[Tuple[str, str]]:
    desired = {"power": power, "gpu_memory_mb": gpu}
    plan = mac_settings.plan(desired, {**FIT, **(seen or {})})
    return [(step.name, str(step.after)) for step in plan.steps]


def test_what_pmset_shows() -> None:
    found = mac_settings.sections(LAPTOP)
    assert set(found) == {"Battery Power", "AC Power"}
    assert [each["sleep"] for each in found.values()] == ["1", "0"]


@given(st.text())
def test_no_text_is_too_odd(text: str) -> None:
    found = mac_settings.sections(text)
    assert all(isinstance(value, str) for each in found.values() for value in each.values())


def test_what_differs_is_set() -> None:
    assert steps({"sleep": 0, "disksleep": 10}) == [("sleep", "sleep 0")]
    assert steps({"sleep": 1}) == []
    assert steps({}) == []


def test_a_setting_counts_for_every_source_of_power() -> None:
    seen = mac_settings.sections(LAPTOP)
    assert steps({"sleep": 0}, seen={"power": seen}) == [("sleep", "sleep 0")]
    # A laptop has no such setting: each run would set it again.
    assert steps({"autorestart": 1}, seen={"power": seen}) == []


def test_memory_of_the_gpu() -> None:
    name = mac_settings.GPU_MEMORY
    assert steps({}, 48000) == [(name, name + "=48000")]
    assert steps({}, 48000, seen={"gpu_memory_mb": 48000}) == []
    # Left as it is.
    assert steps({}, 0, seen={"gpu_memory_mb": 48000}) == []


@pytest.mark.parametrize(
    ("power", "gpu", "seen", "words"),
    [
        ({"sleep": "0; reboot"}, 0, {}, "sleep: 0; reboot"),
        ({"-g": 1, "sleep": -1}, 0, {}, "-g: 1, sleep: -1"),
        ({"sleep": True}, 0, {}, "sleep: True"),
        ({"sleep": 0}, 0, {"power": {}}, "nothing that can be read"),
        ({}, 48000, {"gpu_memory_mb": None}, "no kernel setting"),
        ({}, 64000, {}, "64000 MiB wanted of 65536; expected at most 63488"),
    ],
)
def test_what_cannot_be_set_is_refused(
    power: Dict[str, Any], gpu: int, seen: Dict[str, Any], words: str
) -> None:
    with pytest.raises(Refusal) as caught:
        steps(power, gpu, seen)
    assert words in str(caught.value)
