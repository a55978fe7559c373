# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ingress's configuration: a Caddyfile from plain data, by one pure function.

The order of the checks is fixed: the namespace is served here (else 403), the token is one of
that namespace's (else 401), the model is this namespace's and method and path are on its list
(else 403).

Three habits of Caddy 2.11.7 shape the text; ``tests/integration/test_ingress_caddy.py`` holds it to
them:

* its ``path`` matcher ignores case, merges slashes and decodes; so paths are compared with the raw
  request target, ``{http.request.orig_uri}``, up to the first ``?``;
* a missing file and a missing header both read as the empty string; so a token has a least length;
* its error log prints headers; so no header is logged at all, and no query, which may hold a key.

A reload is needed when this text or the certificate changes, never for tokens. It is not free: a
request that arrives while the old servers shut down is closed without an answer (Go's net/http
drops what it reads after a shutdown began; measured: one to two requests a reload with four busy
clients). So drain the host first where that matters.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Set, Tuple

from ansible_collections.tether.fleet.plugins.module_utils import marks

MIN_TOKEN = 32
TOKEN_FILES = ("current", "next", "previous")

DEFAULTS: Dict[str, Any] = {
    "bind": [],
    "port": 9443,
    "certificate": "/etc/tether/identity/host.crt",
    "key": "/etc/tether/identity/host.key",
    "admin_socket": "/run/tether/ingress/admin.sock",
    "tokens": "/etc/tether/ingress/tokens",
    "storage": "/run/tether/ingress/storage",
    "log": None,
    "max_body": 32 * 1024 * 1024,
    "grace_period_seconds": 600,
    "http2": False,
    "engines": [],
}

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
_FILE = re.compile(r"/[A-Za-z0-9._/@+-]+\Z")
_PATH = re.compile(r"/[A-Za-z0-9._~/-]*\Z")
_NO_UPGRADE = ["\theader_up -Upgrade", "\theader_up -Connection"]
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_LOOPBACK = re.compile(r"(?:127\.0\.0\.1|\[::1\]):([0-9]{1,5})\Z")
_BIND = re.compile(r"[0-9A-Fa-f:.]+\Z")
_HOST_HEADER = re.compile(r"[A-Za-z0-9.-]+(?::[0-9]{1,5})?\Z")
# What a program might read as another path than the one that a prefix was compared with: segments
# that are empty or dots, also with parameters (Tomcat), and what such are made of in code.
_DOUBTFUL = r"(?i)//|/[.][.]?(;|/|$)|%(2e|2f|5c|25|[01])|[^!-~]|[\x5c]"


