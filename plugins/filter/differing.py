# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which roles a host needs; documented in differing.yml."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from ansible_collections.tether.fleet.plugins.plugin_utils import survey
from ansible_collections.tether.fleet.plugins.plugin_utils.plain import plain


def differing(found: Any, cluster: Any = None, trust: bool = True) -> Dict[str, List[str]]:
    """See differing.yml."""
    return survey.differing(plain(found), plain(cluster or {}), trust)


class FilterModule:
    """The filter, by its name."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"differing": differing}
