# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Services behind the real Caddy: prefixes of paths, upgrades, and what the program is told."""

from __future__ import annotations

import pathlib
import sys
from typing import Any, Dict, Iterator, Tuple

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import caddy_bed
from caddy_bed import Bed, Engine, request

TOKEN = "T" * 43
SWITCHED = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Accept: x\r\n\r\n"
)
UPGRADE = "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Key: a\nSec-WebSocket-Version: 13"
Running = Tuple[Bed, Dict[str, Engine]]


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    def service(model: str, path: str, **more: Any) -> Dict[str, Any]:
        return {
            "kind": "service",
            "namespace": "tools",
            "model": model,
            "upstream": path,
            "health": "/health",
            **more,
        }

    with caddy_bed.running() as (bed, _engines):
        run = bed.folder / "run"
        made = {name: Engine(str(run / (name + ".sock"))) for name in ("open", "art")}
        every = ["GET", "POST"]
        bed.config["engines"] += [
            service(
                "open", made["open"].path, paths=[{"path": "/", "methods": every, "below": True}]
            ),
            service(
                "art",
                made["art"].path,
                paths=[
                    {"path": "/api/", "methods": ["GET", "POST"], "below": True},
                    {"path": "/ws", "methods": ["GET"]},
                ],
                websocket=True,
                host_header="art.internal:8188",
            ),
        ]
        bed.caddyfile.write_text(caddy_bed.ingress_config.render(bed.config))
        bed.reload()
        try:
            yield bed, made
        finally:
            for engine in made.values():
                engine.close()


@pytest.fixture
def running(shared: Running) -> Running:
    bed, engines = shared
    bed.token("tools", "current", TOKEN)
    for engine in engines.values():
        engine.seen.clear()
    return bed, engines


def ask(bed: Bed, target: str, method: str = "GET", model: str = "art", **more: str) -> int:
    return bed.send(request(target, method, ns="tools", token=TOKEN, model=model, **more)).status


@pytest.mark.parametrize(
    "target",
    [
        "/api/",
        "/api/x",
        "/api/a%20b/c.d",
        "/api/x?y=/../z",
        "/api/...",
        "/api/a;b",
        "/ws",
        "/health",
    ],
)
def test_let_through_as_it_came(running: Running, target: str) -> None:
    bed, engines = running
    assert ask(bed, target) == 200
    (seen,) = engines["art"].seen
    assert seen.startswith(b"GET %s HTTP/1.1\r\n" % target.encode())


# What a program might take for /secret or for another path than was compared.
@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/api",
        "/apix",
        "/API/x",
        "/ws/",
        "/ws/x",
        "/api/..",
        "/api/../secret",
        "/api/./x",
        "/api/x/../../secret",
        "/api/..;/secret",
        "/api/..;a=b/secret",
        "/api//secret",
        "/api/%2e%2e/secret",
        "/api/.%2E/secret",
        "/api/%252e%252e/secret",
        "/api/..%2fsecret",
        "/api/x%2Fsecret",
        "/api/..%5csecret",
        "/api/..\\secret",
        "/api/x%00",
        "/api/x%0d%0aX-A:%20b",
        "//api/x",
        "/%61pi/x",
        "http://other.example/api/x",
        "/secret/api/",
    ],
)
def test_tricks(running: Running, target: str) -> None:
    bed, engines = running
    assert ask(bed, target) in (400, 403)
    assert engines["art"].seen == []


def test_methods(running: Running) -> None:
    bed, engines = running
    assert ask(bed, "/api/x", "POST", body=b"{}") == 200  # type: ignore[arg-type]
    for method in ("DELETE", "get", "TRACE", "X", "CONNECT"):
        assert ask(bed, "/api/x", method) in (400, 403, 405)
    assert ask(bed, "/ws", "POST") == 403
    assert len(engines["art"].seen) == 1


def test_a_service_without_rules_takes_every_path(running: Running) -> None:
    bed, engines = running
    for target in ("/", "/x/../y", "//z"):
        assert ask(bed, target, model="open") == 200
    assert len(engines["open"].seen) == 3
    assert ask(bed, "/", "PUT", model="open") == 403


def test_namespaces_and_tokens_count_for_services_too(running: Running) -> None:
    bed, engines = running
    assert bed.send(request("/api/x", ns="tools", model="art")).status == 401
    assert bed.send(request("/api/x", ns="team-a", token=TOKEN, model="art")).status == 401
    assert engines["art"].seen == []


def test_what_the_program_is_told(running: Running) -> None:
    bed, engines = running
    lines = "X-Forwarded-For: 1.2.3.4\nX-Relay-Other: y\nAuthorization: Bearer mine"
    assert ask(bed, "/api/x", more=lines) == ask(bed, "/x", model="open", more=lines) == 200
    for name, host in (("art", b"art.internal:8188"), ("open", b"anything.example")):
        (seen,) = engines[name].seen
        assert b"\r\nHost: %s\r\n" % host in seen
        assert b"\r\nAuthorization: Bearer mine\r\n" in seen
        assert b"relay" not in seen.lower()
        assert b"forwarded" not in seen.lower()


def test_upgrades(running: Running) -> None:
    bed, engines = running
    engines["art"].answer, before = SWITCHED, engines["art"].answer
    try:
        assert ask(bed, "/ws", more=UPGRADE) == 101
        assert b"\r\nUpgrade: websocket\r\n" in engines["art"].seen[0]
    finally:
        engines["art"].answer = before
    # Not asked for in its entry: an ordinary request.
    assert ask(bed, "/ws", model="open", more=UPGRADE) == 200
    assert b"upgrade" not in engines["open"].seen[0].lower()


def test_the_text_is_as_caddy_would_write_it(running: Running) -> None:
    bed, _engines = running
    assert bed.caddy("fmt", "--diff", str(bed.caddyfile)).returncode == 0
    assert bed.caddy("fmt", str(bed.caddyfile)).stdout == bed.caddyfile.read_text()
