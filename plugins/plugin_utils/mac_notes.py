# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the owner of a Mac should know of it before it serves unattended, in words. Pure."""

from __future__ import annotations

from typing import Any, List, Mapping


def notes(facts: Mapping[str, Any]) -> List[str]:
    """Warnings.

    :param facts: as ``module_utils/mac_facts.py`` reads them; empty for other systems
    """
    found = []
    if facts.get("filevault"):
        found.append(
            "FileVault is on: after a restart, and after every power failure, nothing starts on"
            " this Mac until somebody unlocks its disk. Turn it off (fdesetup disable) where the"
            " Mac is to come back by itself; reboot.yml can unlock the disk for its own restarts."
        )
    if facts.get("installs_updates"):
        found.append(
            "this Mac installs updates of macOS by itself, and restarts for them without being"
            " drained. Turn that off (System Settings, General, Software Update, Automatic Updates:"
            " Install macOS updates), and restart it with reboot.yml."
        )
    return found
