# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ways from a client to an engine: each a proxy at the client's side and one on the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench_parts.real_parts import caddy_bed, cluster_ingress, envoy, envoy_data, objects, ports

from . import haproxy
from .engines import Engine
from .process import Process, answers

NAMESPACE = "team-a"
TOKEN = "T" * 43
_PATHS = [{"path": "/v1/chat/completions", "methods": ["POST"]}]


@dataclass(frozen=True)
class Way:
    """One way to an engine.

    :ivar pids: the proxies on it
    :ivar relay: the one of them that is the cluster's
    """

    address: str
    pids: tuple[int, ...] = ()
    relay: int = 0


@dataclass
class Programs:
    """What the ways are made of; no HAProxy where it cannot be had."""

    envoy: str
    caddy: str
    haproxy: list[str]


@contextmanager
def to(engine: Engine, folder: Path, programs: Programs) -> Iterator[dict[str, Way]]:
    """All ways to one engine, by name. They share the ingress where both end in Caddy."""
    folder.mkdir()
    with ExitStack() as stack:
        ingress = caddy_bed.Bed(folder)
        ingress.token(NAMESPACE, "current", TOKEN)
        ingress.config["engines"] = [
            {
                "namespace": NAMESPACE,
                "model": engine.name,
                "upstream": engine.socket,
                "paths": _PATHS,
                "health": "/health",
            }
        ]
        stack.callback(ingress.stop)
        ingress.start()
        below = ingress.pid
        found = {"direct": Way(engine.direct)}
        relay = _envoy(engine, folder, programs, ingress, stack)
        above = relay.process.pid if relay.process else 0
        found["relay"] = Way(f"127.0.0.1:{relay.port}", (above, below), above)
        port, pid = _caddy(engine, folder, programs, ingress, stack)
        found["caddy"] = Way(f"127.0.0.1:{port}", (pid, below), pid)
        if programs.haproxy:
            port, outer, inner = haproxy.start(engine, folder, programs.haproxy, ingress, stack)
            found["haproxy"] = Way(f"127.0.0.1:{port}", (outer, inner), outer)
        yield found


def _envoy(
    engine: Engine, folder: Path, programs: Programs, ingress: caddy_bed.Bed, stack: ExitStack
) -> cluster_ingress.Relay:
    """The relay with the files and the arguments of its pod."""
    relay = cluster_ingress.Relay(programs.envoy, folder / "relay")
    host = envoy_data.Host("gpu1", "127.0.0.1", ingress.port, (ingress.certificate,))
    files = envoy.render(NAMESPACE, engine.name, [host], TOKEN, "d" * 32, place=relay.place)
    relay.write({**files.plain, **files.secret})
    stack.callback(relay.stop)
    relay.start(objects.ENVOY_ARGUMENTS[2:])
    relay.wait_ready()
    return relay


def _caddy(
    engine: Engine, folder: Path, programs: Programs, ingress: caddy_bed.Bed, stack: ExitStack
) -> tuple[int, int]:
    """Caddy in the relay's place: the same pin, token, checks of health and access log."""
    place = folder / "caddy-relay"
    place.mkdir()
    (place / "pin.pem").write_text(ingress.certificate)
    (place / "token").write_text(TOKEN)
    port = ports.free_port()
    headers = [
        f"X-Relay-Namespace {NAMESPACE}",
        f"X-Relay-Model {engine.name}",
        f"X-Relay-Token {{file.{place}/token}}",
    ]
    lines = [
        "{",
        "\tadmin off",
        "\tauto_https off",
        "\tpersist_config off",
        "\tservers {",
        "\t\tprotocols h1",
        "\t}",
        "}",
        f"http://:{port} {{",
        "\tbind 127.0.0.1",
        "\tlog {",
        "\t\toutput stdout",
        "\t}",
        f"\treverse_proxy https://127.0.0.1:{ingress.port} {{",
        "\t\tflush_interval -1",
        "\t\tlb_try_duration 30s",
        *(f"\t\theader_up {line}" for line in headers),
        "\t\thealth_uri /health",
        "\t\thealth_interval 1s",
        "\t\thealth_headers {",
        *(f"\t\t\t{line}" for line in headers),
        "\t\t}",
        "\t\ttransport http {",
        "\t\t\tversions 1.1",
        "\t\t\tcompression off",
        f"\t\t\ttls_trust_pool file {place}/pin.pem",
        "\t\t}",
        "\t}",
        "}",
    ]
    (place / "Caddyfile").write_text("\n".join(lines) + "\n")
    argv: list[str | Path] = [
        programs.caddy,
        "run",
        "--config",
        place / "Caddyfile",
        "--adapter",
        "caddyfile",
    ]
    process = Process(
        argv, place / "caddy.log", lambda: answers(port), ingress.environment()
    )  # fmt: skip
    stack.callback(process.stop)
    return port, process.pid
