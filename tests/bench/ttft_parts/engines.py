# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The engines behind the ingress: the real llama-server, and one whose answer is fixed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench_parts.real_parts import ports

from . import programs
from .process import Process


@dataclass(frozen=True)
class Engine:
    """A running engine.

    :ivar socket: where the ingress finds it
    :ivar direct: where a client without any proxy finds it
    """

    name: str
    socket: str
    direct: str
    process: Process


def llama(folder: Path, binary: str) -> Engine:
    """llama-server with one slot and the tests' tiny model: its first token comes within 2 ms.

    It listens at one place only, so the direct client uses the unix socket too, which is quicker
    than TCP: that favours the direct way.
    """
    path = folder / "llama.sock"
    argv: list[str | Path] = [binary, "--model", programs.model(), "--host", path, "--no-webui"]
    argv += ["--ctx-size", "512", "--parallel", "1", "--threads", "1"]
    log = folder / "llama.log"
    process = Process(argv, log, lambda: "listening on" in log.read_text(errors="replace"))
    return Engine("llama", str(path), str(path), process)


def fixed(folder: Path, load: Path, name: str, milliseconds: int = 0) -> Engine:
    """An engine with one small answer.

    :param milliseconds: what its first token takes
    """
    path, address = folder / f"{name}.sock", f"127.0.0.1:{ports.free_port()}"
    argv: list[str | Path] = [load, "engine", path, address, f"{milliseconds}ms"]
    process = Process(argv, folder / f"{name}.log", path.exists)
    return Engine(name, str(path), address, process)
