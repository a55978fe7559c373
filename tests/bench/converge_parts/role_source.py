# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Gets what the published role needs: its collection, its program and a server for that."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from bench_parts.command import run
from bench_parts.places import CACHE, BenchError

from . import hosts
from .places import (
    GALAXY,
    NODE_EXPORTER_VERSION,
    ROLE_COLLECTION,
    ROLE_VERSION,
    STATE,
)

VARIABLE = "TETHER_BENCH_ROLE"
COLLECTIONS = CACHE / f"role-{ROLE_VERSION}"
_INSTALLED = COLLECTIONS / "ansible_collections" / ROLE_COLLECTION.replace(".", "/")
_ARCHIVE = f"node_exporter-{NODE_EXPORTER_VERSION}.linux-amd64.tar.gz"


def collection() -> None:
    """Install the collection at its pinned version, from Galaxy or from a folder.

    :raises BenchError: when neither gives that version
    """
    if _installed_version() == ROLE_VERSION:
        return
    # What the role depends on comes with the PyPI package `ansible`.
    install = [GALAXY, "collection", "install", "--no-deps", "--force", "-p", str(COLLECTIONS)]
    try:
        run([*install, f"{ROLE_COLLECTION}:=={ROLE_VERSION}"], timeout=120)
    except BenchError as error:
        folder = os.environ.get(VARIABLE, "")
        if not folder:
            raise BenchError(
                f"{ROLE_COLLECTION} {ROLE_VERSION}: ansible-galaxy could not fetch it, and "
                f"{VARIABLE} names no folder with it. Expected one of the two: a way to Galaxy's "
                f"server, or {VARIABLE}=<unpacked collection of that version>.\n{error}"
            ) from error
        _check_folder(Path(folder))
        run([*install, folder])
    if _installed_version() != ROLE_VERSION:
        raise BenchError(
            f"{COLLECTIONS}: {ROLE_COLLECTION} {_installed_version()}, expected {ROLE_VERSION}. "
            "Delete that folder and run again"
        )


def playbook() -> Path:
    """Write the playbook that the role's README shows.

    Not a file of the repository: tools that check playbooks there would look for the role.
    """
    path = STATE / "role.yml"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    play = {"hosts": "fleet_hosts", "roles": [f"{ROLE_COLLECTION}.node_exporter"]}
    path.write_text(json.dumps([play]))
    return path


def _check_folder(folder: Path) -> None:
    path = folder / "galaxy.yml"
    if not path.is_file():
        raise BenchError(f"{VARIABLE}={folder}: no galaxy.yml in it, expected that of a collection")
    said = yaml.safe_load(path.read_text())
    found = f"{said.get('namespace')}.{said.get('name')} {said.get('version')}"
    if found != f"{ROLE_COLLECTION} {ROLE_VERSION}":
        raise BenchError(
            f"{path}: {found}, expected {ROLE_COLLECTION} {ROLE_VERSION}. "
            "Give the folder of that very version: figures of another one say something else"
        )


def _installed_version() -> str:
    manifest = _INSTALLED / "MANIFEST.json"
    if not manifest.exists():
        return ""
    version: str = json.loads(manifest.read_text())["collection_info"]["version"]
    return version


@contextmanager
def download_server() -> Iterator[dict[str, str]]:
    """Serve the program as its publisher does; yields the role's variables that say so.

    The role asks its publisher's server at every run. A server on the same machine answers faster
    than one far away, which favours the role.
    """
    folder = _published()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, directory=str(folder), **options)  # type: ignore[arg-type]

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        yield {
            "node_exporter_version": NODE_EXPORTER_VERSION,
            "node_exporter_binary_url": f"{url}/{_ARCHIVE}",
            "node_exporter_checksums_url": f"{url}/sha256sums.txt",
        }
        server.shutdown()
        thread.join()


def _published() -> Path:
    """The node exporter as a release: an archive and its checksum, built from the Go module."""
    folder = CACHE / f"node_exporter-{NODE_EXPORTER_VERSION}"
    if (folder / "sha256sums.txt").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tether-bench-") as place:
        module = f"github.com/prometheus/node_exporter@v{NODE_EXPORTER_VERSION}"
        settings = {**os.environ, "GOBIN": place, "CGO_ENABLED": "0"}
        run(["go", "install", "-trimpath", module], env=settings)
        with tarfile.open(folder / _ARCHIVE, "w:gz") as archive:
            archive.add(Path(place) / "node_exporter", f"{_ARCHIVE[:-7]}/node_exporter")
    digest = hashlib.sha256((folder / _ARCHIVE).read_bytes()).hexdigest()
    # Last: it says that the archive is whole.
    (folder / "sha256sums.txt").write_text(f"{digest}  {_ARCHIVE}\n")
    return folder


def python_apt(names: list[str]) -> None:
    """Give the hosts python3-apt, which the role has installed and which hosts cannot fetch.

    The machine's apt fetches the packages for the hosts' own suite.
    """
    first = hosts.disk(names[0])
    folder = CACHE / "python3-apt"
    if not list(folder.glob("python3-apt_*.deb")):
        # apt works on the host's folders with the machine's own way to the network.
        settings = (
            f"Dir={first}",
            f"Dir::State::status={first}/var/lib/dpkg/status",
            "Dir::Bin::methods=/usr/lib/apt/methods",
            "APT::Sandbox::User=root",
        )
        apt = ["apt-get", "-q", "-y", *(f"-o{setting}" for setting in settings)]
        run([*apt, "update"])
        run([*apt, "install", "--no-install-recommends", "--download-only", "python3-apt"])
        folder.mkdir(parents=True, exist_ok=True)
        # The one that the other files belong to comes last: it says that they are all there.
        fetched = sorted((first / "var/cache/apt/archives").glob("*.deb"),
                         key=lambda path: path.name.startswith("python3-apt_"))  # fmt: skip
        for path in fetched:
            shutil.copy(path, folder)
    for name in names:
        if (hosts.disk(name) / "usr/lib/python3/dist-packages/apt").exists():
            continue
        inbox = hosts.disk(name) / "var/tmp"
        packages = [shutil.copy(path, inbox) for path in sorted(folder.glob("*.deb"))]
        inside = [f"/var/tmp/{Path(path).name}" for path in packages]
        run([*hosts.inside(name), "dpkg", "--install", *inside])