class ConfigError(ValueError):
    """Input that would not make a safe Caddyfile: all of it, one line a mistake."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        self.mistakes = list(mistakes)
        super().__init__("ingress configuration: " + "; ".join(self.mistakes))


def render(config: Mapping[str, Any]) -> str:
    """The Caddyfile.

    :param config: keys of ``DEFAULTS``; ``engines`` is a list of ``{"namespace", "model",
        "upstream": absolute path of a unix socket or "127.0.0.1:port", "paths": [{"path",
        "methods": [...]}], "health": path, {"path": path} or None, "metrics": path or None,
        "local": {"port"} or None}``; other keys of an engine are left alone. A service's entries
        say ``"below": True`` of a path that stands for all that begin with it, and ``"kind":
        "service"``, ``"websocket"``, ``"host_header"``. ``log`` is an absolute path or None for
        standard error (the journal). ``max_body`` in bytes; 0 for no limit.
    :raises ConfigError: with every mistake at once
    """
    wanted = dict(DEFAULTS)
    wanted.update(config)
    mistakes = list(_mistakes(wanted, set(config)))
    if mistakes:
        raise ConfigError(mistakes)
    lines: List[str] = []
    lines += _globals(wanted)
    lines += _snippets(wanted)
    lines += _site(wanted)
    for engine in wanted["engines"]:
        if engine.get("local"):
            lines += _local_site(engine, wanted["max_body"])
    return "\n".join(lines) + "\n"


def _globals(wanted: Mapping[str, Any]) -> List[str]:
    listener = [
        "\tservers {",
        "\t\tprotocols %s" % ("h1 h2" if wanted["http2"] else "h1"),
        "\t\tmax_header_size 64KB",
        "\t\ttimeouts {",
        "\t\t\tread_header 10s",
        "\t\t\tidle 5m",
        "\t\t}",
        "\t}",
    ]
    output = "output file %s" % wanted["log"] if wanted["log"] else "output stderr"
    return [
        "# Made by tether.fleet; changes here are lost.",
        "{",
        "\tadmin unix/%s|0600" % wanted["admin_socket"],
        "\tauto_https off",
        "\tocsp_stapling off",
        "\tpersist_config off",
        "\tstorage file_system %s" % wanted["storage"],
        "\tgrace_period %ds" % wanted["grace_period_seconds"],
        *listener,
        "\tlog default {",
        "\t\t%s" % output,
        "\t\tformat filter {",
        "\t\t\twrap json",
        "\t\t\tfields {",
        "\t\t\t\trequest>headers delete",
        "\t\t\t\trequest>tls delete",
        "\t\t\t\theaders delete",
        "\t\t\t\tresp_headers delete",
        '\t\t\t\trequest>uri regexp "[?].*" ""',
        "\t\t\t}",
        "\t\t}",
        "\t}",
        "}",
        "",
    ]


def _snippets(wanted: Mapping[str, Any]) -> List[str]:
    """``refuse STATUS CODE MESSAGE``: an answer in the form of OpenAI's errors."""
    more = '"type":"ingress_error","param":null,"code":"{args[1]}"'
    body = '{"error":{"message":"{args[2]}",%s}}' % more
    return [
        "(refuse) {",
        "\theader -Server",
        "\theader Content-Type application/json",
        "\theader %s {args[1]}" % marks.INGRESS_ERROR,
        "\trespond `%s` {args[0]}" % body,
        "}",
        "",
        *_proxy_snippet("engine"),
        *(_proxy_snippet("service") if any(_is_service(one) for one in wanted["engines"]) else []),
    ]


def _proxy_snippet(name: str) -> List[str]:
    """How requests go on. A service is told the name that was asked for, and may upgrade."""
    engine = name == "engine"
    return [
        "(%s) {" % name,
        "\tflush_interval -1",
        # With or without an underscore, in any case: an engine behind WSGI sees no difference.
        "\theader_up -X-Relay-*",
        "\theader_up -X_Relay_*",
        "\theader_up -X-Forwarded-*",
        *(_NO_UPGRADE if engine else []),
        "\theader_up -Via",
        # Ollama and others take only their own names, as a guard against DNS rebinding.
        *(["\theader_up Host localhost"] if engine else []),
        "\theader_down -%s" % marks.INGRESS_ERROR,
        # What would steer the relay's own proxy is not an engine's to say.
        "\theader_down -X-Envoy-*",
        "\ttransport http {",
        "\t\tversions 1.1",
        # Engines close kept connections at will; a POST that meets one would fail.
        "\t\tkeepalive off",
        "\t\tdial_timeout 2s",
        "\t\tcompression off",
        "\t}",
        "}",
        "",
    ]


def _site(wanted: Mapping[str, Any]) -> List[str]:
    lines = ["https://:%d {" % wanted["port"]]
    if wanted["bind"]:
        lines.append("\tbind %s" % " ".join(wanted["bind"]))
    lines += [
        "\ttls %s %s {" % (wanted["certificate"], wanted["key"]),
        "\t\tprotocols tls1.3",
        "\t}",
        "",
        "\tlog",
        "",
    ]
    lines += _body_limit(wanted["max_body"])
    lines.append("\troute {")
    for namespace in sorted({engine["namespace"] for engine in wanted["engines"]}):
        engines = [item for item in wanted["engines"] if item["namespace"] == namespace]
        lines += _namespace(namespace, engines, wanted)
    lines += [
        '\t\timport refuse 403 namespace_not_served "This host serves no model of that namespace."',
        "\t}",
        "",
        *_errors(),
        "}",
    ]
    return lines


