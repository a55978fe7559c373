# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where the benchmarks of the cluster's side leave things."""

from __future__ import annotations

from pathlib import Path

from bench_parts.places import BED_STATE

HERE = Path(__file__).resolve().parent
CALLBACKS = HERE / "callbacks"
ON_CONTROLLER = HERE / "on_controller"
STATE = BED_STATE / "reconcile"

FLEET = "bench"
FLEET_NAMESPACE = "bench-fleet"
