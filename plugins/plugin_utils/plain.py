# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible's variables as plain Python data.

Ansible wraps values in types of its own (tagged strings, unsafe text, lazy containers). Plain ones
compare, hash and serialise as everybody expects, and carry no trust that a template could use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def plain(value: Any) -> Any:
    """A copy of a value in which every container and scalar has Python's own type."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return "".join(value)  # str(value) would keep a subclass that has its own __str__
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [plain(item) for item in value]
    # YAML dates and the like: the schema says that a string was expected.
    return str(value)
