# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""HAProxy at both ends, with the same TLS, token, checks and rules.

It trusts the CA: HAProxy 2.6 refused a leaf as its only trusted certificate. That is less work for
it than the pin is for the others.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bench_parts.real_parts import caddy_bed, ports

from .engines import Engine
from .process import Process, answers

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEFAULTS = """\
global
    log stdout format raw local0
    nbthread 1
defaults
    mode http
    log global
    option httplog
    option http-no-delay
    timeout connect 2s
    timeout client 10m
    timeout server 10m
    timeout http-request 30s
"""
_RELAY = """\
frontend service
    bind 127.0.0.1:{outer}
    http-request set-header X-Relay-Namespace team-a
    http-request set-header X-Relay-Model {model}
    http-request set-header X-Relay-Token {token}
    default_backend hosts
backend hosts
    option httpchk
    http-check send meth GET uri /health hdr X-Relay-Namespace team-a hdr X-Relay-Model {model} \
hdr X-Relay-Token {token}
    server gpu1 127.0.0.1:{inner} ssl verify required ca-file {folder}/ca.pem \
ssl-min-ver TLSv1.3 check inter 1s
"""
_INGRESS = """\
frontend ingress
    bind 127.0.0.1:{inner} ssl crt {folder}/host.pem ssl-min-ver TLSv1.3
    acl namespace req.hdr(X-Relay-Namespace) -m str team-a
    acl token req.hdr(X-Relay-Token) -m str {token}
    acl model req.hdr(X-Relay-Model) -m str {model}
    acl served path -m str /v1/chat/completions /health
    http-request deny deny_status 403 unless namespace
    http-request deny deny_status 401 unless token
    http-request deny deny_status 403 unless model served
    http-request del-header X-Relay- -m beg
    default_backend engine
backend engine
    http-reuse never
    server engine unix@{engine}
"""


def start(
    engine: Engine,
    folder: Path,
    program: Sequence[str],
    ingress: caddy_bed.Bed,
    stack: ExitStack,
) -> tuple[int, int, int]:
    """Start both; the port for clients, and the two processes."""
    place = folder / "haproxy"
    place.mkdir(mode=0o700)
    (place / "ca.pem").write_text(ingress.ca_pem)
    key = (folder / "identity" / "host.key").read_text()
    (place / "host.pem").write_text(ingress.certificate + key)
    words = {
        "outer": ports.free_port(),
        "inner": ports.free_port(),
        "model": engine.name,
        "token": (ingress.tokens / "team-a" / "current").read_text(),
        "folder": place,
        "engine": engine.socket,
    }
    pids = []
    for name, text, port in (("ingress", _INGRESS, "inner"), ("relay", _RELAY, "outer")):
        config = place / f"{name}.cfg"
        config.write_text(_DEFAULTS + text.format(**words))
        number = int(str(words[port]))
        process = Process(
            [*program, "-db", "-f", config],
            place / f"{name}.log",
            lambda number=number: answers(number),  # type: ignore[misc]
        )
        stack.callback(process.stop)
        pids.append(process.pid)
    return int(str(words["outer"])), pids[1], pids[0]
