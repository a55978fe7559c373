# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where everything of a bed is: names, addresses, paths."""

from __future__ import annotations

import json
import os
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from . import files
from .errors import BedError

STATE_ROOT = Path("/var/lib/tether-bed")
CACHE_ROOT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tether-bed"
LOCKS = CACHE_ROOT / "locks"

DEFAULT_HOSTS = ("gpu1", "gpu2", "neighbour")
NODE = "bed"
LOGIN = "ops"

_FIXED_NUMBERS = {"demo": 0, "test": 1}
_FREE_NUMBERS = range(2, 200)
_BED_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")
_HOST_NAME = re.compile(r"[a-z][a-z0-9]{0,14}")


@dataclass(frozen=True)
class Bed:
    """One bed. Everything else about it follows from its name and its number."""

    name: str
    number: int
    hosts: dict[str, str] = field(default_factory=dict)
    """Host name to address."""

    # Names on the machine.

    @property
    def namespace(self) -> str:
        """Network namespace, and cgroup, that holds the whole bed."""
        return f"tether-{self.name}"

    @property
    def veth(self) -> str:
        """The machine's own link into the bed."""
        return f"tether{self.number}"

    # Addresses. Service and pod ranges differ per bed, so that the machine can
    # route to those of all beds.

    @property
    def network(self) -> str:
        """The local network of hosts and node."""
        return f"10.99.{self.number}.0/24"

    @property
    def node_address(self) -> str:
        """The cluster's node, and the hosts' gateway."""
        return self.address(1)

    @property
    def machine_address(self) -> str:
        """The machine itself, seen from the bed."""
        return self.address(254)

    def address(self, last: int) -> str:
        """An address in the bed's network."""
        return f"10.99.{self.number}.{last}"

    @property
    def pod_range(self) -> str:
        """Addresses of pods."""
        return f"10.100.{self.number}.0/24"

    def _service_address(self, last: int) -> str:
        third = self.number * 16
        return f"10.{112 + third // 256}.{third % 256}.{last}"

    @property
    def service_range(self) -> str:
        """ClusterIPs: four thousand, for fleets with many models."""
        return f"{self._service_address(0)}/20"

    @property
    def api_service_address(self) -> str:
        """ClusterIP of the Service kubernetes."""
        return self._service_address(1)

    @property
    def dns_address(self) -> str:
        """ClusterIP of the Service kube-dns."""
        return self._service_address(10)

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{self.node_address}:6443"

    # Paths.

    @property
    def state(self) -> Path:
        """Everything that the bed keeps on disk."""
        return STATE_ROOT / self.name

    @property
    def record(self) -> Path:
        """The file that remembers number and hosts."""
        return self.state / "bed.json"

    @property
    def kubeconfig(self) -> Path:
        """An administrator's kubeconfig."""
        return self.state / "kubeconfig"

    @property
    def ssh_config(self) -> Path:
        """For `ssh -F`."""
        return self.state / "ssh_config"

    @property
    def relay_image(self) -> Path:
        """A file with the reference, by digest, of the Envoy image."""
        return self.state / "relay_image"

    @property
    def audit_log(self) -> Path:
        """What the API server was asked."""
        return self.state / "audit.log"

    @property
    def logs(self) -> Path:
        """Logs of the bed's own processes."""
        return self.state / "logs"

    @property
    def pids(self) -> Path:
        """Records of the bed's own processes."""
        return self.state / "pids"

    @property
    def pki(self) -> Path:
        """The cluster's certificates and keys."""
        return self.state / "pki"

    @property
    def etc(self) -> Path:
        """Configuration of the cluster's programs."""
        return self.state / "etc"

    @property
    def containerd(self) -> Path:
        """containerd's own directories and socket."""
        return self.state / "containerd"

    def host_directory(self, host: str) -> Path:
        """Disk of a host."""
        return self.state / "hosts" / host


def lock_of(name: str) -> Path:
    """The lock under which a bed changes.

    Not in the state directory: a lock in a directory that `down` deletes would
    let two commands hold two different files of the same name.
    """
    return LOCKS / f"bed-{name}"


def check_name(name: str) -> str:
    """Refuse a bed name that would not do as part of other names."""
    if not _BED_NAME.fullmatch(name):
        raise BedError(
            f"{name!r} does not do as the name of a bed: "
            "at most 20 small letters, digits and hyphens, a letter first"
        )
    return name


def beds() -> list[Bed]:
    """All beds that have a record."""
    paths = sorted(STATE_ROOT.glob("*/bed.json"))
    return [bed for bed in map(_read, paths) if bed is not None]


def find(name: str) -> Bed | None:
    """The bed of this name, if it has a record."""
    return _read(STATE_ROOT / check_name(name) / "bed.json")


def get(name: str) -> Bed:
    """The bed of this name, or what to do about it."""
    bed = find(name)
    if bed is None:
        raise BedError(f"there is no bed {name}; `up` makes one")
    return bed


def settle(name: str, hosts: list[str] | None) -> Bed:
    """Find or number a bed, give its hosts addresses, and record both."""
    old = find(name)
    names = hosts or (list(old.hosts) if old else list(DEFAULT_HOSTS))
    for host in names:
        if not _HOST_NAME.fullmatch(host):
            raise BedError(
                f"{host!r} does not do as the name of a host: "
                "at most 15 small letters and digits, a letter first"
            )
    with files.locked(LOCKS / "numbers"):
        number = old.number if old else _free_number(name)
        bed = Bed(name, number)
        bed = Bed(name, number, _addresses(bed, names, old.hosts if old else {}))
        content = {"name": name, "number": number, "hosts": bed.hosts}
        files.write(bed.record, json.dumps(content, indent=2) + "\n")
    return bed


def is_mac(host: str) -> bool:
    """Whether a host is an emulated Mac: its name says so."""
    return re.fullmatch(r"mac[1-9]", host) is not None


def _read(path: Path) -> Bed | None:
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return Bed(content["name"], content["number"], content["hosts"])


def _free_number(name: str) -> int:
    """A number of its own: fixed for well-known beds, else stable by name.

    The same name gets the same number unless another bed has it already.
    """
    taken = {bed.number for bed in beds()}
    if name in _FIXED_NUMBERS:
        return _FIXED_NUMBERS[name]
    start = zlib.crc32(name.encode()) % len(_FREE_NUMBERS)
    for offset in range(len(_FREE_NUMBERS)):
        number = _FREE_NUMBERS[(start + offset) % len(_FREE_NUMBERS)]
        if number not in taken:
            return number
    raise BedError("no free network is left: take some beds down")


def _addresses(bed: Bed, names: list[str], known: dict[str, str]) -> dict[str, str]:
    """gpuN gets .10+N, the neighbour .21, macN .21+N, others what is free from .31 on."""
    chosen: dict[str, str] = {}
    for name in names:
        numbered = re.fullmatch(r"gpu([1-9])", name)
        if numbered:
            chosen[name] = bed.address(10 + int(numbered[1]))
        elif name == "neighbour":
            chosen[name] = bed.address(21)
        elif is_mac(name):
            chosen[name] = bed.address(21 + int(name.removeprefix("mac")))
        elif name in known:
            chosen[name] = known[name]
    for name in names:
        if name not in chosen:
            used = {*chosen.values(), *known.values()}
            free = (bed.address(last) for last in range(31, 250))
            chosen[name] = next(address for address in free if address not in used)
    return {name: chosen[name] for name in names}
