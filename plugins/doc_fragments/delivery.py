# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How files come from the controller's depot to a host."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of what sends and of what receives."""

    DOCUMENTATION = r"""
options:
  incoming:
    description: Folder of the host for files on their way.
    type: path
    default: /var/lib/tether/incoming
"""

    # What runs on the controller.
    CONTROLLER = r"""
options:
  depot_dir:
    description:
      - Folder of the depot on the controller; see M(tether.fleet.depot).
      - Default is C(tether.fleet/depot) in the user's cache folder.
    type: path
  chunk_size:
    description: Bytes that are sent at once.
    type: int
    default: 67108864
notes:
  - Needs root on the host.
"""

    # What runs on the host.
    HOST = r"""
options:
  deliver:
    description: Chunks that have been put on the host.
    type: dict
    suboptions:
      only:
        description: Take the chunks and do nothing else.
        type: bool
        default: false
      chunks:
        description: Chunks of files.
        type: list
        elements: dict
        required: true
        suboptions:
          file:
            description: Digest of the whole file.
            type: str
            required: true
          total:
            description: Size of the whole file in bytes.
            type: int
            required: true
          offset:
            description: Where the chunk starts.
            type: int
            required: true
          size:
            description: Size of the chunk in bytes.
            type: int
            required: true
          sha256:
            description: Digest of the chunk.
            type: str
            required: true
          path:
            description: Where the chunk was put; it is removed from there.
            type: path
            required: true
"""
