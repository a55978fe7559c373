# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Settings for all unit tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A busy machine is no bug: no test here fails by the clock. In CI the examples are the same each
# time, so that a red run is about the change and can be repeated.
settings.register_profile(
    "project",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("project")
