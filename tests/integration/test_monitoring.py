# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The shipped rules and dashboard: what they ask for is what a real relay gives."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from typing import Any, Dict, List

import pytest
import yaml

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    envoy,
    envoy_data,
    objects,
)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import prometheus_text
from cluster_ingress import Authority, Ingress, Relay, find_envoy

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "monitoring"
RULES, DASHBOARD = FOLDER / "rules.yml", FOLDER / "dashboard.json"
CASES = pathlib.Path(__file__).parent / "monitoring_cases.yml"
ENVOY = find_envoy()
PROMTOOL = os.environ.get("TETHER_TEST_PROMTOOL") or shutil.which("promtool")

# What a scraper adds.
TARGET_LABELS = {"namespace", "pod", "job", "tether_host", "tether_fleet_model"}
_SELECTOR = re.compile(r"\b(envoy_[a-z0-9_]+)(?:\{([^}]*)\})?")
_PAIR = re.compile(r'([a-z_]+)=~?"([^"]*)"')


def rules() -> List[Dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: List[Dict[str, Any]] = group["rules"]
    return found


def expressions() -> List[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    drawn = [target["expr"] for panel in panels for target in panel["targets"]]
    return drawn + [rule["expr"] for rule in rules()]


@pytest.mark.skipif(ENVOY is None, reason="no Envoy: set TETHER_TEST_ENVOY")
def test_every_metric_is_one_of_a_real_relay(tmp_path: pathlib.Path) -> None:
    leaf = Authority().leaf("127.0.0.1", days=10)
    ingress = Ingress(leaf, tmp_path / "host")
    relay = Relay(str(ENVOY), tmp_path)
    host = envoy_data.Host("gpu1", "127.0.0.1", ingress.port, (leaf.pem,))
    files = envoy.render("team-a", "tiny", [host], "t" * 43, "d" * 32, place=relay.place)
    relay.write({**files.plain, **files.secret})
    relay.start(objects.ENVOY_ARGUMENTS[2:])
    try:
        relay.wait_ready()
        assert relay.ask("POST", "/v1/x", b"{}").status == 200
        # Histograms appear when Envoy next adds its counts up, within five seconds.
        samples: List[prometheus_text.Sample] = []
        for _ in range(40):
            answer = relay.ask_port(relay.place.metrics_port, "GET", "/metrics/relay", None)
            samples = prometheus_text.parse(answer.body.decode())
            if any(item.name == "envoy_http_downstream_rq_time_bucket" for item in samples):
                break
            time.sleep(0.25)
    finally:
        relay.stop()
        ingress.close()
    asked = [
        found
        for text in expressions()
        for found in _SELECTOR.findall(re.sub(r"by \([^)]*\)", "", text))
    ]
    assert len(asked) > 15
    for name, selector in asked:
        wanted = [
            (key, value) for key, value in _PAIR.findall(selector) if key not in TARGET_LABELS
        ]
        assert any(
            item.name == name and all(item.labels.get(key) == value for key, value in wanted)
            for item in samples
        ), (name, wanted)
    days = [i.value for i in samples if i.name == "envoy_server_days_until_first_cert_expiring"]
    # Ten, as long as the leaf is less than a second old.
    assert days in ([9], [10])


def test_no_engine_can_forge_a_relays_series() -> None:
    """Its page has the label of its host; of the selectors each asks for the page without."""
    board = json.loads(DASHBOARD.read_text())
    drawn = [item["query"] for item in board["templating"]["list"]]
    for text in [*expressions(), *drawn]:
        for name, selector in _SELECTOR.findall(re.sub(r"by \([^)]*\)", "", text)):
            assert 'tether_host=""' in selector.split(","), (name, text)


def test_rules_and_dashboard_are_whole() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert set(rule["labels"]) == {"severity"}
        assert rule["annotations"]["summary"]
    board = json.loads(DASHBOARD.read_text())
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    known = {item["name"] for item in board["templating"]["list"]} | {"__rate_interval"}
    assert set(re.findall(r"\$\{?([a-z_]+)", json.dumps(board["panels"]))) <= known


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool: set TETHER_TEST_PROMTOOL")
def test_promtool_takes_the_rules_and_they_fire(tmp_path: pathlib.Path) -> None:
    for words in (["check", "rules", str(RULES)], ["test", "rules", CASES.name]):
        shutil.copy(RULES, tmp_path / "rules.yml")
        shutil.copy(CASES, tmp_path)
        done = subprocess.run(
            [str(PROMTOOL), *words], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool: set TETHER_TEST_PROMTOOL")
def test_promtool_takes_the_dashboards_expressions(tmp_path: pathlib.Path) -> None:
    recorded = [
        {"record": "panel:%d" % number, "expr": text.replace("$__rate_interval", "5m")}
        for number, text in enumerate(expressions())
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    done = subprocess.run(
        [str(PROMTOOL), "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
