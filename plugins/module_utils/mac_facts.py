# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What of a Mac decides whether it serves unattended. Reads, changes nothing.

What cannot be read is None: a Mac that does not say whether it is managed is no worse for that.
"""

from __future__ import annotations

import plistlib
import re
from typing import Any, Dict, Optional
from xml.parsers.expat import ExpatError

from ansible_collections.tether.fleet.plugins.module_utils.daemon import commands

# Both are property lists that everybody may read; no program need be run for them.
_VERSION = "/System/Library/CoreServices/SystemVersion.plist"
_UPDATES = "/Library/Preferences/com.apple.SoftwareUpdate.plist"


def read() -> Dict[str, Any]:
    """``{"version": "26.5.1", "filevault", "managed", "installs_updates": whether, or None}``."""
    return {
        "version": str(_plist(_VERSION).get("ProductVersion", "")),
        # fdesetup(8): "FileVault is On." or "... Off."
        "filevault": _said(["/usr/bin/fdesetup", "status"], r"FileVault is (On|Off)", "On"),
        # profiles(1): "MDM enrollment: No", or "Yes", "Yes (User Approved)".
        "managed": _said(
            ["/usr/bin/profiles", "status", "-type", "enrollment"],
            r"MDM enrollment: (Yes|No)",
            "Yes",
        ),
        "installs_updates": _flag(_plist(_UPDATES).get("AutomaticallyInstallMacOSUpdates")),
    }


def _plist(path: str) -> Dict[str, Any]:
    try:
        with open(path, "rb") as stream:
            found = plistlib.load(stream)
    except (OSError, ValueError, ExpatError, plistlib.InvalidFileException):
        return {}
    return found if isinstance(found, dict) else {}


def _flag(value: Any) -> Optional[bool]:
    """`defaults write` makes a number of it, System Settings a boolean."""
    return None if value is None else bool(value)


def _said(argv: Any, pattern: str, yes: str) -> Optional[bool]:
    found = re.search(pattern, commands.run(argv, timeout=20).stdout)
    return found.group(1) == yes if found else None