def _local_site(engine: Mapping[str, Any], max_body: int) -> List[str]:
    """One engine for accounts of the host itself: the same paths, in clear text, without a token.

    The firewall decides who connects. The names are a guard against pages in a browser there whose
    DNS name leads to loopback.
    """
    return [
        "",
        "http://:%d {" % engine["local"]["port"],
        "\tbind 127.0.0.1",
        "",
        "\tlog",
        "",
        *_body_limit(max_body),
        "\troute {",
        "\t\tlog_append namespace %s" % engine["namespace"],
        "\t\tlog_append model %s" % engine["model"],
        "\t\t@served {",
        "\t\t\thost 127.0.0.1 localhost",
        "\t\t\texpression <<CEL",
        *("\t\t\t\t" + line for line in _rule(engine)),
        "\t\t\t\tCEL",
        "\t\t}",
        "\t\treverse_proxy @served %s {" % _dial(engine),
        "\t\t\timport engine",
        "\t\t}",
        '\t\timport refuse 403 path_not_served "That model, method or path is not served here."',
        "\t}",
        "",
        *_errors(),
        "}",
    ]


def _body_limit(max_body: int) -> List[str]:
    return ["\trequest_body {", "\t\tmax_size %d" % max_body, "\t}", ""] if max_body else []


def _dial(engine: Mapping[str, Any]) -> str:
    upstream = str(engine["upstream"])
    return "unix/%s" % upstream if upstream.startswith("/") else upstream


def _namespace(
    namespace: str, engines: List[Dict[str, Any]], wanted: Mapping[str, Any]
) -> List[str]:
    tokens = wanted["tokens"]
    given = "{http.request.header.X-Relay-Token}"
    accepted = " || ".join(
        '%s == ph(req, "file.%s/%s/%s")' % (given, tokens, namespace, name) for name in TOKEN_FILES
    )
    lines = [
        "\t\t@namespace-%s expression `{http.request.header.X-Relay-Namespace} == %s`"
        % (namespace, _cel(namespace)),
        "\t\troute @namespace-%s {" % namespace,
        "\t\t\tlog_append namespace %s" % namespace,
        "\t\t\t@stranger expression `!(size(%s) >= %d && (%s))`" % (given, MIN_TOKEN, accepted),
        "\t\t\troute @stranger {",
        "\t\t\t\timport refuse 401 token_refused "
        '"The token is missing or is not one of that namespace."',
        "\t\t\t}",
        "",
    ]
    for engine in sorted(engines, key=lambda item: str(item["model"])):
        lines += _engine(engine, wanted["grace_period_seconds"])
    lines += [
        '\t\t\timport refuse 403 path_not_served "That model, method or path is not served here."',
        "\t\t}",
        "",
    ]
    return lines


def _engine(engine: Mapping[str, Any], grace: int) -> List[str]:
    name = engine["model"]
    method_and_path, *others = _rule(engine)
    return [
        # First: a service may have all paths.
        *_metrics(engine, _dial(engine)),
        "\t\t\t@model-%s expression <<CEL" % name,
        "\t\t\t\t{http.request.header.X-Relay-Model} == %s" % _cel(name),
        "\t\t\t\t&& " + method_and_path,
        *("\t\t\t\t" + line for line in others),
        "\t\t\t\tCEL",
        "\t\t\troute @model-%s {" % name,
        "\t\t\t\tlog_append model %s" % name,
        "\t\t\t\treverse_proxy %s {" % _dial(engine),
        *("\t\t\t\t\t" + line.lstrip() for line in _towards(engine, grace)),
        "\t\t\t\t}",
        "\t\t\t}",
        "",
    ]


def _metrics(engine: Mapping[str, Any], dial: str) -> List[str]:
    """The engine's metrics at the path that only relays ask for; an empty page if it has none."""
    name = engine["model"]
    if engine.get("metrics"):
        answer = [
            # With the question mark the query goes, too.
            "\t\t\t\trewrite * %s?" % engine["metrics"],
            "\t\t\t\treverse_proxy %s {" % dial,
            "\t\t\t\t\timport engine",
            "\t\t\t\t}",
        ]
    else:
        answer = [
            "\t\t\t\theader -Server",
            '\t\t\t\theader Content-Type "%s"' % marks.METRICS_TYPE,
            "\t\t\t\trespond 200",
        ]
    return [
        "\t\t\t@metrics-%s expression <<CEL" % name,
        "\t\t\t\t{http.request.header.X-Relay-Model} == %s" % _cel(name),
        "\t\t\t\t&& {http.request.method} == %s" % _cel("GET"),
        '\t\t\t\t&& {http.request.orig_uri}.split("?")[0] == %s' % _cel(marks.METRICS_PATH),
        "\t\t\t\tCEL",
        "\t\t\troute @metrics-%s {" % name,
        "\t\t\t\tlog_append model %s" % name,
        *answer,
        "\t\t\t}",
        "",
    ]


