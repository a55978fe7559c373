# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /usr/sbin/system_profiler: the hardware overview."""

from __future__ import annotations

import json
from collections.abc import Sequence

from .. import machine
from ..program import NotEmulatedError

_TYPE = "SPHardwareDataType"


def main(argv: Sequence[str]) -> int:
    """SPHardwareDataType, as text or as JSON."""
    words = list(argv)
    as_json = "-json" in words
    if as_json:
        words.remove("-json")
    if words != [_TYPE]:
        raise NotEmulatedError(f"system_profiler {' '.join(argv)}")
    memory = f"{machine.get('memory') // 2**30} GB"
    if as_json:
        fields = {
            "_name": "hardware_overview",
            "chip_type": machine.get("processor"),
            "machine_model": machine.get("model"),
            "machine_name": "Mac mini",
            "number_processors": f"proc {machine.get('cores')}:8:4:0",
            "physical_memory": memory,
            "serial_number": "EMULATED00",
        }
        print(json.dumps({_TYPE: [fields]}, indent=2))
        return 0
    print("Hardware:\n\n    Hardware Overview:\n")
    rows = {
        "Model Name": "Mac mini",
        "Model Identifier": machine.get("model"),
        "Chip": machine.get("processor"),
        "Total Number of Cores": f"{machine.get('cores')} (8 performance and 4 efficiency)",
        "Memory": memory,
        "Serial Number (system)": "EMULATED00",
    }
    for name, text in rows.items():
        print(f"      {name}: {text}")
    print()
    return 0
