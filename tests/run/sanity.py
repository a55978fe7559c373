# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""ansible-test sanity on what ships.

ansible-test refuses a folder that is not .../ansible_collections/tether/fleet, and looks at
everything in it; so the archive is unpacked at such a place, with tests/sanity (the ignore files)
beside it, which the archive does not carry.

ansible-test makes a virtual environment for each of its tests and keeps them in ~/.ansible/test.
It fetches pip for them from a server of its own; here pip comes from Python itself and from the
package index that is configured. So HOME is a folder of our own in the user's cache.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import import_module, util
from pathlib import Path

from archive import build, unpack
from paths import BIN, CACHE, ROOT

# Our modules stand on these; ansible-test looks only beside the collection.
NEIGHBOURS = ("kubernetes.core",)
# What hosts may have, beside the Python that runs this: the oldest one counts.
HOST_PYTHONS = ("3.9",)
# Not run; why:
SKIPPED = {
    "pslint": "there is no PowerShell in the collection",
}

# What ansible-test runs in place of get-pip.py: pip from the wheel that Python brings.
BOOTSTRAP = """\
import ensurepip, pathlib, runpy, sys
wheel = next(iter(sorted((pathlib.Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"))))
sys.path.insert(0, str(wheel))
sys.argv[1:] = ["install"] + [word for word in sys.argv[1:] if not word.startswith("--no-")]
runpy.run_module("pip", run_name="__main__")
"""


def make_home() -> Path:
    """HOME of ansible-test: its virtual environments, our bootstrap, the user's pip settings."""
    home = CACHE / "ansible-test"
    spec = util.find_spec("ansible_test")
    assert spec and spec.submodule_search_locations
    source = Path(spec.submodule_search_locations[0]) / "_internal" / "python_requirements.py"
    found = re.search(r"pip='([0-9.]+)'", source.read_text())
    if not found:
        raise SystemExit(
            f"{source} no longer says which pip it bootstraps; adapt tests/run/sanity.py"
        )
    script = home / ".ansible" / "test" / "cache" / f"get_pip_{found[1].replace('.', '_')}.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(BOOTSTRAP)
    for name in (".config/pip", ".pip", ".cache/pip"):
        theirs, link = Path.home() / name, home / name
        if theirs.exists() and not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(theirs)
    return home


def make_tree(folder: Path) -> Path:
    """The archive, unpacked, with the ignore files and the collections it stands on."""
    tree = unpack(build(folder), folder)
    ignored = ROOT / "tests" / "sanity"
    if ignored.exists():
        shutil.copytree(ignored, tree / "tests" / "sanity")
    for name in NEIGHBOURS:
        found = import_module(f"ansible_collections.{name}").__path__[0]
        link = folder / "ansible_collections" / Path(*name.split("."))
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(found)
    return tree


def find_pythons() -> dict[str, Path]:
    """Those of HOST_PYTHONS that this machine has and that start: version -> folder on PATH."""
    found = {}
    for version in HOST_PYTHONS:
        # pyenv keeps Pythons that are not on PATH, and puts stand-ins there that refuse to start.
        homes = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
        for candidate in [shutil.which(f"python{version}"), *reversed(homes)]:
            if (
                candidate
                and not subprocess.run(
                    [candidate, "-c", ""], capture_output=True, check=False
                ).returncode
            ):
                found[version] = Path(candidate).parent
                break
        else:
            print(f"no Python {version} here: import and compile are not tried with it")
    return found


def main() -> int:
    home = make_home()
    pythons = find_pythons()
    path = os.pathsep.join([str(BIN), *map(str, pythons.values()), os.environ["PATH"]])
    environment = {**os.environ, "HOME": str(home), "PATH": path}
    with tempfile.TemporaryDirectory(prefix="tether-sanity-") as folder:
        tree = make_tree(Path(folder))

        def sanity(*words: str) -> int:
            started = time.monotonic()
            status = subprocess.run(
                [BIN / "ansible-test", "sanity", "--color", "no", *words],
                cwd=tree, env=environment, stdin=subprocess.DEVNULL, check=False,
            ).returncode  # fmt: skip
            print(f"   {' '.join(words)}: {time.monotonic() - started:.1f} s", flush=True)
            return status

        for name, why in SKIPPED.items():
            print(f"left out: {name} ({why})")
        status = sanity(
            "--python", f"{sys.version_info.major}.{sys.version_info.minor}",
            *[word for name in SKIPPED for word in ("--skip-test", name)],
        )  # fmt: skip
        for version in pythons:
            status |= sanity("--python", version, "--test", "compile", "--test", "import")
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
