# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a host tells the cluster about itself; documented in host_record.yml."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ansible_collections.tether.fleet.plugins.plugin_utils.record import host_record


class FilterModule:
    """The filter, by its name."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"host_record": host_record}