def _rule(engine: Mapping[str, Any]) -> List[str]:
    """An expression: method and path, compared as they came, are among those allowed."""
    path = '{http.request.orig_uri}.split("?")[0]'
    allowed = ", ".join(_cel("%s %s" % pair) for pair in _allowed(engine))
    exact = ['{http.request.method} + " " + %s' % path, "in [%s]" % allowed]
    below = [entry for entry in engine["paths"] if entry.get("below")]
    if not below:
        return exact
    lines = ["(%s" % exact[0], *exact[1:]]
    for entry in sorted(below, key=lambda one: str(one["path"])):
        methods = ", ".join(_cel(str(method)) for method in entry["methods"])
        lines.append("|| {http.request.method} in [%s]" % methods)
        lines.append("&& %s.startsWith(%s)" % (path, _cel(entry["path"])))
        if entry["path"] != "/":
            lines.append('&& !%s.matches(r"%s")' % (path, _DOUBTFUL))
    return [*lines, ")"]


def _towards(engine: Mapping[str, Any], grace: int) -> List[str]:
    """What stands in the proxy's block."""
    if not _is_service(engine):
        return ["import engine"]
    lines = ["import service"]
    if engine.get("websocket"):
        # Else a reload would cut them at once (Caddy 2.11).
        lines.append("stream_close_delay %ds" % grace)
    else:
        lines += _NO_UPGRADE
    if engine.get("host_header"):
        lines.append("header_up Host %s" % engine["host_header"])
    return lines


def _is_service(engine: Mapping[str, Any]) -> bool:
    return engine.get("kind") == "service"


def _errors() -> List[str]:
    why = "\t\tlog_append error {err.message}"
    return [
        "\thandle_errors 413 {",
        '\t\timport refuse 413 body_too_large "The request body is too large."',
        "\t}",
        "\thandle_errors 502 503 504 {",
        why,
        # The proxy's own word for a connection that never was: a relay may then ask another host.
        # After any other error the request may have reached the engine.
        '\t\t@undialled expression `{err.message}.startsWith("dial ")`',
        "\t\troute {",
        "\t\t\troute @undialled {",
        "\t\t\t\theader Retry-After 5",
        '\t\t\t\timport refuse 503 %s "The engine of that model does not answer."'
        % marks.ENGINE_UNREACHABLE,
        "\t\t\t}",
        '\t\t\timport refuse 502 engine_failed "The engine of that model broke off its answer."',
        "\t\t}",
        "\t}",
        "\thandle_errors {",
        why,
        '\t\timport refuse {err.status_code} ingress_error "The ingress could not serve this."',
        "\t}",
    ]


def _allowed(engine: Mapping[str, Any]) -> List[Tuple[str, str]]:
    """Pairs of method and path, sorted, the health path among them."""
    pairs = {
        (str(method), str(entry["path"]))
        for entry in engine["paths"]
        for method in entry["methods"]
        if not entry.get("below")
    }
    if engine.get("health"):
        pairs.add(("GET", str(_health(engine))))
    return sorted(pairs, key=lambda pair: (pair[1], pair[0]))


def _health(engine: Mapping[str, Any]) -> Any:
    """The health path, of the catalogue's form ``{"path": ...}`` too."""
    health = engine.get("health")
    return health.get("path") if isinstance(health, Mapping) else health


def _cel(text: str) -> str:
    """A CEL string; what goes in was checked to hold no quote, backslash, brace or backtick."""
    return '"%s"' % text


