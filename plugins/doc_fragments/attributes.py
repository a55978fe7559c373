# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What every module promises; a module that promises more or less says so itself."""

from __future__ import annotations


class ModuleDocFragment:
    """Attributes of a module that plans, then applies."""

    DOCUMENTATION = r"""
attributes:
  check_mode:
    description: Predicts exactly what the run then changes, on a fresh fleet too.
    support: full
  diff_mode:
    description: Shows what changes, never a secret.
    support: full
  idempotent:
    description: A second run changes nothing.
    support: full
"""
