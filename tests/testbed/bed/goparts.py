# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs that are built from Go modules, pinned in ../goparts."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from . import cache
from .commands import run
from .errors import BedError

_SOURCES = Path(__file__).resolve().parent.parent / "goparts"

KUBERNETES_VERSION = "1.34.4"
COREDNS_VERSION = "1.15.0"
KUBE_ROUTER_VERSION = "2.1.0"

_MAJOR, _MINOR, _ = KUBERNETES_VERSION.split(".")
_KUBE_ROUTER = "github.com/cloudnativelabs/kube-router/v2"
_VERSION_PACKAGE = "k8s.io/component-base/version"


@dataclass(frozen=True)
class GoPart:
    """One program: a directory with a pinned go.mod, and how to build it."""

    name: str
    package: str = "."
    stamps: tuple[str, ...] = ()
    """Variables that the linker sets."""
    aliases: tuple[str, ...] = ()
    """Further names; the program does what its own name says."""

    @property
    def source(self) -> Path:
        """Directory of its go.mod."""
        return _SOURCES / self.name

    @property
    def _linker_flags(self) -> str:
        return " ".join(["-s", "-w", *(f"-X {stamp}" for stamp in self.stamps)])

    @property
    def key(self) -> str:
        """Names this very build in the cache."""
        inputs = sorted(path for path in self.source.iterdir() if path.is_file())
        recipe = [self.package, self._linker_flags, *self.aliases]
        return cache.key(*recipe, *(part for path in inputs for part in (path.name, path)))

    @property
    def directory(self) -> Path:
        """Where the built program is."""
        return cache.entry(self.name, self.key)

    def ensure(self) -> bool:
        """Build the program unless that was done; return whether it was built now."""
        return cache.ensure(self.name, self.key, self._build)[1]

    def _build(self, target: Path) -> None:
        if shutil.which("go") is None:
            raise BedError("`go` is not on the PATH: install Go 1.26 or newer (go.dev/dl)")
        # Politely: others use the machine while this takes minutes.
        build = ["nice", "go", "build", "-trimpath", "-mod=readonly", "-buildvcs=false"]
        run(
            [*build, "-ldflags", self._linker_flags, "-o", target / self.name, self.package],
            cwd=self.source,
            env={"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off", "GOARCH": "amd64"},
        )
        for alias in self.aliases:
            (target / alias).symlink_to(self.name)


KUBERNETES = GoPart(
    "kubernetes",
    stamps=(
        # Without these the version reads v0.0.0.
        f"{_VERSION_PACKAGE}.gitVersion=v{KUBERNETES_VERSION}",
        f"{_VERSION_PACKAGE}.gitMajor={_MAJOR}",
        f"{_VERSION_PACKAGE}.gitMinor={_MINOR}",
    ),
    aliases=(
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubelet",
        "kube-proxy",
        "kubectl",
    ),
)
KUBE_ROUTER = GoPart(
    "kube-router",
    package=f"{_KUBE_ROUTER}/cmd/kube-router",
    stamps=(f"{_KUBE_ROUTER}/pkg/version.Version=v{KUBE_ROUTER_VERSION}",),
)
COREDNS = GoPart("coredns")
PAUSE = GoPart("pause")

ALL = (KUBERNETES, KUBE_ROUTER, COREDNS, PAUSE)
