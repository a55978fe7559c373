# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a Prometheus in the cluster gets from a model's Service (N9)."""

from __future__ import annotations

import json
import re
import sys

import pytest
from bed import ROOT, client

sys.path.insert(0, str(ROOT / "tests" / "integration"))
import prometheus_text

TINY, SMALL = "http://tiny.team-a.svc", "http://small.team-b.svc"
DASHBOARD = ROOT / "docs" / "monitoring" / "dashboard.json"


def scrape(url, path):
    text = client(f"curl -sS --fail -m 15 {url}:9464{path}").stdout
    return {item.name: item.value for item in prometheus_text.parse(text)}


def status(url, options=""):
    command = f"curl -sS --path-as-is -o /dev/null -w '%{{http_code}}' -m 15 {options} {url}"
    return client(command).stdout


@pytest.mark.parametrize(
    ("url", "path"),
    [
        (TINY, "/metrics/gpu1"),
        (TINY, "/metrics/gpu2"),
        (SMALL, "/metrics"),
        (SMALL, "/metrics/gpu1"),
    ],
)
def test_each_hosts_engine(url, path):
    found = scrape(url, path)
    wanted = set(re.findall(r"llamacpp:[a-z_]+", DASHBOARD.read_text()))
    assert wanted
    assert wanted <= set(found)


def test_an_engine_counts_what_it_was_asked():
    name = "llamacpp:tokens_predicted_total"
    before = scrape(SMALL, "/metrics")[name]
    body = json.dumps({"prompt": "hello", "max_tokens": 4})
    client(f"curl -sS --fail -m 30 {SMALL}:8080/v1/completions -d '{body}'")
    assert scrape(SMALL, "/metrics")[name] > before


def test_several_hosts_and_the_relay():
    assert scrape(TINY, "/metrics") == {}
    found = scrape(TINY, "/metrics/relay")
    # The certificate is a new one.
    assert found["envoy_server_days_until_first_cert_expiring"] > 14


@pytest.mark.parametrize(
    "path",
    ["/metrics", "/.tether/metrics", "//.tether/metrics", "/%2etether/metrics", "/.TETHER/metrics"],
)
def test_clients_get_none(path):
    assert status(TINY + path) == "403"


def test_nothing_else_at_that_port():
    for path in ("/config_dump", "/v1/models", "/metrics/lone", "/metrics/relay?filter=x"):
        assert status(f"{TINY}:9464{path}") == "404"
    assert status(f"{TINY}:9464/metrics/gpu1", "-X POST") == "404"
