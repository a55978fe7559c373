# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where a host's key is and who may read it."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of M(tether.fleet.identity) and of the part of it that runs on hosts."""

    DOCUMENTATION = r"""
options:
  host:
    description: Inventory name of the host; becomes the common name of request and certificate.
    type: str
    required: true
  directory:
    description: Folder of key, request and certificate on the host.
    type: path
    default: /etc/tether/identity
  owner:
    description: Owner of the key.
    type: str
    default: root
  group:
    description: Group that may read the key, the ingress's.
    type: str
    default: tether-ingress
"""
