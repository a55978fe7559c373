# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A model for accounts of the host itself (N10): ops is listed, nobody is not."""

from __future__ import annotations

import json

import pytest
from bed import get, ssh

URL = "http://127.0.0.1:8090"
FILE = "/etc/tether/local/ops.json"


def as_account(account, command, **options):
    return ssh("gpu1", f"runuser -u {account} -- {command}", **options)


def test_a_listed_account_reads_where_it_is_and_is_served():
    told = json.loads(as_account("ops", f"cat {FILE}").stdout)
    assert told["schema"] == 1
    assert [(item["namespace"], item["model"]) for item in told["models"]] == [("team-b", "small")]
    assert told["models"][0]["url"] == URL
    listed = json.loads(as_account("ops", f"curl -sS {URL}/v1/models").stdout)
    assert listed["data"][0]["id"] == "small"
    body = """-d '{"prompt": "a", "max_tokens": 2}'"""
    answer = json.loads(as_account("ops", f"curl -sS {URL}/v1/completions {body}").stdout)
    assert answer["usage"]["completion_tokens"] == 2
    refused = json.loads(as_account("ops", f"curl -sS {URL}/metrics").stdout)
    assert refused["error"]["code"] == "path_not_served"


@pytest.mark.parametrize("account", ["nobody", "tether-team-a", "tether-team-b"])
def test_another_account_is_refused_and_told_nothing(account):
    asked = as_account(account, f"curl -sS -m 5 {URL}/v1/models", check=False)
    assert asked.returncode == 7, asked.stderr  # curl: failed to connect
    assert as_account(account, f"cat {FILE}", check=False).returncode != 0


def test_it_is_on_loopback_alone():
    listening = ssh("gpu1", "ss -ltnH 'sport = :8090'").stdout.split()
    assert listening[3] == "127.0.0.1:8090"


def test_the_record_says_where_it_is():
    record = json.loads(get("configmap", "host-gpu1", "-n", "tether-fleet")["data"]["record.json"])
    local = {(item["namespace"], item["model"]): item.get("local") for item in record["engines"]}
    assert local[("team-b", "small")] == "127.0.0.1:8090"
    assert local[("team-a", "tiny")] is None
