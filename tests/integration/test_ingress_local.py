# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A model's loopback port for accounts of the host, on the real Caddy; who may connect is the
firewall's part."""

from __future__ import annotations

import http.client
import json
import pathlib
import socket
import sys
from typing import Dict, Iterator, Optional, Tuple

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import caddy_bed
from caddy_bed import Bed, Engine
from ports import free_port

PORT = free_port()


@pytest.fixture(scope="module")
def running() -> Iterator[Tuple[Bed, Dict[str, Engine]]]:
    with caddy_bed.running(local={"team-a/tiny": PORT}, max_body=1000) as (bed, engines):
        yield bed, engines


def ask(
    method: str, target: str, body: Optional[bytes] = None, host: str = "", **headers: str
) -> Tuple[int, Dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
    given = {"Host": host or "127.0.0.1:%d" % PORT}
    given.update({key.replace("_", "-"): value for key, value in headers.items()})
    connection.request(method, target, body, given)
    response = connection.getresponse()
    found = {key.lower(): value for key, value in response.getheaders()}
    answer = response.status, found, response.read()
    connection.close()
    return answer


@pytest.mark.parametrize("host", ["", "localhost:%d" % PORT, "LOCALHOST"])
def test_the_paths_of_tenants_are_served_without_a_token(
    running: Tuple[Bed, Dict[str, Engine]], host: str
) -> None:
    _bed, engines = running
    engine = engines["team-a/tiny"]
    engine.seen.clear()
    status, _headers, _body = ask(
        "POST", "/v1/chat/completions?a=b", b"{}", host, X_Relay_Token="x", Authorization="mine"
    )
    assert status == 200
    assert engine.seen[0].startswith(b"POST /v1/chat/completions?a=b ")
    assert b"x-relay" not in engine.seen[0].lower()
    assert not engines["team-a/other"].seen
    assert not engines["team-b/secret"].seen


@pytest.mark.parametrize(
    ("method", "target", "host"),
    [
        ("GET", "/metrics", ""),
        ("GET", "/", ""),
        ("GET", "/v1/chat/completions", ""),
        ("POST", "/V1/chat/completions", ""),
        ("GET", "//v1/models", ""),
        ("GET", "/v1/./models", ""),
        ("GET", "/v1/models/", ""),
        ("GET", "/v1/%6dodels", ""),
        ("GET", "/v1/models", "rebound.example:%d" % PORT),
        ("GET", "/v1/models", "127.0.0.1.example"),
    ],
)
def test_nothing_else_is(
    running: Tuple[Bed, Dict[str, Engine]], method: str, target: str, host: str
) -> None:
    _bed, engines = running
    engines["team-a/tiny"].seen.clear()
    status, headers, body = ask(method, target, host=host)
    assert status == 403
    assert headers["x-tether-ingress-error"] == "path_not_served"
    assert json.loads(body)["error"]["code"] == "path_not_served"
    assert not engines["team-a/tiny"].seen


def test_the_body_limit_holds_here_too(running: Tuple[Bed, Dict[str, Engine]]) -> None:
    assert ask("POST", "/v1/chat/completions", b"x" * 1001)[0] == 413


def test_it_listens_on_loopback_alone(running: Tuple[Bed, Dict[str, Engine]]) -> None:
    # Another address of this machine; 127.0.0.0/8 is all there.
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", PORT), 2)


def test_the_file_is_in_caddys_own_form(running: Tuple[Bed, Dict[str, Engine]]) -> None:
    bed, _engines = running
    done = bed.caddy("fmt", str(bed.caddyfile))
    assert (done.returncode, done.stdout) == (0, bed.caddyfile.read_text())
