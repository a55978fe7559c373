# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The three ways to give the CA's passphrase."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of what opens the CA's key."""

    DOCUMENTATION = r"""
options:
  ca_passphrase:
    description: The CA's passphrase, at least 12 characters. Take it from a vault.
    type: str
  ca_passphrase_file:
    description: A file on the controller whose first line is the passphrase.
    type: path
  ca_passphrase_env:
    description: Name of an environment variable of the controller that holds the passphrase.
    type: str
"""