def _mistakes(wanted: Mapping[str, Any], given: Iterable[str]) -> Iterable[str]:
    for key in sorted(set(given) - set(DEFAULTS)):
        yield "%s: no such key" % key
    for key in ("certificate", "key", "admin_socket", "tokens", "storage", "log"):
        if key == "log" and wanted[key] is None:
            continue
        if not _is_file(wanted[key]):
            yield "%s: %r is not a plain absolute path" % (key, wanted[key])
    if not _is_number(wanted["port"], 1, 65535):
        yield "port: %r is not a port" % (wanted["port"],)
    if not _is_number(wanted["max_body"], 0, 1 << 40):
        yield "max_body: %r is not a number of bytes" % (wanted["max_body"],)
    if not _is_number(wanted["grace_period_seconds"], 0, 86400):
        yield "grace_period_seconds: %r is not a number of seconds" % (
            wanted["grace_period_seconds"],
        )
    if not isinstance(wanted["http2"], bool):
        yield "http2: %r is not true or false" % (wanted["http2"],)
    for address in wanted["bind"]:
        if not isinstance(address, str) or not _BIND.match(address):
            yield "bind: %r is not an address" % (address,)
    seen: Set[Tuple[str, str]] = set()
    ports = [wanted["port"]]
    for engine in wanted["engines"]:
        local = engine.get("local")
        if local:
            if not _is_number(local.get("port"), 1024, 65535) or local["port"] in ports:
                yield "engine %s/%s: local port %r is not a free port from 1024 to 65535" % (
                    engine.get("namespace"),
                    engine.get("model"),
                    local.get("port"),
                )
            ports.append(local.get("port"))
        name = "engine %s/%s" % (engine.get("namespace"), engine.get("model"))
        for mistake in _engine_mistakes(engine):
            yield "%s: %s" % (name, mistake)
        pair = (str(engine.get("namespace")), str(engine.get("model")))
        if pair in seen:
            yield "%s: listed twice" % name
        seen.add(pair)


def _engine_mistakes(engine: Mapping[str, Any]) -> Iterable[str]:
    for key in ("namespace", "model"):
        value = engine.get(key)
        if not isinstance(value, str) or not _NAME.match(value):
            yield "%s %r is not a Kubernetes name" % (key, value)
    if not _is_upstream(engine.get("upstream")):
        yield "upstream %r is neither a plain socket path nor a port of 127.0.0.1 or [::1]" % (
            engine.get("upstream"),
        )
    health = _health(engine)
    if engine.get("health") is not None and not _is_path(health):
        yield "health path %r is not a plain path" % (health,)
    metrics = engine.get("metrics")
    if metrics is not None and not _is_path(metrics):
        yield "metrics path %r is not a plain path" % (metrics,)
    host_header = engine.get("host_header") or ""
    if not isinstance(host_header, str) or (host_header and not _HOST_HEADER.match(host_header)):
        yield "host_header %r is not a name" % (host_header,)
    if not engine.get("paths"):
        yield "no paths"
    for entry in engine.get("paths") or []:
        if not _is_path(entry.get("path")):
            yield "path %r is not a plain path" % (entry.get("path"),)
        if str(entry.get("path")).lower().startswith(marks.RESERVED_PREFIX):
            yield "path %s: paths below %s are the collection's" % (
                entry.get("path"),
                marks.RESERVED_PREFIX,
            )
        elif entry.get("below") and not entry["path"].endswith("/"):
            yield "path %s: expected a / at its end, for what is below it" % entry["path"]
        methods = entry.get("methods")
        if not methods or not all(method in _METHODS for method in methods):
            yield "path %s: methods %r; expected some of %s" % (
                entry.get("path"),
                methods,
                ", ".join(_METHODS),
            )


def _is_file(value: Any) -> bool:
    return (
        isinstance(value, str)
        and bool(_FILE.match(value))
        and not {"", ".", ".."} & set(value.split("/")[1:])
    )


def _is_path(value: Any) -> bool:
    """A request path that equals its own normal form, so that no engine can read it otherwise."""
    return (
        isinstance(value, str)
        and bool(_PATH.match(value))
        and "//" not in value
        and not {".", ".."} & set(value.split("/"))
    )


def _is_upstream(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    found = _LOOPBACK.match(value)
    return _is_file(value) if found is None else 1 <= int(found.group(1)) <= 65535


def _is_number(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
