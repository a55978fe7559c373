# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What drives a host, by its supervisor.

Each is imported when it is asked for: all travel with a module, but what a call does not import is
not compiled in it.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple

from ansible_collections.tether.fleet.plugins.module_utils.daemon import base


class Backend(NamedTuple):
    """The components (``observe``, ``plan``, ``apply``) for hosts with one supervisor.

    :ivar daemon: runs processes
    :ivar firewall: filters connections; the supervisor loads its rules at boot
    """

    daemon: Any
    firewall: Any


def _systemd() -> Backend:
    from ansible_collections.tether.fleet.plugins.module_utils import nft_firewall
    from ansible_collections.tether.fleet.plugins.module_utils.daemon import systemd

    return Backend(systemd, nft_firewall)


def _launchd() -> Backend:
    from ansible_collections.tether.fleet.plugins.module_utils import pf_firewall
    from ansible_collections.tether.fleet.plugins.module_utils.daemon import launchd

    return Backend(launchd, pf_firewall)


# A new platform is its components, beside these, and one more row here.
BACKENDS: Dict[str, Callable[[], Backend]] = {"systemd": _systemd, "launchd": _launchd}


def component(part: str) -> Any:
    """The component of this host for ``daemon`` or ``firewall``.

    :raises Refusal: when there is none
    """
    return getattr(base.choose(BACKENDS)(), part)
