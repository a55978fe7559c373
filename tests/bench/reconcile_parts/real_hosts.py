# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host that really serves: the pinned Caddy on the machine, where the bed's pods reach it."""

from __future__ import annotations

import http.client
import ipaddress
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench_parts import testbed
from bench_parts.real_parts import caddy_bed, cluster_ingress

_PATHS = [{"path": "/v1/models", "methods": ["GET"]}]


class RealHost:
    """An ingress with an engine per model. What it has to serve comes with ``serve``."""

    def __init__(self, folder: Path) -> None:
        # The machine's own place in every bed's network, by tests/testbed/README.md.
        self.address = str(ipaddress.ip_network(testbed.status()["network"])[254])
        # 127.0.0.1 too: the bed of the integration tests looks there whether it serves.
        self.ingress = caddy_bed.Bed(folder, bind=["127.0.0.1", self.address])
        self.engines: list[caddy_bed.Engine] = []

    @property
    def place(self) -> tuple[str, int]:
        return self.address, self.ingress.port

    def identify(self, *leaves: cluster_ingress.Leaf) -> None:
        """Serve under the last of these certificates."""
        identity = self.ingress.folder / "identity"
        (identity / "host.crt").write_text(leaves[-1].pem)
        (identity / "host.key").write_text(leaves[-1].key)

    def serve(self, models: Sequence[dict[str, Any]], tokens: dict[str, str]) -> None:
        entries = []
        for model in models:
            path = str(self.ingress.folder / "run" / f"{model['name']}.sock")
            self.engines.append(caddy_bed.Engine(path))
            entries.append(
                {
                    "namespace": model["namespace"],
                    "model": model["name"],
                    "upstream": path,
                    "paths": _PATHS,
                    "health": "/health",
                }
            )
            self.ingress.token(model["namespace"], "current", tokens[model["namespace"]])
        self.ingress.config["engines"] = entries
        self.ingress.start()

    def close(self) -> None:
        self.ingress.stop()
        for engine in self.engines:
            engine.close()


@contextmanager
def real_host() -> Iterator[RealHost]:
    with tempfile.TemporaryDirectory(prefix="tether-bench-") as place:
        host = RealHost(Path(place))
        try:
            yield host
        finally:
            host.close()


def answers(address: str, port: int) -> str:
    """What a model's Service answers to a small request; empty when all is well."""
    connection = http.client.HTTPConnection(address, port, timeout=60)
    try:
        connection.request("GET", "/v1/models")
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    return "" if (answer.status, text) == (200, b"engine") else f"{answer.status} {text[:200]!r}"
