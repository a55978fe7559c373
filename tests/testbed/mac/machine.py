# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which Mac is emulated: a Mac mini with an M4 Pro and macOS 15. Tests change it, tools read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import pf_state, places, store

_DOCUMENT = "machine"
VERSION = {"version": "15.6", "build": "24G84"}
_DEFAULTS: dict[str, Any] = {
    **VERSION,
    "model": "Mac16,11",
    "processor": "Apple M4 Pro",
    "cores": 12,
    "memory": 64 * 2**30,
    # Whether a device management server manages it.
    "managed": False,
}
KERNEL = "24.6.0"
"""Darwin's release under macOS 15.6; preloaded.c answers the same."""

SYSTEM_VERSION = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
	<key>ProductBuildVersion</key>
	<string>{build}</string>
	<key>ProductName</key>
	<string>macOS</string>
	<key>ProductVersion</key>
	<string>{version}</string>
</dict>
</plist>
"""


def get(key: str) -> Any:
    """A property of the Mac."""
    return {**_DEFAULTS, **store.read(store.kept(_DOCUMENT))}[key]


def change(**properties: Any) -> None:
    """Make it another Mac; a test does."""
    with store.changed(store.kept(_DOCUMENT)) as content:
        content.update(properties)
    write_version(places.root(), get("version"), get("build"))


def major() -> int:
    """Major version of macOS."""
    return int(str(get("version")).split(".")[0])


def update(version: str, build: str) -> None:
    """Install an update of macOS: it brings its own pf.conf (an issue says); needs a reboot too."""
    change(version=version, build=build)
    places.place("/etc/pf.conf").write_text(pf_state.STOCK)


def write_version(root: Path, version: str, build: str) -> None:
    """The file that macOS has, and that Python's platform.mac_ver() reads."""
    path = root / "System/Library/CoreServices/SystemVersion.plist"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SYSTEM_VERSION.format(version=version, build=build))
