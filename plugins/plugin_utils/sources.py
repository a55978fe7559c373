# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where a model's file comes from: an https URL, or a path on the controller.

Plain http is refused although every file has a digest: the digest says that the file is the right
one, not who saw the request, nor who keeps the controller busy with an endless answer.
"""

from __future__ import annotations

import os
import re
from typing import Callable, Optional
from urllib.parse import urlsplit

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def check(source: str) -> Optional[str]:
    """What is wrong with a source, or None."""
    if not source.isprintable() or source != source.strip():
        return "has blanks at an end or control characters"
    if not _SCHEME.match(source):
        return None
    try:
        parts = urlsplit(source)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        return "is no URL (%s)" % error
    if parts.scheme == "file":
        return "is a file URL; give the path alone"
    if parts.scheme == "hf":
        return "is an hf URL; give the file's https URL (its download link)"
    if parts.scheme == "http":
        return (
            "is plain http, which is refused: anybody on the way can read and stall it; give an "
            "https URL or a path on the controller"
        )
    if parts.scheme != "https":
        return "has the scheme %s; expected an https URL or a path" % parts.scheme
    if parts.username or parts.password:
        return "holds a user or password, which would show in logs; keep them out of the URL"
    if not host or port == 0:
        return "is a URL without a host"
    if " " in source:
        return "has a blank in it; write %20"
    if not parts.path.strip("/"):
        return "is a URL without a file"
    return None


def absolute(source: str, base: str, expand: Optional[Callable[[str], str]] = None) -> str:
    """A source as the depot takes it: URLs as they are, paths absolute."""
    if _SCHEME.match(source):
        return source
    path = expand(source) if expand is not None else source
    return os.path.normpath(os.path.join(base, path))
