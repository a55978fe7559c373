# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The address under which the cluster reaches a host: an IP address or a DNS name."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Optional

_NAME = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    r"(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
)


def is_ip(value: str) -> bool:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True


def check_address(value: Any) -> Optional[str]:
    """What is wrong with an address, or None."""
    if not isinstance(value, str):
        return "is %r; expected an IP address or DNS name, in quotes" % (value,)
    if is_ip(value):
        address = ipaddress.ip_address(value)
        if address.is_loopback or address.is_unspecified or address.is_multicast:
            return "%s is reached by this machine alone, or by nobody; give the network's" % value
        if address.is_link_local:
            return "%s is a link-local address, which pods cannot reach" % value
        if str(address) != value:
            return "%s is not in its usual form; write %s" % (value, address)
        return None
    if not _NAME.fullmatch(value):
        return "%r is neither an IP address nor a DNS name" % value
    last = value.rsplit(".", 1)[-1]
    if last.isdigit():
        return "%r looks like an IP address, but is none" % value
    if value.lower() == "localhost" or value.lower().endswith(".localhost"):
        return "%s is this machine alone; give an address that the cluster reaches" % value
    return None
