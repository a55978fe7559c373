# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ingress's configuration, held to its promises by the real Caddy."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import ssl
import stat
import sys
import time
from typing import Any, Dict, Iterator, Tuple

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import caddy_bed
from caddy_bed import Answer, Bed, Engine, request

CHUNKED = "Transfer-Encoding: chunked\r\n\r\n"
A = "A" * 43
A_OLD = "a" * 43
B = "B" * 43
OK = {"ns": "team-a", "token": A, "model": "tiny"}

Running = Tuple[Bed, Dict[str, Engine]]


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    with caddy_bed.running() as (bed, engines):
        yield bed, engines


@pytest.fixture
def running(shared: Running) -> Running:
    """The shared Caddy with its tokens as they were and nothing recorded."""
    bed, engines = shared
    bed.token("team-a", "current", A)
    bed.token("team-a", "previous", "")
    bed.token("team-a", "next", "")
    bed.token("team-b", "current", B)
    for engine in engines.values():
        engine.seen.clear()
        engine.behaviour = "answer"
        engine.gone.clear()
    return bed, engines


def refused(answer: Answer, status: int, code: str) -> bool:
    """Whether the ingress itself said no, in OpenAI's form, with its marker."""
    error = json.loads(answer.body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert answer.headers["content-type"] == "application/json"
    return (answer.status, error["code"], answer.headers["x-tether-ingress-error"]) == (
        status,
        code,
        code,
    )


def nothing_reached(engines: Dict[str, Engine]) -> bool:
    return not any(engine.seen for engine in engines.values())


# Order of the checks: namespace, token, then model, method and path.
ORDER = [
    ({}, 403, "namespace_not_served"),
    ({"ns": "", "token": A, "model": "tiny"}, 403, "namespace_not_served"),
    ({"ns": "team-c", "token": A, "model": "tiny"}, 403, "namespace_not_served"),
    ({"ns": "Team-A", "token": A, "model": "tiny"}, 403, "namespace_not_served"),
    ({"ns": "team-*", "token": A, "model": "tiny"}, 403, "namespace_not_served"),
    ({"ns": "team-a/../team-a", "token": A, "model": "tiny"}, 403, "namespace_not_served"),
    ({"ns": "{http.request.header.X-Relay-Model}", "model": "team-a"}, 403, "namespace_not_served"),
    ({"ns": "team-a", "model": "tiny"}, 401, "token_refused"),
    ({"ns": "team-a", "token": "", "model": "tiny"}, 401, "token_refused"),
    ({"ns": "team-a", "token": A[:-1], "model": "tiny"}, 401, "token_refused"),
    ({"ns": "team-a", "token": A + "A", "model": "tiny"}, 401, "token_refused"),
    ({"ns": "team-a", "token": A.lower(), "model": "tiny"}, 401, "token_refused"),
    ({"ns": "team-a", "token": B, "model": "tiny"}, 401, "token_refused"),
    ({"ns": "team-b", "token": A, "model": "secret"}, 401, "token_refused"),
    (
        {"ns": "team-a", "token": "{file./etc/passwd}%s" % A, "model": "t"},
        401,
        "token_refused",
    ),
    ({"ns": "team-a", "token": A}, 403, "path_not_served"),
    ({"ns": "team-a", "token": A, "model": ""}, 403, "path_not_served"),
    ({"ns": "team-a", "token": A, "model": "secret"}, 403, "path_not_served"),
    ({"ns": "team-a", "token": A, "model": "TINY"}, 403, "path_not_served"),
    ({"ns": "team-a", "token": A, "model": "tiny*"}, 403, "path_not_served"),
]


@pytest.mark.parametrize(("headers", "status", "code"), ORDER)
def test_order_of_checks(running: Running, headers: Dict[str, str], status: int, code: str) -> None:
    bed, engines = running
    assert refused(bed.send(request(**headers)), status, code)
    # The token is checked before the path: a stranger learns nothing of what is served.
    expected = (status, code) if code != "path_not_served" else (403, code)
    assert refused(bed.send(request("/slots", **headers)), *expected)
    assert nothing_reached(engines)


ALLOWED = [
    ("GET", "/v1/models", b""),
    ("GET", "/v1/models?", b""),
    ("GET", "/v1/models?a=/../b&c=%2e%2e//;d", b""),
    ("GET", "/health", b""),
    ("GET", "/props", b""),
    ("POST", "/v1/chat/completions", b'{"stream":false}'),
    ("POST", "/v1/chat/completions?x=1", b"{}"),
]


@pytest.mark.parametrize(("method", "target", "body"), ALLOWED)
def test_allowed(running: Running, method: str, target: str, body: bytes) -> None:
    bed, engines = running
    answer = bed.send(request(target, method, body, **OK))
    assert (answer.status, answer.body) == (200, b"engine")
    assert "x-tether-ingress-error" not in answer.headers, "an engine forged the marker"
    (raw,) = engines["team-a/tiny"].seen
    assert raw.split(b"\r\n")[0] == ("%s %s HTTP/1.1" % (method, target)).encode()
    assert raw.endswith(b"\r\n\r\n" + body)
    assert not engines["team-a/other"].seen
    assert not engines["team-b/secret"].seen


TRICKS = [
    ("GET", target)
    for target in (
        "/slots",
        "/metrics",
        "/lora-adapters",
        "/V1/models",
        "/v1/Models",
        "/v1/models/",
        "/v1/models//",
        "//v1/models",
        "/v1//models",
        "/./v1/models",
        "/v1/./models",
        "/x/../v1/models",
        "/v1/x/../models",
        "/v1/models/../../slots",
        "/v1/models/..",
        "/%2e%2e/v1/models",
        "/v1/%2e/models",
        "/v1/models/%2e%2e/%2e%2e/slots",
        "/v1%2fmodels",
        "/v1%2Fmodels",
        "/v1/%6dodels",
        "/v1/model%73",
        "/%76%31/models",
        "/v1/models%20",
        "/v1/models%3f",
        "/v1/models%3Fx",
        "/v1/models%00",
        "/v1/models%0a",
        "/v1/models%0d%0a",
        "/v1/models;x",
        "/v1/models;/../../slots",
        "/v1/..;/slots",
        "/v1/models\\..\\slots",
        "/v1\\models",
        "/v1/models%5c..%5cslots",
        "/v1/models.",
        "/v1/models&x",
        "/v1/models#",
        "/v1/models#?",
        "/slots#/v1/models",
        "/slots?/v1/models",
        "/v1/models*",
        "/*",
        "/",
        "/v1/models%ef%bc%8f",
        "/v1/models%c0%ae",
        "/v1/models%25%32%65",
        "http://anything.example/v1/models",
        "http://anything.example/slots",
        "https://other/v1/models",
        "HTTP://anything.example//v1/models",
        "unix:/v1/models",
    )
] + [
    ("POST", "/props"),
    ("post", "/v1/chat/completions"),
    ("GET", "/v1/chat/completions"),
    ("PUT", "/v1/models"),
    ("DELETE", "/v1/models"),
    ("OPTIONS", "/v1/models"),
    ("HEAD", "/v1/models"),
    ("TRACE", "/v1/models"),
    ("PATCH", "/v1/models"),
    ("QUERY", "/v1/models"),
    ("OPTIONS", "*"),
    ("CONNECT", "anything.example:80"),
    ("CONNECT", "/v1/models"),
    ("PRI", "*"),
    ("G", "ET /v1/models"),
    ("GET", "*"),
    ("GET", "v1/models"),
    ("GET", "/v1/models\x00"),
    ("GET", "/v1/models\x7f"),
    ("GET", "/v1/models\xff"),
    ("GET", "/v1/%zz"),
    ("GET", "/v1/models%"),
    ("GET", ""),
]


@pytest.mark.parametrize(("method", "target"), TRICKS)
def test_tricks_with_path_and_method(running: Running, method: str, target: str) -> None:
    bed, engines = running
    answer = bed.send(request(target, method, more="Connection: close", **OK))
    if (method, target) == ("OPTIONS", "*"):
        # Go's server answers this itself, with nothing.
        assert (answer.status, answer.body) == (200, b"")
    else:
        assert answer.status in (400, 403), answer
    assert nothing_reached(engines)


# Several values, other spellings, hop-by-hop: never better than a single right header.
HEADER_TRICKS = [
    ("two namespaces, wrong first", "X-Relay-Namespace: team-c\nX-Relay-Namespace: team-a", 403),
    ("two namespaces, right first", "X-Relay-Namespace: team-a\nX-Relay-Namespace: team-b", 403),
    ("the same twice", "X-Relay-Namespace: team-a\nX-Relay-Namespace: team-a", 403),
    ("list in one header", "X-Relay-Namespace: team-a, team-b", 403),
    ("underscore", "X_Relay_Namespace: team-a", 403),
    ("folded line", "X-Relay-Namespace:\n team-a\n x", 403),
    ("space before the colon", "X-Relay-Namespace : team-a", 400),
    ("namespace in hop-by-hop only", "Connection: X-Relay-Namespace", 403),
]


@pytest.mark.parametrize(("_what", "lines", "status"), HEADER_TRICKS)
def test_tricks_with_namespace_header(
    running: Running, _what: str, lines: str, status: int
) -> None:
    bed, engines = running
    answer = bed.send(request(token=A, model="tiny", more=lines))
    assert answer.status == status
    assert nothing_reached(engines)


@pytest.mark.parametrize(
    "lines",
    [
        "X-Relay-Token: %s\nX-Relay-Token: wrong" % A,
        "X-Relay-Token: wrong\nX-Relay-Token: %s" % A,
        "X-Relay-Token: %s\nX-Relay-Token: %s" % (A, A),
        "X-Relay-Token:\nX-Relay-Token: %s" % A,
        "X_Relay_Token: %s" % A,
        "X-Relay-Token: %s, %s" % (A, A),
        "Authorization: Bearer %s" % A,
        "Cookie: X-Relay-Token=%s" % A,
    ],
)
def test_tricks_with_token_header(running: Running, lines: str) -> None:
    bed, engines = running
    answer = bed.send(request(ns="team-a", model="tiny", more=lines))
    assert refused(answer, 401, "token_refused")
    assert nothing_reached(engines)


def test_spaces_around_a_value_are_no_part_of_it(running: Running) -> None:
    bed, engines = running
    assert (
        bed.send(request(ns="team-a", model="tiny", more="x-relay-token: \t%s " % A)).status == 200
    )
    assert len(engines["team-a/tiny"].seen) == 1


@pytest.mark.parametrize(
    "more",
    [
        "",
        "Connection: X-Relay-Token, X-Relay-Namespace",
        "Connection: x-relay-token\nConnection: close",
        "X-Relay-Other: x\nX_Relay_Token: %s\nx_RELAY_model: y" % A,
        "Upgrade: websocket\nConnection: Upgrade",
        "Upgrade: h2c\nConnection: Upgrade, HTTP2-Settings\nHTTP2-Settings: AAMAAABk",
        "TE: trailers\nConnection: TE",
        "Forwarded: for=1.2.3.4\nX-Forwarded-For: 1.2.3.4\nX-Forwarded-Host: evil",
    ],
)
def test_what_the_engine_is_shown(running: Running, more: str) -> None:
    bed, engines = running
    more = "Authorization: Bearer client-key\nX-Other: kept\n" + more
    assert bed.send(request(**OK, more=more)).status == 200
    (raw,) = engines["team-a/tiny"].seen
    head = raw.decode("latin-1").lower()
    assert "authorization: bearer client-key" in head
    assert "x-other: kept" in head
    assert "host: localhost" in head
    for word in ("relay", A.lower(), "team-a", "upgrade", "http2-settings", "x-forwarded", "evil"):
        assert word not in head, head


@pytest.mark.parametrize(
    ("_what", "raw"),
    [
        (
            "length and chunks",
            "Content-Length: 5\r\n" + CHUNKED + "0\r\n\r\nGET /slots HTTP/1.1\r\n",
        ),
        ("two lengths", "Content-Length: 0\r\nContent-Length: 40\r\n\r\nGET /slots HTTP/1.1\r\n"),
        ("length list", "Content-Length: 0, 40\r\n\r\nGET /slots HTTP/1.1\r\n"),
        ("signed length", "Content-Length: +4\r\n\r\nabcd"),
        ("strange coding", "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        ("two codings", "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        (
            "coding twice",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        ("bare line feed in chunks", "Transfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n"),
        ("null in a header", "X-A: a\x00b\r\n\r\n"),
        ("bare carriage return", "X-A: a\rX-Relay-Model: other\r\n\r\n"),
        ("no host", ""),
    ],
)
def test_smuggling(running: Running, _what: str, raw: str) -> None:
    """At most one request comes out of these bytes, and never the one hidden in the body."""
    bed, engines = running
    lines = ["POST /v1/chat/completions HTTP/1.1"]
    lines += [] if _what == "no host" else ["Host: x"]
    lines += ["X-Relay-Namespace: team-a", "X-Relay-Token: %s" % A, "X-Relay-Model: tiny"]
    answer = bed.send(("\r\n".join(lines) + "\r\n" + (raw or "\r\n")).encode("latin-1"))
    if _what == "bare line feed in chunks":
        # The engine notes what it got when its connection ends, which may be after the answer; it
        # must not be taken for the next case's.
        deadline = time.monotonic() + 5
        while not engines["team-a/tiny"].seen and time.monotonic() < deadline:
            time.sleep(0.05)
    seen = [raw for engine in engines.values() for raw in engine.seen]
    assert len(seen) <= 1
    if _what == "length and chunks":
        # Go takes the chunks and drops the length (RFC 9112, 6.3): one request, without a body.
        assert b"content-length: 5" not in b"".join(seen).lower()
    elif _what == "bare line feed in chunks":
        # Found while the body is on its way to the engine, which gets nothing that looks whole.
        assert answer.status in (400, 502), answer
        assert not any(raw.endswith(b"0\r\n\r\n") for raw in seen)
    else:
        assert answer.status in (400, 501), answer
        assert not seen
    assert not any(b"/slots" in raw for raw in seen)


def test_http_1_0(running: Running) -> None:
    bed, engines = running
    assert bed.send(request(version="HTTP/1.0", **OK)).status == 200
    assert bed.send(request("/slots", version="HTTP/1.0", **OK)).status == 403
    assert bed.send(request(version="HTTP/0.9", **OK)).status in (400, 505)
    assert len(engines["team-a/tiny"].seen) == 1


def test_pipelined_requests_are_each_checked(running: Running) -> None:
    bed, engines = running
    with bed.connect() as peer:
        peer.sendall(request(**OK) + request("/slots", **OK) + request(ns="team-a", model="tiny"))
        raw = b""
        while raw.count(b"HTTP/1.1 ") < 3:
            piece = peer.recv(65536)
            assert piece, raw
            raw += piece
    statuses = [int(part[:3]) for part in raw.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [200, 403, 401]
    assert len(engines["team-a/tiny"].seen) == 1


def test_tls_1_3_only(running: Running) -> None:
    bed, _engines = running
    with pytest.raises(ssl.SSLError):
        bed.connect(ssl.TLSVersion.TLSv1_2)
    with bed.connect() as peer:
        assert peer.version() == "TLSv1.3"


def test_clear_text_is_refused(running: Running) -> None:
    bed, engines = running
    with socket.create_connection(("127.0.0.1", bed.port), 5) as peer:
        peer.sendall(request(**OK))
        assert Answer.parse(caddy_bed.read_message(peer)).status == 400
    assert nothing_reached(engines)


@pytest.mark.parametrize("server_name", [None, "gpu1.test", "whatever.example"])
def test_the_certificate_does_not_depend_on_the_name_asked_for(
    running: Running, server_name: str | None
) -> None:
    bed, _engines = running
    context = ssl.create_default_context(cadata=bed.ca_pem)
    context.check_hostname = False
    raw = socket.create_connection(("127.0.0.1", bed.port), 5)
    with context.wrap_socket(raw, server_hostname=server_name) as peer:
        peer.sendall(request(**OK))
        assert Answer.parse(caddy_bed.read_message(peer)).status == 200


def test_http2_is_not_offered(running: Running) -> None:
    bed, _engines = running
    context = ssl.create_default_context(cadata=bed.ca_pem)
    context.set_alpn_protocols(["h2", "http/1.1"])
    raw = socket.create_connection(("127.0.0.1", bed.port), 5)
    with context.wrap_socket(raw, server_hostname="127.0.0.1") as peer:
        assert peer.selected_alpn_protocol() == "http/1.1"


def test_token_files_rotate_and_revoke_without_a_reload(running: Running) -> None:
    bed, _engines = running
    new = "n" * 43

    def status(token: str) -> int:
        return bed.send(request(ns="team-a", model="tiny", token=token)).status

    assert (status(A), status(new)) == (200, 401)
    bed.token("team-a", "next", new)
    assert (status(A), status(new)) == (200, 200)
    bed.token("team-a", "previous", A)
    bed.token("team-a", "current", new)
    bed.token("team-a", "next", "")
    assert (status(A), status(new)) == (200, 200)
    bed.token("team-a", "previous", "")
    assert (status(A), status(new)) == (401, 200)
    bed.token("team-a", "current", None)
    assert (status(A), status(new), status("")) == (401, 401, 401)
    for name in ("next", "previous"):
        bed.token("team-a", name, None)
    assert (status(A), status(new), status("")) == (401, 401, 401)


def test_revocation_reaches_kept_connections(running: Running) -> None:
    bed, _engines = running
    with bed.connect() as peer:
        peer.sendall(request(**OK))
        assert Answer.parse(caddy_bed.read_message(peer)).status == 200
        bed.token("team-a", "current", None)
        peer.sendall(request(**OK))
        assert Answer.parse(caddy_bed.read_message(peer)).status == 401


@pytest.mark.parametrize("content", ["", "\n", "short", "x" * 31])
def test_empty_or_short_token_file_lets_nobody_in(running: Running, content: str) -> None:
    bed, _engines = running
    bed.token("team-a", "current", content)
    for token in ("", content.strip(), content):
        if "\n" not in token:
            answer = bed.send(request(ns="team-a", model="tiny", token=token))
            assert refused(answer, 401, "token_refused")


def test_a_newline_at_the_end_of_a_token_file_does_no_harm(running: Running) -> None:
    bed, _engines = running
    bed.token("team-a", "current", A + "\n")
    assert bed.send(request(**OK)).status == 200


def test_body_limit(running: Running) -> None:
    bed, engines = running
    head = request("/v1/chat/completions", "POST", **OK)[:-2]
    answer = bed.send(head + b"Content-Length: 2000000\r\n\r\n" + b"x" * 2000000)
    assert refused(answer, 413, "body_too_large")
    assert bed.send(request("/v1/chat/completions", "POST", b"x" * 1000000, **OK)).status == 200
    assert len(engines["team-a/tiny"].seen[-1]) > 1000000


def test_engine_down(running: Running) -> None:
    bed, engines = running
    path = engines["team-a/other"].path
    engines["team-a/other"].close()
    start = time.monotonic()
    answer = bed.send(request(ns="team-a", token=A, model="other"))
    assert refused(answer, 503, "engine_unreachable")
    assert answer.headers["retry-after"] == "5"
    assert time.monotonic() - start < 10
    engines["team-a/other"] = Engine(path)
    assert bed.send(request(ns="team-a", token=A, model="other")).status == 200


def test_engine_breaks_off(running: Running) -> None:
    bed, engines = running
    engines["team-a/tiny"].answer, before = b"", engines["team-a/tiny"].answer
    try:
        answer = bed.send(request("/v1/chat/completions", "POST", b"{}", **OK))
    finally:
        engines["team-a/tiny"].answer = before
    # Not the word on which a relay may ask another host: this engine has the request.
    assert refused(answer, 502, "engine_failed")
    assert len(engines["team-a/tiny"].seen) == 1, "a POST was repeated"


def test_events_are_not_held_back(running: Running) -> None:
    bed, engines = running
    engines["team-a/tiny"].behaviour = "stream"
    with bed.connect() as peer:
        peer.sendall(request("/v1/chat/completions", "POST", b"{}", **OK))
        start, raw = time.monotonic(), b""
        while b"data" not in raw:
            raw += peer.recv(65536)
        assert time.monotonic() - start < 2  # the stream itself has no end
    assert engines["team-a/tiny"].gone.wait(3), "the engine goes on after its client left"


def test_a_client_that_leaves_frees_a_silent_engine(running: Running) -> None:
    """A prefill may be silent for minutes: it must end when nobody waits for it any more."""
    bed, engines = running
    engines["team-a/tiny"].behaviour = "silent"
    with bed.connect() as peer:
        peer.sendall(request("/v1/chat/completions", "POST", b"{}", **OK))
        while not engines["team-a/tiny"].seen:
            time.sleep(0.02)
    assert engines["team-a/tiny"].gone.wait(3)


def test_admin_is_a_private_socket(running: Running) -> None:
    bed, _engines = running
    mode = os.stat(bed.config["admin_socket"]).st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", 2019), 1)


def test_reload_takes_a_new_certificate_and_kept_connections_survive(running: Running) -> None:
    bed, _engines = running
    with bed.connect() as kept:
        old = caddy_bed.leaf_sha256(kept)
        kept.sendall(request(**OK))
        assert Answer.parse(caddy_bed.read_message(kept)).status == 200
        bed.sign()
        with bed.connect() as peer:
            assert caddy_bed.leaf_sha256(peer) == old, "a certificate was taken without a reload"
        bed.reload()
        with bed.connect() as peer:
            assert caddy_bed.leaf_sha256(peer) != old


def test_a_stream_survives_a_reload(running: Running) -> None:
    bed, engines = running
    engines["team-a/tiny"].behaviour = "stream"
    with bed.connect() as peer:
        peer.sendall(request("/v1/chat/completions", "POST", b"{}", **OK))
        peer.recv(65536)
        bed.reload()
        limit = time.monotonic() + 0.6
        while time.monotonic() < limit:
            assert peer.recv(65536)


def test_a_broken_certificate_leaves_the_old_configuration_serving(running: Running) -> None:
    bed, _engines = running
    path = pathlib.Path(bed.config["certificate"])
    good = path.read_text()
    path.write_text("broken")
    try:
        with pytest.raises(AssertionError, match="PEM"):
            bed.reload()
        assert bed.send(request(**OK)).status == 200
    finally:
        path.write_text(good)


def test_it_writes_nowhere_but_into_its_own_folder(running: Running) -> None:
    bed, _engines = running
    assert {item.name for item in (bed.folder / "run").iterdir() if item.is_dir()} == {
        "caddy",
        "storage",
    }
    assert not pathlib.Path("/caddy").exists()


def test_validate_and_format(running: Running) -> None:
    bed, _engines = running
    path = str(bed.caddyfile)
    done = bed.caddy("validate", "--config", path, "--adapter", "caddyfile")
    assert done.returncode == 0, done.stderr
    # `fmt` without --overwrite exits 1 when the file is not in its form.
    done = bed.caddy("fmt", path)
    assert (done.returncode, done.stdout) == (0, bed.caddyfile.read_text())


def test_no_secret_in_any_log(shared: Running) -> None:
    """Runs last: what all tests above have made Caddy log."""
    bed, engines = shared
    bed.token("team-a", "current", A)
    bed.send(request("/v1/models?api_key=query-secret", **OK, more="Authorization: Bearer hidden"))
    engines["team-a/other"].close()
    headers: Dict[str, Any] = {"ns": "team-a", "token": A, "model": "other"}
    bed.send(request("/v1/models?api_key=query-secret", **headers))
    time.sleep(0.3)
    log = bed.log.read_text()
    assert '"logger":"http.log.access' in log
    assert '"error":"dial unix ' in log
    assert '"namespace":"team-a"' in log
    assert '"model":"tiny"' in log
    for secret in (A, A_OLD, B, "n" * 43, "query-secret", "hidden", "client-key", "X-Relay-Token"):
        assert secret not in log
