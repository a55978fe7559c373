# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rendered relay in a real Envoy before the rendered ingress in a real Caddy."""

from __future__ import annotations

import pathlib
import sys
import time
from collections.abc import Iterator

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    envoy,
    envoy_data,
    objects,
)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import caddy_bed
from cluster_ingress import NEEDS_ENVOY, Relay, find_envoy

TOKEN = "T" * 43
DRAIN_KEY = "d" * 32
ENVOY = find_envoy()

pytestmark = NEEDS_ENVOY


class Both:
    """A relay of team-a/tiny before a Caddy."""

    def __init__(self, folder: pathlib.Path, bed: caddy_bed.Bed) -> None:
        self.bed = bed
        self.relay = Relay(str(ENVOY), folder)

    def write(self, model: str = "tiny", token: str = TOKEN, pin: str = "") -> None:
        host = envoy_data.Host("gpu1", "127.0.0.1", self.bed.port, (pin or self.bed.certificate,))
        files = envoy.render(
            "team-a",
            model,
            [host],
            token,
            DRAIN_KEY,
            place=self.relay.place,
        )
        self.relay.write({**files.plain, **files.secret})


@pytest.fixture
def both(tmp_path: pathlib.Path) -> Iterator[tuple[Both, dict[str, caddy_bed.Engine]]]:
    with caddy_bed.running() as (bed, engines):
        made = Both(tmp_path, bed)
        bed.token("team-a", "current", TOKEN)
        made.write()
        made.relay.start(objects.ENVOY_ARGUMENTS[2:])
        try:
            yield made, engines
        finally:
            made.relay.stop()


def test_a_request_passes_both_and_the_engine_sees_no_secret(
    both: tuple[Both, dict[str, caddy_bed.Engine]],
) -> None:
    pair, engines = both
    pair.relay.wait_ready()
    answer = pair.relay.ask("POST", "/v1/chat/completions", b"{}", Authorization="Bearer mine")
    assert (answer.status, answer.body) == (200, b"engine")
    seen = engines["team-a/tiny"].seen[-1].lower()
    assert b"authorization: bearer mine" in seen
    assert b"x-relay" not in seen
    assert TOKEN.lower().encode() not in seen
    for path in ("/slots", "/v1/models/", "/V1/models", "//v1/models", "/v1/%6dodels"):
        assert pair.relay.ask("GET", path).status == 403, path


def test_a_rotated_token_is_presented_and_the_old_one_refused(
    both: tuple[Both, dict[str, caddy_bed.Engine]],
) -> None:
    pair, _engines = both
    pair.relay.wait_ready()
    pair.bed.token("team-a", "next", "N" * 43)
    pair.write(token="N" * 43)
    time.sleep(1)
    pair.bed.token("team-a", "current", "N" * 43)
    pair.bed.token("team-a", "next", None)
    assert pair.relay.ask("GET", "/v1/models").status == 200
    pair.bed.token("team-a", "current", "X" * 43)
    assert pair.relay.ask("GET", "/v1/models").status == 401


def test_a_model_that_the_host_does_not_serve_is_not_ready(
    both: tuple[Both, dict[str, caddy_bed.Engine]],
) -> None:
    pair, engines = both
    pair.relay.wait_ready()
    pair.write(model="unknown")
    pair.relay.wait_ready(503)
    assert engines["team-a/other"].seen == []
