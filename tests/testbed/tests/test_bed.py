# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A bed of its own, from nothing to nothing: used, broken, mended, taken down.

Needs what a bed needs (root, Debian) and takes minutes; skipped elsewhere. The
tests of this file build on one another, in the order in which they stand.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bed import layout, machine
from bed.errors import BedError

NAME = "pytest"
PROGRAM = Path(__file__).resolve().parent.parent
STATE = layout.STATE_ROOT / NAME


def _cannot_run() -> str:
    try:
        machine.check(builds=True)
    except BedError as error:
        return str(error)
    return ""


pytestmark = pytest.mark.skipif(bool(_cannot_run()), reason=_cannot_run())


def command(*words: str, check: bool = True, stdin: str | None = None) -> str:
    """Run a command of the test bed; return what it says."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--bed", NAME, *words],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def status() -> dict[str, Any]:
    """The bed's status."""
    content: dict[str, Any] = json.loads(command("status", "--json", check=False))
    return content


def in_pod(pod: str, *words: str, check: bool = True) -> str:
    """Run a command in a pod."""
    return command("kubectl", "exec", pod, "--", *words, check=check)


def eventually(condition: Callable[[], bool], timeout: float = 30) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.3)


def footprint() -> dict[str, set[str]]:
    """All that a bed could leave on a machine; what belongs to other beds left out."""

    def lines(*argv: str) -> set[str]:
        said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        return {line for line in said.splitlines() if not line.startswith("#")}

    others = [f"{bed.state}/" for bed in layout.beds() if bed.name != NAME]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    points = {line.split()[4] for line in mounts}
    shared = ["/run/netns", "/run/containerd", "/var/lib/cni", "/var/log/containers"]
    shared += ["/var/lib/kubelet", "/run/systemd/nspawn"]
    links = json.loads(subprocess.check_output(["ip", "-json", "link"]))
    processes = set()
    for group in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            if f"/tether-{NAME}/" in group.read_text():
                processes.add(group.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return {
        "links": {link["ifname"] for link in links},
        "routes": lines("ip", "route"),
        "namespaces": lines("ip", "netns", "list"),
        "mounts": {point for point in points if not point.startswith(tuple(others))},
        "rules": {line.split(" [")[0] for line in lines("iptables-save")},
        "cgroups": {str(path) for path in Path("/sys/fs/cgroup").glob(f"*/tether-{NAME}")},
        "processes": processes,
        "beds": {str(path) for path in layout.STATE_ROOT.glob("*")},
        "shared": {path for path in shared if Path(path).exists()},
        "parameters": lines("sysctl", "kernel.panic", "kernel.panic_on_oops"),
    }


@pytest.fixture(scope="module", autouse=True)
def whole_life() -> Iterator[None]:
    """Bring the bed up before, take it down after, and compare."""
    command("down")
    before = footprint()
    command("up")
    command("kubectl", "apply", "-f", "-", stdin=PODS)
    command("kubectl", "wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
    yield
    command("down")
    # The kernel ends a network namespace in its own time.
    eventually(lambda: footprint() == before, 20)
    assert not STATE.exists()


PODS = (
    "\n---\n".join(
        f"""\
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{app: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: tether.bed/client:1
      imagePullPolicy: IfNotPresent
      command: {command}
      ports: [{{containerPort: 8080}}]
"""
        for name, command in {
            "client": '["sleep", "infinity"]',
            "server": '["sh", "-c", "echo served >/tmp/index.html; httpd -f -p 8080 -h /tmp"]',
        }.items()
    )
    + """
---
apiVersion: v1
kind: Service
metadata:
  name: server
spec:
  selector: {app: server}
  ports: [{port: 80, targetPort: 8080}]
"""
)
DENIAL = """\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: deny
spec:
  podSelector: {matchLabels: {app: server}}
  policyTypes: [Ingress]
"""


def test_a_second_up_changes_nothing() -> None:
    before = status()
    start = time.monotonic()
    said = command("up")
    assert time.monotonic() - start < 20
    after = status()
    assert (after["daemons"], after["hosts"]) == (before["daemons"], before["hosts"])
    assert "apply manifest" in said
    assert "unchanged" in said


def test_status_says_that_all_is_well() -> None:
    content = status()
    assert content["ok"]
    assert content["memory"] < 1.5 * 2**30
    assert "Ready" in command("kubectl", "get", "node", "bed")


def test_names_are_known_in_pods() -> None:
    assert in_pod("client", "nslookup", "kubernetes.default.svc.cluster.local")
    assert in_pod("client", "curl", "-sk", "https://kubernetes.default/version")
    assert in_pod("client", "curl", "-s", "http://server/") == "served"
    host = json.loads(command("status", "--json"))["hosts"]["gpu1"]["address"]
    assert host in in_pod("client", "nslookup", "gpu1.")


def test_an_unknown_name_fails_at_once() -> None:
    start = time.monotonic()
    in_pod("client", "curl", "-s", "http://nowhere.example/", check=False)
    assert time.monotonic() - start < 3


def test_the_machine_reaches_services_and_the_hosts_reach_the_api() -> None:
    address = command("kubectl", "get", "service", "server", "-o", "jsonpath={.spec.clusterIP}")
    with urllib.request.urlopen(f"http://{address}/", timeout=5) as answer:
        assert answer.read() == b"served\n"
    server = status()["server"]
    assert "gitVersion" in command("ssh", "gpu1", "curl", "-sk", f"{server}/version")


def test_pods_reach_hosts() -> None:
    command("ssh", "gpu1", "echo from-gpu1 >/tmp/file; cd /tmp; nohup python3 -m http.server 8000"
            " >/dev/null 2>&1 &")  # fmt: skip
    eventually(
        lambda: in_pod("client", "curl", "-s", "http://gpu1:8000/file", check=False) == "from-gpu1"
    )


def test_hosts_are_whole_and_their_keys_are_known() -> None:
    assert command("ssh", "gpu1", "sudo", "id", "-un") == "root"
    state = command("ssh", "gpu2", "systemctl", "is-system-running", "--wait", check=False)
    assert state == "running"
    assert command("ssh", "gpu1", "sudo", "nft", "list", "ruleset") == ""
    address = status()["hosts"]["gpu2"]["address"]
    argv = ["ssh", "-F", str(STATE / "ssh_config"), "-o", "BatchMode=yes", address, "hostname"]
    assert subprocess.check_output(argv, text=True).strip() == "gpu2"
    identities = {command("ssh", host, "cat", "/etc/machine-id") for host in ("gpu1", "gpu2")}
    assert len(identities) == 2


def test_a_policy_that_denies_is_enforced_and_lifted() -> None:
    def served() -> bool:
        argv = ("curl", "-s", "-m", "1", "http://server/")
        return in_pod("client", *argv, check=False) == "served"

    assert served()
    command("kubectl", "apply", "-f", "-", stdin=DENIAL)
    eventually(lambda: not served(), 15)
    command("kubectl", "delete", "networkpolicy", "deny")
    eventually(served, 15)


def test_envoy_starts_by_its_digest() -> None:
    reference = (STATE / "relay_image").read_text().strip()
    assert "@sha256:" in reference
    command(
        "kubectl", "run", "envoy", f"--image={reference}", "--image-pull-policy=IfNotPresent",
        "--restart=Never", "--", "--version",
    )  # fmt: skip
    command(
        "kubectl", "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/envoy",
        "--timeout=60s",
    )  # fmt: skip
    assert "1.40.0" in command("kubectl", "logs", "envoy")


def test_an_image_that_is_not_here_fails_at_once() -> None:
    command("kubectl", "run", "nowhere", "--image=registry.example/none:1", "--restart=Never")
    reason = "jsonpath={.status.containerStatuses[0].state.waiting.reason}"
    eventually(lambda: "Pull" in command("kubectl", "get", "pod", "nowhere", "-o", reason), 8)
    command("kubectl", "delete", "pod", "nowhere", "--now")


def test_the_audit_log_tells_who_wrote_what() -> None:
    def writes() -> list[dict[str, Any]]:
        events = map(json.loads, (STATE / "audit.log").read_text().splitlines())
        return [
            event
            for event in events
            if event["user"]["username"] == "bed-admin"
            and event["verb"] not in ("get", "list", "watch")
        ]

    before = len(writes())
    command("kubectl", "get", "pods", "--all-namespaces")
    assert len(writes()) == before
    command("kubectl", "create", "configmap", "written")
    assert [event["objectRef"]["name"] for event in writes()[before:]] == ["written"]


def test_nobody_may_do_anything_without_a_role() -> None:
    context = ssl.create_default_context(cafile=str(STATE / "pki" / "ca.crt"))
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{status()['server']}/api/v1/secrets", context=context)


def test_a_cable_can_be_pulled() -> None:
    address = status()["hosts"]["gpu2"]["address"]

    def reached() -> bool:
        argv = ["ssh", "-F", str(STATE / "ssh_config"), "-o", "ConnectTimeout=1", address, "true"]
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0

    assert reached()
    command("link", "gpu2", "down")
    assert not status()["hosts"]["gpu2"]["cable"]
    assert not reached()
    command("link", "gpu2", "up")
    eventually(reached)
    command("link", "gpu2", "down")
    command("up")
    assert reached()


def test_what_was_killed_is_mended() -> None:
    before = status()
    victims = [before["daemons"]["kubelet"], before["daemons"]["etcd"]]
    victims.append(before["daemons"]["containerd"])
    for pid in (*victims, before["hosts"]["gpu1"]["pid"]):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not status()["ok"])
    command("ssh", "gpu2", "echo kept >/tmp/kept")
    command("up")
    after = status()
    assert after["ok"]
    assert after["hosts"]["gpu2"] == before["hosts"]["gpu2"]
    assert after["daemons"]["kube-proxy"] == before["daemons"]["kube-proxy"]
    assert command("ssh", "gpu1", "hostname") == "gpu1"
    assert command("ssh", "gpu2", "cat", "/tmp/kept") == "kept"
    # containerd died, its pods did not.
    eventually(lambda: in_pod("client", "curl", "-s", "http://server/", check=False) == "served")


@pytest.mark.parametrize("after", [0.3, 1.0, 2.0, 4.0, 8.0, 16.0])
def test_up_and_down_survive_their_own_death(after: float) -> None:
    start = ["up", "--hosts", "gpu1"]
    command("down")
    _kill(start, after)
    command(*start)
    assert status()["ok"]
    assert list(status()["hosts"]) == ["gpu1"]
    _kill(["down"], after / 4)


def _kill(words: list[str], after: float) -> None:
    """Run a command of the test bed, and kill it if it takes longer than this."""
    argv = [sys.executable, str(PROGRAM), "--bed", NAME, *words]
    victim = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after)
    victim.kill()
    victim.wait()
