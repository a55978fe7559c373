# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fleet of any size as the cluster's side knows it: records, tokens, models.

Two hosts share ten models, so forty hosts have two hundred; each pair's models are in a namespace
of their own. Addresses and certificates are real, of a CA that is made for the run; nothing has to
answer there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench_parts import testbed
from bench_parts.places import BED_STATE
from bench_parts.real_parts import cluster_ingress, drain, envoy_data, labels, objects

from . import task
from .places import FLEET

MODELS_A_PAIR = 10
PORT = 9443


@dataclass
class Host:
    """A host as its record has it."""

    name: str
    address: str
    port: int
    pins: list[str]


class Fleet:
    """The declaration, and the phases that come before the relays.

    :param replicas: relays of a model
    :param addresses: ``(address, port)`` of the first hosts, where something answers
    """

    def __init__(
        self, models: int, replicas: int = 2, addresses: Sequence[tuple[str, int]] = ()
    ) -> None:
        self.authority = cluster_ingress.Authority("bench CA")
        self.image = (BED_STATE / "relay_image").read_text().strip()
        pairs = -(-models // MODELS_A_PAIR)
        self.hosts: dict[str, Host] = {}
        for number in range(2 * pairs):
            # A range that no bed has: nothing answers, and nobody else is asked.
            given = f"10.98.{number // 200}.{number % 200 + 1}", PORT
            address, port = addresses[number] if number < len(addresses) else given
            name = f"host{number:02d}"
            self.hosts[name] = Host(name, address, port, [self.authority.leaf(address).pem])
        self.models: list[dict[str, Any]] = [
            {
                "name": f"model{number:03d}",
                "namespace": f"bench-{number // MODELS_A_PAIR:02d}",
                "port": 80,
                "replicas": replicas,
                "hosts": [f"host{number // MODELS_A_PAIR * 2 + way:02d}" for way in (0, 1)],
            }
            for number in range(models)
        ]

    @property
    def namespaces(self) -> list[str]:
        return sorted({model["namespace"] for model in self.models})

    def of_host(self, name: str) -> list[dict[str, Any]]:
        """The models that a host serves."""
        return [model for model in self.models if name in model["hosts"]]

    def records(self, *names: str) -> list[dict[str, Any]]:
        """Registration records of the hosts named, or of all."""
        return [
            {
                "schema": 1,
                "host": host.name,
                "address": host.address,
                "port": host.port,
                "certificates": host.pins,
                "ingress": {"version": "2.11.7"},
                "engines": [
                    {
                        "namespace": model["namespace"],
                        "model": model["name"],
                        "engine": "llama_server",
                        "version": "1",
                    }
                    for model in self.of_host(host.name)
                ],
            }
            for host in self.hosts.values()
            if not names or host.name in names
        ]

    def prepare(self, without_pods: Sequence[str]) -> None:
        """Namespaces, tokens and records.

        :param without_pods: namespaces whose pods are refused by a quota
        """
        items: list[dict[str, Any]] = []
        for name in self.namespaces:
            meta = {"name": name, "labels": {"tether.bench/namespace": "yes"}}
            items.append({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
            if name in without_pods:
                items.append(
                    {
                        "apiVersion": "v1",
                        "kind": "ResourceQuota",
                        "metadata": {"name": "no-pods", "namespace": name},
                        "spec": {"hard": {"pods": "0"}},
                    }
                )
        testbed.kubectl("apply", "-f", "-", text_in=_as_list(items))
        for name in set(self.namespaces) - set(without_pods):  # of a bed that was kept
            testbed.kubectl("delete", "resourcequota", "no-pods", "-n", name, "--ignore-not-found")
        made = task.run(
            task.fleet_task("token", namespaces="{{ namespaces }}"),
            {"namespaces": self.namespaces},
        )
        self.tokens = {name: item["current"] for name, item in made.result["tokens"].items()}
        self.register()

    def register(self, *names: str) -> task.Outcome:
        """Write records of the hosts named, or of all, where they differ."""
        records = task.fleet_task("registration", records="{{ records }}")
        return task.run(records, {"records": self.records(*names)})

    def relay(self, models: Sequence[dict[str, Any]], *, prune: bool = False,
              peak: bool = False) -> task.Outcome:  # fmt: skip
        """One run of the relay module. What does not run is no failure of the run here."""
        variables = {
            "models": list(models),
            "places": {
                host.name: {"address": host.address, "port": host.port}
                for host in self.hosts.values()
            },
            "ca": self.authority.pem,
        }
        wanted = task.fleet_task(
            "relay",
            image=self.image,
            ca_certificate="{{ ca }}",
            models="{{ models }}",
            hosts="{{ places }}",
            prune=prune,
            wait=False,
        )
        return task.run(wanted, variables, peak=peak, may_fail=True)

    def definitions(self) -> list[dict[str, Any]]:
        """The objects that the relay module made, as manifests for another tool."""
        keys = {
            (item["metadata"]["namespace"], item["metadata"]["name"]): drain.read_key(item) or ""
            for item in testbed.objects("deployments", "-A", "-l", labels.fleet_selector(FLEET))
        }
        found: list[dict[str, Any]] = []
        for model in self.models:
            place, name = model["namespace"], model["name"]
            hosts = [self.hosts[host] for host in model["hosts"]]
            found += objects.model_objects(
                objects.Model(
                    name,
                    place,
                    model["port"],
                    model["replicas"],
                    hosts=[
                        envoy_data.Host(host.name, host.address, host.port, tuple(host.pins))
                        for host in hosts
                    ],
                ),
                FLEET,
                self.image,
                self.tokens[place],
                keys[place, labels.relay_name(name)],
            )
        return found


def _as_list(items: Sequence[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})
