# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What M(tether.fleet.artifact) and the part of it that runs on hosts have in common."""

from __future__ import annotations


class ModuleDocFragment:
    """Where versions are, and how many."""

    DOCUMENTATION = r"""
options:
  root:
    description: Folder that holds a folder for each artifact.
    type: path
    default: /opt/tether
  keep:
    description: Versions to keep beside those that C(current) and C(previous) name.
    type: int
    default: 0
  verify:
    description: Read every installed file instead of comparing size, time and mode.
    type: bool
    default: false
"""
