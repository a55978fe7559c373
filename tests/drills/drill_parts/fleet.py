# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The bed's fleet as molecule/default declares it, and questions to its cluster."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "molecule" / "default" / "tests")]

import bed  # noqa: E402

# A model on two hosts, and one on a single host.
NAMESPACE, MODEL = "team-a", "tiny"
LONE = ("team-b", "lone")


def build(*arguments: str) -> None:
    """The bed, and on it the fleet; quick when both are there.

    :param arguments: more of ansible-playbook's
    """
    bed.bed("up", timeout=900)
    bed.run(str(ROOT / "tests/models/prepare.sh"), bed.NAME, sys.executable)
    play("site", *arguments)


def play(name: str, *arguments: str) -> float:
    """Run a playbook of the collection, which has to succeed; the seconds that it took."""
    began = time.monotonic()
    done = bed.playbook(name, *arguments)
    if done.returncode:
        raise SystemExit(f"{name}.yml fails:\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
    return round(time.monotonic() - began, 1)


def status() -> dict[str, Any]:
    """The bed as it is, well or not."""
    found: dict[str, Any] = json.loads(bed.bed("status", "--json", check=False).stdout)
    return found


def service(namespace: str = NAMESPACE, model: str = MODEL) -> tuple[str, int]:
    """Where a model's Service is: its address of the cluster, which the machine can reach."""
    spec = bed.get("service", model, "-n", namespace)["spec"]
    return spec["clusterIP"], spec["ports"][0]["port"]


def unit(namespace: str, model: str) -> str:
    """The unit of a model's engine."""
    return f"tether-engine-{namespace}.{model}.service"


def relays(namespace: str = NAMESPACE, model: str = MODEL) -> list[dict[str, Any]]:
    """A model's relay pods, those that end among them."""
    selector = f"tether.fleet/model={model}"
    items: list[dict[str, Any]] = bed.get("pods", "-n", namespace, "-l", selector)["items"]
    return items


def replicas(namespace: str = NAMESPACE, model: str = MODEL) -> int:
    """How many relays a model is to have; of a former version more may still end."""
    spec = bed.get("deployment", f"{model}-relay", "-n", namespace)["spec"]
    return int(spec["replicas"])


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether a pod is ready and not about to end."""
    conditions = {item["type"]: item["status"] for item in pod["status"].get("conditions", [])}
    return "deletionTimestamp" not in pod["metadata"] and conditions.get("Ready") == "True"


def wait_for_relays(number: int, seconds: float = 120) -> None:
    """Until exactly so many relays are there, all of them ready."""
    end = time.monotonic() + seconds
    while True:
        pods = relays()
        if len(pods) == number and all(map(is_ready, pods)):
            return
        if time.monotonic() > end:
            names = {pod["metadata"]["name"]: pod["status"].get("phase") for pod in pods}
            raise SystemExit(f"no {number} ready relays within {seconds:.0f} s: {names}")
        time.sleep(0.5)


def wait_for_end(process: int, what: str, seconds: float) -> None:
    """Until a process of this machine has gone, with all that the kernel ends first."""
    end = time.monotonic() + seconds
    while Path(f"/proc/{process}").exists():
        if time.monotonic() > end:
            raise SystemExit(f"{what} does not end within {seconds:.0f} s")
        time.sleep(0.05)
