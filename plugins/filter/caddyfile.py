# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ingress's Caddyfile from a host's engines; documented in caddyfile.yml."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ansible.errors import AnsibleFilterError

from ansible_collections.tether.fleet.plugins.plugin_utils import ingress_config
from ansible_collections.tether.fleet.plugins.plugin_utils.plain import plain


def caddyfile(engines: Any, **options: Any) -> str:
    """See caddyfile.yml."""
    try:
        return ingress_config.render(plain({**options, "engines": engines}))
    except ingress_config.ConfigError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"caddyfile": caddyfile}
