# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What names, images and numbers look like that the cluster's side takes.

The inventory's check and the modules both judge by these rules, so what the one lets through the
others never refuse. Standard library only: the check needs no cluster's libraries.
"""

from __future__ import annotations

import re
from typing import Any, List

MAX_REPLICAS = 64
# A record is the ConfigMap ``host-<name>``, and its name may have 253 characters.
MAX_HOST = 240

IMAGE = "a reference that ends in @sha256: and 64 hexadecimal digits"
HOST = "a name of lower-case letters, digits, - and ."

_DIGEST = re.compile(r"\S+@sha256:[0-9a-f]{64}")
_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_LABEL_NAME = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?" + _LABEL_NAME)
_LABEL_VALUE = re.compile("(%s)?" % _LABEL_NAME)
_PATH = re.compile(r"/[A-Za-z0-9/_.~-]*")
_SUBDOMAIN = re.compile(r"%s(\.%s)*" % (_LABEL, _LABEL))


def is_pinned(image: str) -> bool:
    """Whether an image is pinned by its digest: a tag may be another image tomorrow."""
    return bool(_DIGEST.fullmatch(image))


def is_path(text: str) -> bool:
    """Whether a text is a path that needs no escape anywhere it is written down."""
    return bool(_PATH.fullmatch(text))


def is_subdomain(text: str) -> bool:
    """Whether a text is a DNS subdomain as Kubernetes names objects; its length aside."""
    return bool(_SUBDOMAIN.fullmatch(text))


def is_host(name: str) -> bool:
    """Whether a host of this inventory name can have a registration record."""
    return len(name) <= MAX_HOST and is_subdomain(name)


def is_label(key: Any, value: Any) -> bool:
    """Whether two values are a Kubernetes label's key and its value."""
    return (
        isinstance(key, str)
        and bool(_LABEL_KEY.fullmatch(key))
        and isinstance(value, str)
        and bool(_LABEL_VALUE.fullmatch(value))
    )


def number(key: str, value: Any, default: int, lowest: int, highest: int, wrong: List[str]) -> int:
    """A whole number of an entry, which a template may have made a text.

    :param default: what stands for one that is wrong
    :param wrong: gets what is wrong with it
    """
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest:
        return value
    wrong.append("%s is not a number from %d to %d" % (key, lowest, highest))
    return default
