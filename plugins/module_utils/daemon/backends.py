# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What drives a host, by its supervisor."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional

from ansible_collections.tether.fleet.plugins.module_utils import firewall
from ansible_collections.tether.fleet.plugins.module_utils.daemon import base, launchd, systemd
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal


class Backend(NamedTuple):
    """The components (``observe``, ``plan``, ``apply``) for hosts with one supervisor.

    :ivar daemon: runs processes
    :ivar firewall: filters connections, None where there is nothing that does; the supervisor loads
        its rules at boot
    """

    daemon: Any
    firewall: Optional[Any]


# A new platform is its components, beside these, and one more row here.
BACKENDS: Dict[str, Backend] = {
    "systemd": Backend(systemd, firewall),
    "launchd": Backend(launchd, None),
}


def component(part: str) -> Any:
    """The component of this host for ``daemon`` or ``firewall``.

    :raises Refusal: when there is none
    """
    found = getattr(base.choose(BACKENDS), part)
    if found is None:
        raise Refusal(
            "%s on this host" % part,
            "the supervisor %s" % base.supervisor(),
            "one of %s" % ", ".join(sorted(k for k, v in BACKENDS.items() if getattr(v, part))),
            "Leave that role out for this host (tags, or a group of its own)",
        )
    return found
