# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What drives a host, by its supervisor.

Each is imported when it is asked for: all travel with a module, but what a call does not import is
not compiled in it. Only a refusal imports them all.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Optional

from ansible_collections.tether.fleet.plugins.module_utils.daemon import base
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal


class Backend(NamedTuple):
    """The components (``observe``, ``plan``, ``apply``) for hosts with one supervisor.

    :ivar daemon: runs processes
    :ivar firewall: filters connections, None where there is nothing that does; the supervisor loads
        its rules at boot
    """

    daemon: Any
    firewall: Optional[Any]


def _systemd() -> Backend:
    from ansible_collections.tether.fleet.plugins.module_utils import firewall
    from ansible_collections.tether.fleet.plugins.module_utils.daemon import systemd

    return Backend(systemd, firewall)


def _launchd() -> Backend:
    from ansible_collections.tether.fleet.plugins.module_utils.daemon import launchd

    return Backend(launchd, None)


# A new platform is its components, beside these, and one more row here.
BACKENDS: Dict[str, Callable[[], Backend]] = {"systemd": _systemd, "launchd": _launchd}


def component(part: str) -> Any:
    """The component of this host for ``daemon`` or ``firewall``.

    :raises Refusal: when there is none
    """
    found = getattr(base.choose(BACKENDS)(), part)
    if found is None:
        those = [name for name, make in BACKENDS.items() if getattr(make(), part)]
        raise Refusal(
            "%s on this host" % part,
            "the supervisor %s" % base.supervisor(),
            "one of %s" % ", ".join(sorted(those)),
            "Leave that role out for this host (tags, or a group of its own)",
        )
    return found
