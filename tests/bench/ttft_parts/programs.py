# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The programs that are measured and that measure: pinned, or built once and kept."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path

from bench_parts.command import run
from bench_parts.places import CACHE, ROOT, BenchError

_LOAD = Path(__file__).resolve().parent / "load"
_HAPROXY_PACKAGES = ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")


def pinned() -> dict[str, str]:
    """Caddy, Envoy and llama-server that fleet.lock.yml pins: variable to path."""
    lines = run([sys.executable, ROOT / "tests" / "run" / "binaries.py"]).splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def load() -> Path:
    """The clients and the fixed-answer engine, built from ./load."""
    sources = sorted(_LOAD.iterdir())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    program = CACHE / f"load-{digest}"
    if not program.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as place:
            built = Path(place) / "load"
            settings = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
            run(["go", "build", "-C", _LOAD, "-trimpath", "-o", built, "."], env=settings)
            built.rename(program)
    return program


def haproxy() -> list[str]:
    """The beginning of HAProxy's command line: Debian's package, unpacked and not installed.

    :raises BenchError: where it cannot be had
    """
    folder = CACHE / "haproxy"
    if not (folder / "usr" / "sbin" / "haproxy").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as place:
            for package in _HAPROXY_PACKAGES:
                try:
                    run(["env", "-C", place, "apt-get", "-q", "download", package])
                except BenchError:
                    if package == "haproxy":
                        raise  # the others are libraries that not every version needs
            unpacked = Path(place) / "root"
            for archive in Path(place).glob("*.deb"):
                run(["dpkg-deb", "-x", archive, unpacked])
            unpacked.rename(folder)
    libraries = f"{folder}/usr/lib/x86_64-linux-gnu:{folder}/lib/x86_64-linux-gnu"
    return ["env", f"LD_LIBRARY_PATH={libraries}", str(folder / "usr" / "sbin" / "haproxy")]


def model() -> Path:
    """The tiny random model of the tests."""
    path = CACHE / "tiny.gguf"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".new")
        run([sys.executable, ROOT / "tests" / "models" / "make_tiny.py", half])
        half.rename(path)
    return path
