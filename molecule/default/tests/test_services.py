# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs that the owner runs on the hosts, at Services: by relay and directly (S1, S2, S3).

The tests are one story, in their order: each takes the fleet as the one before it left it.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import time
from pathlib import Path

import pytest
from bed import STATE, client, get, kubectl, playbook, run, site, ssh

PROGRAM = Path(__file__).with_name("echo_service.py")
BED = json.loads((STATE / "bed.json").read_text())
GPU1 = BED["hosts"]["gpu1"]
# With its address connections of pods reach hosts.
NODE = f"10.99.{BED['number']}.1"
UNITS = {"echo-relay": ("127.0.0.1", 18080), "echo-direct": ("0.0.0.0", 18081)}
ECHO = {
    "name": "echo",
    "namespace": "tools",
    "hosts": ["gpu1", "gpu2"],
    "host_port": 18080,
    "replicas": 1,
    "websocket": True,
    "paths": [
        {"path": "/api/"},
        {"path": "/ws", "methods": ["GET"]},
        {"path": "/read", "methods": ["GET"]},
    ],
    "health_path": "/api/health",
    "ingress": {
        "host": "echo.example.org",
        "class": "nginx",
        "tls_secret": "echo-tls",
        "annotations": {"gethomepage.dev/enabled": "true"},
    },
}
FAST = {
    "name": "fast",
    "namespace": "tools",
    "hosts": ["gpu1", "gpu2"],
    "expose": "direct",
    "port": 8000,
    "host_port": 18081,
    "health_path": "/",
    "networks": [f"{NODE}/32"],
}


def with_services(*services, **more):
    return site("-e", json.dumps({"fleet_services": list(services), **more}))


def start(host, unit):
    address, port = UNITS[unit]
    ssh(
        host,
        f"systemctl is-active -q {unit} || systemd-run -q --unit {unit} -p DynamicUser=yes"
        f" /usr/local/bin/echo-service {address} {port}",
    )
    ssh(
        host,
        f"for n in $(seq 100); do curl -s -o /dev/null {address}:{port} && exit; sleep .1; done",
    )


@pytest.fixture(scope="module", autouse=True)
def _programs():
    """As their owner would run them: the collection knows nothing of the units."""
    code = base64.b64encode(PROGRAM.read_bytes()).decode()
    for host in ("gpu1", "gpu2"):
        ssh(host, f"echo {code} | base64 -d > /usr/local/bin/echo-service")
        ssh(host, "chmod 755 /usr/local/bin/echo-service")
        for unit in UNITS:
            start(host, unit)
    yield
    for host in ("gpu1", "gpu2"):
        ssh(host, f"systemctl stop {' '.join(UNITS)}; rm /usr/local/bin/echo-service")


def ask(target, *options):
    """A request of the client pod; its status and what the program says that it was asked."""
    words = " ".join(options)
    done = client(
        f"curl -s -m 20 --path-as-is {words} -w '\\n%{{http_code}}' '{target}'", check=False
    )
    text, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(text) if text.startswith("{") else {}


def read(sock, size):
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        assert more, data
        data += more
    return data


