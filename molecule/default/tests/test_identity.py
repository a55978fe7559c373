# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whose certificate a relay accepts (N4, P1): the pinned leaf at the pinned address, no other."""

from __future__ import annotations

import datetime
import json
import time

import pytest
from bed import GPU2, STATE, bed, client, get, ssh
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ansible_collections.tether.fleet.plugins.plugin_utils import ca, signing

# A TLS server that notes every handshake and every byte that comes after it.
IMPOSTOR = r"""
import socket, ssl, sys, threading
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.minimum_version = ssl.TLSVersion.TLSv1_3
context.load_cert_chain("/tmp/impostor/leaf.pem", "/tmp/impostor/leaf.key")
listener = socket.create_server(("0.0.0.0", 9443))
log = open("/tmp/impostor/log", "a", buffering=1)
def serve(plain):
    plain.settimeout(5)
    log.write("connection\n")
    try:
        with context.wrap_socket(plain, server_side=True) as tls:
            log.write("handshake\n")
            data = tls.recv(4096)
            log.write("bytes %d\n" % len(data))
    except OSError as error:
        log.write("ended %s\n" % type(error).__name__)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


def status_of_lone(url="http://lone.team-b.svc"):
    return client(
        f"curl -sS -m 30 -o /tmp/body -w '%{{http_code}}' {url}/v1/models; echo; cat /tmp/body",
        check=False,
    ).stdout.split("\n", 1)


def relay_address():
    """The relay's pod itself: the Service refuses once its pods know that no host is left."""
    pods = get("pods", "-n", "team-b", "-l", "tether.fleet/model=lone")["items"]
    ports = pods[0]["spec"]["containers"][0]["ports"]
    port = next(item["containerPort"] for item in ports if item["name"] == "http")
    return f"http://{pods[0]['status']['podIP']}:{port}"


def wait_for(wanted, seconds=40):
    deadline = time.monotonic() + seconds
    while True:
        status, body = status_of_lone()
        if status == wanted or time.monotonic() > deadline:
            return status, body
        time.sleep(1)


@pytest.fixture
def gpu2_is_taken_over():
    """gpu2's cable is out and the neighbour has its address, as on a hostile network."""
    bed("link", "gpu2", "down")
    ssh("neighbour", f"mkdir -p /tmp/impostor && ip address add {GPU2}/24 dev host0")
    started = []

    def serve(certificate: str, key: str):
        ssh("neighbour", "rm -f /tmp/impostor/*")
        for name, text in (("leaf.pem", certificate), ("leaf.key", key), ("serve.py", IMPOSTOR)):
            ssh("neighbour", f"cat > /tmp/impostor/{name} <<'END'\n{text}\nEND")
        pid = ssh(
            "neighbour", "setsid python3 /tmp/impostor/serve.py >/tmp/impostor/out 2>&1 & echo $!"
        )
        started.append(pid.stdout.strip())
        # Whoever dialled gpu2 must learn where its address lives now.
        bed("exec", "--", "ip", "neigh", "flush", "all")

    yield serve
    for pid in started:
        ssh("neighbour", f"kill {pid}", check=False)
    ssh("neighbour", f"ip address del {GPU2}/24 dev host0; rm -rf /tmp/impostor")
    bed("link", "gpu2", "up")
    bed("exec", "--", "ip", "neigh", "flush", "all")
    assert wait_for("200")[0] == "200", "the real host is back, and with it the model"
    # This machine too may have learnt the neighbour's place: it asks anew some seconds later.
    deadline = time.monotonic() + 60
    while ssh("gpu2", "true", check=False).returncode:
        assert time.monotonic() < deadline


def impostor_log():
    return ssh("neighbour", "cat /tmp/impostor/log").stdout


def assert_refused():
    time.sleep(8)  # several rounds of health checks dial it meanwhile
    relay = relay_address()
    for _request in range(5):
        status, body = status_of_lone(relay)
        assert status == "503", body
        assert json.loads(body)["error"]
    log = impostor_log()
    assert "connection" in log, "the relay did dial the impostor"
    assert "bytes" not in log.replace("bytes 0", ""), log


def test_same_name_from_the_same_ca(gpu2_is_taken_over):
    """A certificate that the fleet's own CA signed for gpu2, on another key, is refused."""
    gpu2_is_taken_over(*twin())
    assert_refused()


def test_host_a_at_host_bs_address(gpu2_is_taken_over):
    """gpu1 taken over entirely does not make it gpu2."""
    certificate = ssh("gpu1", "cat /etc/tether/identity/host.crt").stdout
    key = ssh("gpu1", "cat /etc/tether/identity/host.key").stdout
    gpu2_is_taken_over(certificate, key)
    assert_refused()


def twin():
    """A second, properly signed certificate for gpu2 and its key, as whoever has the CA could make.

    It goes around the CA's record, so that the fleet itself knows nothing of it.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    leaf = signing.sign(
        request.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        signing.subject("gpu2", [], [GPU2]),
        signing.load_certificate(ca.certificate(str(STATE / "ca"))),
        ca.open_key(str(STATE / "ca"), (STATE / "ca_passphrase").read_text().strip().encode()),
        datetime.datetime.now(datetime.UTC),
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return leaf.public_bytes(serialization.Encoding.PEM).decode(), private.decode()
