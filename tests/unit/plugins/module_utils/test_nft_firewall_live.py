# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rules in a real kernel, in network namespaces that end with their processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

import pytest

from ansible_collections.tether.fleet.plugins.module_utils import (
    foreign_firewall,
    nft,
    nft_firewall,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or nft.program() is None or shutil.which("nsenter") is None,
    reason="needs root, nft and nsenter",
)

# Says "open", "refused" or "silent", as one account.
DIAL = """
import os, socket, sys
"".encode("idna")  # loaded while it can be read
os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
try:
    socket.create_connection((sys.argv[2], int(sys.argv[3])), timeout=1.5).close()
    print("open")
except ConnectionRefusedError:
    print("refused")
except OSError:
    print("silent")
"""
# A socket belongs to the account that made it.
LISTEN = """
import os, socket, sys
"".encode("idna")
os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
one = socket.create_server((sys.argv[2], int(sys.argv[3])), family=int(sys.argv[4]))
print("ready", flush=True)
while True:
    one.accept()[0].close()
"""


class Namespace:
    """A network namespace that lives as long as its one process."""

    def __init__(self, folder):
        self.holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo up; exec sleep 300"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.holder.stdout.readline() == "up\n"
        self.processes = [self.holder]
        self.nft = str(folder / ("nft-%d" % self.holder.pid))
        with open(self.nft, "w") as stream:
            stream.write('#!/bin/sh\nexec nsenter -t %d -n nft "$@"\n' % self.holder.pid)
        os.chmod(self.nft, 0o755)
        self.run("ip", "link", "set", "lo", "up")

    def argv(self, *argv):
        return ["nsenter", "-t", str(self.holder.pid), "-n", *argv]

    def run(self, *argv, text=None):
        done = subprocess.run(
            self.argv(*argv), input=text, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def listen(self, port, address="0.0.0.0", uid=0):
        family = "10" if ":" in address else "2"
        argv = self.argv(sys.executable, "-c", LISTEN, str(uid), address, str(port), family)
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    def dial(self, address, port, uid=0):
        return self.run(sys.executable, "-c", DIAL, str(uid), address, str(port))

    def load(self, text):
        nft.check(self.nft, text)
        self.run("nft", "-f", "-", text=text)

    def end(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()
            process.stdout.close()


def settle(dial, wanted):
    """A new link takes a moment; how many looks, and not how long, as each may wait."""
    for _ in range(20):
        if dial() == wanted:
            return
        time.sleep(0.25)
    assert dial() == wanted


@pytest.fixture
def namespace(tmp_path):
    made = []

    def make():
        made.append(Namespace(tmp_path))
        return made[-1]

    yield make
    for one in made:
        one.end()


def options(**keys):
    return {
        "policy": "closed",
        "ingress_port": 9443,
        "ingress_sources": ["10.9.0.0/24"],
        "open_ports": [{"port": 22, "proto": "tcp", "sources": []}],
        "service_ports": [],
        "loopback_ports": [],
        **keys,
    }


def test_a_load_can_be_repeated_and_drift_is_seen(namespace):
    host = namespace()
    assert nft.own_listing(host.nft) is None
    wanted = options(
        ingress_sources=["0.0.0.0/0", "::/0"],
        open_ports=[{"port": 53, "proto": "udp", "sources": ["10.0.0.0/8", "192.0.2.7"]}],
        loopback_ports=[{"port": 8081, "accounts": ["a", "b"], "server": "a"}],
    )
    text = nft_firewall.render(wanted, {"peer": "fd00::1", "port": 22}, {"a": 998, "b": 999})
    host.load(text)
    first = nft.own_listing(host.nft)
    host.load(text)
    assert nft.own_listing(host.nft) == first
    rules = host.run("nft", "-a", "list", "chain", "inet", "tether", "output").splitlines()
    handle = next(line for line in rules if "sport 8081" in line).split()[-1]
    host.run("nft", "delete", "rule", "inet", "tether", "output", "handle", handle)
    assert nft.own_listing(host.nft) != first
    nft.delete_own(host.nft)
    nft.delete_own(host.nft)
    assert nft.own_listing(host.nft) is None


def test_a_text_that_nft_does_not_take_is_refused_before_it_is_loaded(namespace):
    host = namespace()
    with pytest.raises(Refusal, match="nft -c"):
        nft.check(host.nft, "table inet tether { chain input { nonsense; } }")
    assert nft.own_listing(host.nft) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_strangers_on_the_host_reach_no_engine_and_replace_none(namespace, address):
    host = namespace()
    if address == "::1":
        host.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0")
    client, server, stranger = 65001, 65002, 65003
    wanted = options(loopback_ports=[{"port": 8081, "accounts": ["c"], "server": "s"}])
    host.load(nft_firewall.render(wanted, None, {"c": client, "s": server}))
    engine = host.listen(8081, address, server)
    assert host.dial(address, 8081, client) == "open"
    assert host.dial(address, 8081, 0) == "open"
    assert host.dial(address, 8081, stranger) == "refused"
    assert host.dial(address, 8081, server) == "refused"
    engine.kill()
    engine.wait()
    host.listen(8081, address, stranger)
    assert host.dial(address, 8081, client) == "silent"


def test_from_outside_only_what_is_open(namespace):
    host, peer = namespace(), namespace()
    host.run("ip", "link", "add", "v0", "type", "veth", "peer", "v1", "netns", str(peer.holder.pid))
    for one, device, last in ((host, "v0", 1), (peer, "v1", 2)):
        for third in (0, 1):
            one.run("ip", "addr", "add", "10.9.%d.%d/24" % (third, last), "dev", device)
        one.run("ip", "link", "set", device, "up")
    for port in (22, 7000, 9443):
        host.listen(port)
    peer_ports = [("10.9.0.1", 22), ("10.9.0.1", 7000), ("10.9.0.1", 9443), ("10.9.1.1", 9443)]

    def dial():
        return [peer.dial(*pair) for pair in peer_ports]

    settle(dial, ["open"] * 4)
    host.load(nft_firewall.render(options(), None, {}))
    assert dial() == ["open", "silent", "open", "silent"]
    assert host.dial("10.9.0.1", 7000) == "open"
    host.load(nft_firewall.render(options(policy="guard"), None, {}))
    assert dial() == ["open", "open", "open", "silent"]
    # The session's port, wherever the session comes from.
    host.load(nft_firewall.render(options(open_ports=[]), {"peer": "10.9.7.7", "port": 22}, {}))
    assert dial() == ["open", "silent", "open", "silent"]
    # A service's port is its networks', whatever else the table closes.
    for policy, source, wanted in (
        ("closed", "10.9.0.0/24", "open"),
        ("closed", "10.9.1.0/24", "silent"),
        ("guard", "10.9.0.0/24", "open"),
        ("guard", "10.9.1.0/24", "silent"),
    ):
        ports = [{"port": 7000, "sources": [source]}]
        host.load(nft_firewall.render(options(policy=policy, service_ports=ports), None, {}))
        assert dial()[1] == wanted, (policy, source)


def test_ipv6_is_closed_equally(namespace):
    host, peer = namespace(), namespace()
    host.run("ip", "link", "add", "v0", "type", "veth", "peer", "v1", "netns", str(peer.holder.pid))
    for one, device, last in ((host, "v0", 1), (peer, "v1", 2)):
        one.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0")
        for third in (0, 1):
            address = "fd00:%d::%d/64" % (third, last)
            one.run("ip", "addr", "add", address, "dev", device, "nodad")
        one.run("ip", "link", "set", device, "up")
    for port in (22, 7000, 9443):
        host.listen(port, "::")
    wanted = options(ingress_sources=["10.9.0.0/24", "fd00:0::/64"])
    # Before anybody knows anybody's link address: finding the neighbour is let in as well.
    host.load(nft_firewall.render(wanted, None, {}))
    pairs = [("fd00:0::1", 22), ("fd00:0::1", 7000), ("fd00:0::1", 9443), ("fd00:1::1", 9443)]

    def dial():
        return [peer.dial(*pair) for pair in pairs]

    settle(dial, ["open", "silent", "open", "silent"])
    host.load(nft_firewall.render(options(), None, {}))
    assert dial() == ["open", "silent", "silent", "silent"]
    host.load(nft_firewall.render(options(policy="guard"), None, {}))
    assert dial() == ["open", "open", "silent", "silent"]


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("inet", "type filter hook input priority 0; policy drop; tcp dport 22 accept"),
        ("ip", "type filter hook input priority 0; ct state established accept; counter reject"),
    ],
)
def test_the_command_that_a_refusal_gives_really_helps(namespace, family, text):
    host = namespace()
    host.run("nft", "-f", "-", text="table %s other {\nchain input {\n%s\n}\n}\n" % (family, text))
    wanted = {"ingress_port": 9443, "ingress_sources": ["10.9.0.0/24"], "policy": "closed"}
    found = foreign_firewall.blocking_chains(nft.ruleset(host.nft), 9443)
    with pytest.raises(Refusal, match="chain input of table %s other" % family):
        foreign_firewall.refuse(wanted, found)
    for line in foreign_firewall.remedy(found[0], 9443, wanted["ingress_sources"]):
        host.run("sh", "-c", line)
    foreign_firewall.refuse(wanted, foreign_firewall.blocking_chains(nft.ruleset(host.nft), 9443))


def test_our_own_table_is_no_foreign_one(namespace):
    host = namespace()
    host.load(nft_firewall.render(options(), None, {}))
    assert foreign_firewall.blocking_chains(nft.ruleset(host.nft), 9443) == []