def upgrade(path):
    """A WebSocket to the Service, asked for by hand; the socket, and the answer's head."""
    address = get("service", "echo", "-n", "tools")["spec"]["clusterIP"]
    sock = socket.create_connection((address, 80), timeout=20)
    key = base64.b64encode(os.urandom(16)).decode()
    sock.sendall(
        f"GET {path} HTTP/1.1\r\nHost: echo.tools.svc\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += read(sock, 1)
    return sock, head.decode()


def echoed(sock, text):
    mask = os.urandom(4)
    sent = bytes(byte ^ mask[at % 4] for at, byte in enumerate(text))
    sock.sendall(bytes([0x81, 0x80 | len(text)]) + mask + sent)
    return read(sock, 2 + len(text))[2:]


def endpoints():
    slices = get("endpointslices", "-n", "tools", "-l", "kubernetes.io/service-name=fast")["items"]
    return sorted(one["addresses"][0] for each in slices for one in each["endpoints"] or [])


def test_one_run_exposes_them_and_the_next_changes_nothing():
    done = with_services(ECHO, FAST)
    assert done.returncode == 0, done.stdout + done.stderr
    told = " ".join((done.stdout + done.stderr).split())
    assert "tools/fast is exposed directly: requests to it have neither TLS nor a token." in told
    again = with_services(ECHO, FAST)
    assert again.returncode == 0, again.stdout
    assert "changed=0" in again.stdout and "changed=1" not in again.stdout


def test_what_the_program_is_told():
    status, said = ask("http://echo.tools.svc/api/x?y=1", "-d z", "-H 'X-Relay-Model: tiny'")
    assert (status, said["method"], said["path"], said["body"]) == (200, "POST", "/api/x?y=1", 1)
    assert said["headers"]["host"] == "echo.tools.svc"
    assert not [name for name in said["headers"] if name.startswith(("x-relay", "x-forwarded"))]


PATHS = [
    ("/read", "GET", 200),
    ("/read", "POST", 403),
    ("/read/x", "GET", 403),
    ("/api/%41/b.c", "DELETE", 200),
    ("/api", "GET", 403),
    ("/", "GET", 403),
    ("/api/../secret", "GET", 403),
    ("/api/%2e%2E/secret", "GET", 403),
    ("/api/..%2fsecret", "GET", 403),
    ("/api/..;/secret", "GET", 403),
    ("/api//secret", "GET", 403),
    ("/API/x", "GET", 403),
]


def test_paths():
    """All in one command of the client: a login there takes longer than a request."""
    lines = [
        f"curl -s -m 20 -o /dev/null --path-as-is -X {method} -w '%{{http_code}}\n'"
        f" 'http://echo.tools.svc{path}'"
        for path, method, _status in PATHS
    ]
    found = client("\n".join(lines)).stdout.split()
    assert list(zip(PATHS, map(int, found), strict=True)) == [(row, row[2]) for row in PATHS]


def test_websocket():
    sock, head = upgrade("/ws")
    with sock:
        assert head.startswith("HTTP/1.1 101 "), head
        assert echoed(sock, b"hello") == b"hello"
        assert echoed(sock, b"x" * 125) == b"x" * 125
    other, head = upgrade("/read/x")
    other.close()
    assert head.startswith("HTTP/1.1 403 "), head
    model = client(
        "curl -s -m 20 -o /dev/null -w '%{http_code}'"
        " -H 'Connection: Upgrade' -H 'Upgrade: websocket' http://tiny.team-a.svc/v1/models"
    )
    assert model.stdout == "403"


def answering():
    """Which hosts answered twelve requests, one after the other."""
    said = client("for n in $(seq 12); do curl -sS --fail -m 20 http://echo.tools.svc/read; done")
    return re.findall(r'"host": "(\w+)"', said.stdout)


def test_another_host_answers_when_the_program_stops():
    assert set(answering()) == {"gpu1", "gpu2"}
    ssh("gpu1", "systemctl stop echo-relay")
    # None is lost before the relays have noticed, either: the ingress says that it reached nobody.
    assert answering() == ["gpu2"] * 12
    start("gpu1", "echo-relay")


def test_the_ingress_leads_to_the_service():
    item = get("ingress", "echo", "-n", "tools")
    assert item["metadata"]["annotations"]["gethomepage.dev/enabled"] == "true"
    assert item["spec"]["tls"] == [{"hosts": ["echo.example.org"], "secretName": "echo-tls"}]
    backend = item["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert backend == {"name": "echo", "port": {"name": "http"}}


def test_direct_is_open_to_its_networks_alone():
    assert ask("http://fast.tools.svc:8000/any/path")[0] == 200
    assert endpoints() == sorted([GPU1, BED["hosts"]["gpu2"]])
    published = get("configmap", "fast-direct", "-n", "tools")["data"]
    assert published["address"] == f"{GPU1}:18081"
    # The neighbour is let in to the ingress, but is not in the service's networks.
    knock = f"curl -s -o /dev/null -m 3 -w '%{{http_code}}' http://{GPU1}:18081/"
    assert ssh("neighbour", knock, check=False).stdout == "000"
    # What listens everywhere behind a relay or nothing is closed all the same.
    ssh("gpu1", "systemd-run -q --unit echo-open /usr/local/bin/echo-service 0.0.0.0 18082")
    ssh(
        "gpu1",
        "for n in $(seq 100); do curl -s -o /dev/null localhost:18082 && exit; sleep .1; done",
    )
    knock = f"curl -s -o /dev/null -m 3 -w '%{{http_code}}' http://{GPU1}:18082/"
    assert run("sh", "-c", knock, check=False).stdout == "000"
    ssh("gpu1", "systemctl stop echo-open")


def test_direct_leaves_out_who_drains():
    extra = ["-e", json.dumps({"fleet_services": [ECHO, FAST]})]
    assert playbook("drain", "-e", "drain_hosts=gpu1", *extra).returncode == 0
    assert endpoints() == [BED["hosts"]["gpu2"]]
    assert playbook("undrain", "-e", "drain_hosts=gpu1", *extra).returncode == 0
    assert endpoints() == sorted(BED["hosts"][name] for name in ("gpu1", "gpu2"))


def test_direct_leaves_out_who_does_not_answer():
    ssh("gpu2", "systemctl stop echo-direct")
    done = with_services(ECHO, FAST)
    assert done.returncode != 0
    assert "port 18081 did not answer as declared" in " ".join(done.stdout.split())
    assert endpoints() == [GPU1]


def test_what_is_no_longer_listed_is_removed_with_prune():
    done = with_services(relay_prune=True)
    assert done.returncode == 0, done.stdout
    kinds = "services,deployments,configmaps,secrets,endpointslices,ingresses,networkpolicies,pdb"
    for _look in range(100):  # the garbage collector takes Kubernetes' own slices
        found = kubectl("get", kinds, "-n", "tools", "-l", "tether.fleet/fleet", "-o", "name")
        if not found.stdout:
            break
        time.sleep(0.3)
    assert not found.stdout
    for host in ("gpu1", "gpu2"):
        assert "18081" not in ssh(host, "nft list table inet tether").stdout
