# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What M(tether.fleet.model_store) and the part of it that runs on hosts have in common."""

from __future__ import annotations

_MODELS = r"""
options:
  models:
    description: Model files.
    type: list
    elements: dict
    required: true
    suboptions:
      namespace:
        description: Namespace whose engines use the file.
        type: str
        required: true
      name:
        description: File name, without folders.
        type: str
        required: true
      sha256:
        description: Digest of the file.
        type: str
        required: true
      group:
        description: Group of the namespace's engine account. Without it only root reads the file.
        type: str
      state:
        description: V(absent) removes the file.
        type: str
        choices: [present, absent]
        default: present
"""


class ModuleDocFragment:
    """The store; with ``host`` or ``controller``, its entries as that side takes them."""

    DOCUMENTATION = r"""
options:
  store:
    description: Folder of the store.
    type: path
    default: /var/lib/tether/models
  prune:
    description: Remove all files of the store that O(models) does not list.
    type: bool
    default: false
  verify:
    description: Read every file instead of comparing size and time.
    type: bool
    default: false
"""

    HOST: str
    CONTROLLER: str


# Joined out here: within the class, ansible-test reads texts alone, not what makes them.
ModuleDocFragment.HOST = (
    _MODELS
    + r"""
      size:
        description: Size of the file in bytes.
        type: int
"""
)
ModuleDocFragment.CONTROLLER = (
    _MODELS
    + r"""
      size:
        description: Size in bytes. Default is the size of the file in the depot.
        type: int
      source:
        description: Of no meaning here, so that entries of M(tether.fleet.depot) can be given.
        type: str
"""
)
