# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The programs that fleet.lock.yml pins, unpacked for tests that ask the real thing.

Fetched, verified and unpacked by the collection's own code; kept by digest in the user's cache.
Alone it prints the settings that tests read: ``python tests/run/binaries.py``.
"""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from pathlib import Path

from paths import CACHE, COLLECTIONS, ROOT

# Artifact -> the variables in which tests look for its program.
VARIABLES = {
    "caddy": ("TETHER_CADDY",),
    "envoy": ("TETHER_ENVOY", "TETHER_TEST_ENVOY"),
    "llama_server": ("TETHER_LLAMA_SERVER",),
}


def settings(fetch: bool) -> dict[str, str]:
    """Variable -> path, of what this platform has a pin for.

    :param fetch: whether to bring what is missing; without, only what is there is told
    """
    sys.path.insert(0, str(ROOT / COLLECTIONS))
    from ansible_collections.tether.fleet.plugins.module_utils import archive
    from ansible_collections.tether.fleet.plugins.plugin_utils import depot, lock

    pins = lock.load(str(ROOT / "fleet.lock.yml"))
    here = lock.platform_of(platform.system(), platform.machine())
    found = {}
    for name, variables in VARIABLES.items():
        if here not in pins["artifacts"].get(name, {}).get("platforms", {}):
            continue
        pin = lock.pick(pins, name, here)
        folder = CACHE / "binaries" / pin["sha256"]
        if not folder.exists() and fetch:
            (want,) = depot.wants(pins, [{"name": name, "platform": here}], [], str(ROOT))
            store = depot.Depot(depot.default_folder(), print)
            store.fetch(want)
            folder.parent.mkdir(parents=True, exist_ok=True)
            # Complete or not there: the folder gets its name by one rename.
            half = Path(tempfile.mkdtemp(prefix=".half-", dir=folder.parent))
            try:
                path = store.locate(want.sha256, want.title)
                members = [{"mode": None, **item} for item in pin["extract"]]
                archive.unpack(path, pin["format"], members, str(half), want.title)
                half.chmod(0o755)
                half.rename(folder)
            except BaseException:
                shutil.rmtree(half, ignore_errors=True)
                raise
        if folder.exists():
            found.update(dict.fromkeys(variables, str(folder / pin["binary"])))
    return found


if __name__ == "__main__":
    for variable, value in settings(fetch=True).items():
        print(f"{variable}={value}")
