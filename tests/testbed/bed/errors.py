# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one exception that the command line turns into a message."""

from __future__ import annotations


class BedError(Exception):
    """Something a person can act on; its text says what."""
