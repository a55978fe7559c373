# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reading the collection's own data files and their JSON schemas."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import yaml

try:
    import jsonschema

    JSONSCHEMA_ERROR = None
except ImportError as error:
    JSONSCHEMA_ERROR = error

HERE = os.path.dirname(__file__)


class MissingLibraryError(Exception):
    """A Python library that the controller lacks."""


def load_yaml(path: str) -> Any:
    """A YAML file as plain data."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with open(path, encoding="utf-8") as stream:
        return yaml.load(stream, Loader=loader)  # noqa: S506 - both loaders are safe ones


@cache
def validator(name: str) -> Any:
    """The validator of a schema that lies beside this file.

    :raises MissingLibraryError: saying what to install, where
    """
    if JSONSCHEMA_ERROR is not None:
        raise MissingLibraryError(
            "The Python library jsonschema is missing where Ansible runs (%s). Install it into "
            "the same environment as ansible-core: pip install jsonschema" % JSONSCHEMA_ERROR
        )
    # That the schema itself is sound is known before it ships: a unit test checks each of them.
    return jsonschema.Draft202012Validator(load_yaml(os.path.join(HERE, name)))
