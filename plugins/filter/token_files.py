# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where a namespace's token lies on a host; documented in token_files.yml."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from ansible.errors import AnsibleFilterError

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal
from ansible_collections.tether.fleet.plugins.plugin_utils import token_files


def files(tokens: Any, namespaces: Any, **options: Any) -> List[Dict[str, Any]]:
    """See token_files.yml."""
    try:
        return token_files.token_files(tokens, namespaces, **options)
    except Refusal as refusal:
        raise AnsibleFilterError(str(refusal)) from refusal


class FilterModule:
    """The filter, by its name."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"token_files": files}
