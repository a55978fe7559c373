# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What drives a host, by its supervisor."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple

from ansible_collections.tether.fleet.plugins.module_utils import firewall
from ansible_collections.tether.fleet.plugins.module_utils.daemon import systemd


class Backend(NamedTuple):
    """The components (``observe``, ``plan``, ``apply``) for hosts with one supervisor.

    :ivar daemon: runs processes
    :ivar firewall: filters connections; the supervisor loads its rules at boot
    """

    daemon: Any
    firewall: Any


# A new platform is its components, beside these, and one more row here.
BACKENDS: Dict[str, Backend] = {"systemd": Backend(systemd, firewall)}
