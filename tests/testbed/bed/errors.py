"""The one exception that the command line turns into a message."""

from __future__ import annotations


class BedError(Exception):
    """Something a person can act on; its text says what."""
