# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation that the cluster modules share."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of every module that writes to the cluster."""

    DOCUMENTATION = r"""
options:
  fleet:
    description:
      - The fleet's name. Every object carries it as a label; what does not is never changed.
    type: str
    required: true
  fleet_namespace:
    description:
      - The namespace of the fleet's own records.
    type: str
    default: tether-fleet
  lease_timeout:
    description:
      - How many seconds to wait for another writer before giving up.
      - A Lease named V(tether-writer) in O(fleet_namespace) lets one run write at a time. It is
        taken only when there is something to write.
    type: int
    default: 60
notes:
  - Needs the libraries in the Python that runs it. With C(ansible_connection=local) that is the
    system's Python, unless C(ansible_python_interpreter) is set to
    C({{ ansible_playbook_python }}).
requirements:
  - kubernetes >= 24.2.0
  - PyYAML
"""
