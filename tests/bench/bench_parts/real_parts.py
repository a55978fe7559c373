# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The collection, and what the integration tests run it against: imported from here.

Both lie outside of the benchmarks' own folder, so their places are put into the path first.
"""

from __future__ import annotations

import sys

from .places import COLLECTIONS, INTEGRATION

sys.path[:0] = [str(COLLECTIONS), str(INTEGRATION)]

import caddy_bed  # noqa: E402
import cluster_ingress  # noqa: E402
import ports  # noqa: E402

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (  # noqa: E402
    drain,
    envoy,
    envoy_data,
    labels,
    objects,
)

__all__ = [
    "caddy_bed",
    "cluster_ingress",
    "drain",
    "envoy",
    "envoy_data",
    "labels",
    "objects",
    "ports",
]
