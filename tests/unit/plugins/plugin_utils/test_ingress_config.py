# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pathlib
import re
from typing import Any, Dict, List, Tuple

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.tether.fleet.plugins.filter.caddyfile import FilterModule
from ansible_collections.tether.fleet.plugins.plugin_utils import ingress_config
from ansible_collections.tether.fleet.plugins.plugin_utils.ingress_config import ConfigError, render


def engine(**changes: Any) -> Dict[str, Any]:
    return {
        "namespace": "team-a",
        "model": "tiny",
        "upstream": "/run/tether/engines/team-a.tiny/engine.sock",
        "paths": [{"path": "/v1/models", "methods": ["GET"]}],
        "health": {"path": "/health", "status": 200},
        **changes,
    }


def test_a_stable_text() -> None:
    one, two = engine(), engine(model="other", upstream="127.0.0.1:8081")
    text = render({"engines": [one, two]})
    assert text == render({"engines": [two, one]})
    assert "protocols tls1.3" in text
    assert "admin unix//run/tether/ingress/admin.sock|0600" in text
    assert 'in ["GET /health", "GET /v1/models"]' in text
    assert "reverse_proxy unix//run/tether/engines/team-a.tiny/engine.sock {" in text
    assert "reverse_proxy 127.0.0.1:8081 {" in text
    assert text.count("{") == text.count("}")


def test_no_engines_serves_nobody() -> None:
    text = render({})
    assert "reverse_proxy" not in text
    assert "namespace_not_served" in text


def test_options() -> None:
    text = render(
        {
            "bind": ["10.0.0.7", "fd00::1"],
            "port": 9444,
            "log": "/var/log/tether/ingress.log",
            "max_body": 0,
            "http2": True,
        }
    )
    assert "bind 10.0.0.7 fd00::1" in text
    assert "https://:9444 {" in text
    assert "output file /var/log/tether/ingress.log" in text
    assert "request_body" not in text
    assert "protocols h1 h2" in text


BAD: List[Tuple[Dict[str, Any], str]] = [
    ({"port": 0}, "port: 0"),
    ({"port": "9443"}, "port: '9443'"),
    ({"port": True}, "port: True"),
    ({"colour": "red"}, "colour: no such key"),
    ({"certificate": "relative.crt"}, "certificate:"),
    ({"key": "/a/../b"}, "key:"),
    ({"tokens": "/a b"}, "tokens:"),
    ({"admin_socket": "/run/{env.X}"}, "admin_socket:"),
    ({"storage": "//x"}, "storage:"),
    ({"log": "/log\n}"}, "log:"),
    ({"max_body": -1}, "max_body:"),
    ({"grace_period_seconds": "1h"}, "grace_period_seconds:"),
    ({"http2": "yes"}, "http2:"),
    ({"bind": ["0.0.0.0 {"]}, "bind:"),
    ({"engines": [engine(namespace="Team")]}, "namespace 'Team'"),
    ({"engines": [engine(model="a.b")]}, "model 'a.b'"),
    ({"engines": [engine(model='a"b')]}, "model"),
    ({"engines": [engine(upstream="10.0.0.7:8081")]}, "upstream"),
    ({"engines": [engine(upstream="127.0.0.1:0")]}, "upstream"),
    ({"engines": [engine(upstream="127.0.0.1:99999")]}, "upstream"),
    ({"engines": [engine(upstream="localhost:8081")]}, "upstream"),
    ({"engines": [engine(upstream="/run/x y")]}, "upstream"),
    ({"engines": [engine(upstream=None)]}, "upstream"),
    ({"engines": [engine(paths=[])]}, "no paths"),
    ({"engines": [engine(paths=[{"path": "/v1/*", "methods": ["GET"]}])]}, "/v1/*"),
    ({"engines": [engine(paths=[{"path": "/v1/../x", "methods": ["GET"]}])]}, "plain path"),
    ({"engines": [engine(paths=[{"path": "/v1//x", "methods": ["GET"]}])]}, "plain path"),
    ({"engines": [engine(paths=[{"path": "/v1?x", "methods": ["GET"]}])]}, "plain path"),
    ({"engines": [engine(paths=[{"path": "/v1%2e", "methods": ["GET"]}])]}, "plain path"),
    ({"engines": [engine(paths=[{"path": "v1", "methods": ["GET"]}])]}, "plain path"),
    ({"engines": [engine(paths=[{"path": "/v1", "methods": ["get"]}])]}, "methods"),
    ({"engines": [engine(paths=[{"path": "/v1", "methods": []}])]}, "methods"),
    ({"engines": [engine(paths=[{"path": "/v1"}])]}, "methods"),
    ({"engines": [engine(health="/health?x")]}, "health path"),
    ({"engines": [engine(health={"status": 200})]}, "health path"),
    ({"engines": [engine(metrics="/m{x}")]}, "metrics path"),
    (
        {"engines": [engine(paths=[{"path": "/.Tether/metrics", "methods": ["GET"]}])]},
        "paths below /.tether/ are the collection's",
    ),
    ({"engines": [engine(), engine()]}, "listed twice"),
]


@pytest.mark.parametrize(("config", "match"), BAD)
def test_refused(config: Dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(match)):
        render(config)


def test_all_mistakes_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        render({"port": 0, "max_body": -1, "engines": [engine(model="X", upstream="x")]})
    assert len(caught.value.mistakes) == 4


# Text that would mean something to Caddy, to CEL or to a shell, mixed with what is allowed.
NASTY = st.text(
    alphabet=st.sampled_from("ab1-/.:_~{}\"`'\\\n\r\t $#@()<>*?;%|&=\u2028é\x00"), max_size=20
)
SAFE_TEXT = re.compile(r"[A-Za-z0-9._~/:@+\[\]-]+")


@given(NASTY, NASTY, NASTY, NASTY)
def test_no_value_breaks_out(namespace: str, model: str, upstream: str, path: str) -> None:
    """Whatever passes the checks consists of harmless characters, so it ends nothing."""
    config = {
        "engines": [
            engine(
                namespace=namespace,
                model=model,
                upstream="/" + upstream,
                paths=[{"path": "/" + path, "methods": ["GET"]}],
            )
        ]
    }
    try:
        text = render(config)
    except ConfigError:
        return
    for value in (namespace, model, upstream, path):
        assert not value or SAFE_TEXT.fullmatch(value)
    model_text = render({"engines": [engine(namespace="n", model="m", upstream="/u")]})
    assert text.count("\n") == model_text.count("\n")
    for sign in '{}"`':
        assert text.count(sign) == model_text.count(sign)


@given(st.sampled_from(["certificate", "key", "admin_socket", "tokens", "storage", "log"]), NASTY)
def test_no_path_breaks_out(key: str, value: str) -> None:
    try:
        text = render({key: "/" + value})
    except ConfigError:
        return
    assert SAFE_TEXT.fullmatch("/" + value)
    assert text.count("\n") == render({}).count("\n")


def test_filter() -> None:
    caddyfile = FilterModule().filters()["caddyfile"]
    assert caddyfile([engine()], port=9444) == render({"engines": [engine()], "port": 9444})
    with pytest.raises(AnsibleFilterError, match="port: 0"):
        caddyfile([], port=0)


def test_documented_defaults_are_the_real_ones() -> None:
    path = pathlib.Path(ingress_config.__file__).parents[1] / "filter" / "caddyfile.yml"
    options = yaml.safe_load(path.read_text())["DOCUMENTATION"]["options"]
    documented = {k: v.get("default") for k, v in options.items() if k != "_input"}
    assert documented == {k: v for k, v in ingress_config.DEFAULTS.items() if k != "engines"}
