# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os
import socket
import sys

import pytest
import yaml

from ansible_collections.tether.fleet.plugins.module_utils import firewall_listeners, tcp_table
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

little = pytest.mark.skipif(sys.byteorder != "little", reason="the texts are a little endian's")
DESIRED = {
    "ingress_port": 9443,
    "service_ports": [{"port": 8001, "sources": ["10.0.0.0/24"]}],
    "open_ports": [
        {"port": 22, "proto": "tcp", "sources": []},
        {"port": 53, "proto": "udp", "sources": ["10.0.0.0/8", "fd00::/8"]},
    ],
}
SESSION = {"peer": "10.9.9.9", "port": 2222}


def listener(port, name="other", unit="other.service", pid=7, address="0.0.0.0"):
    return {"port": port, "address": address, "pid": pid, "name": name, "unit": unit}


@little
def test_reachable_is_what_listens_on_more_than_loopback():
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
    line = "   0: %s:%04X 00000000:0000 %s 00000000:00000000 00:00000000 00000000 0 0 1\n"
    table = head + "".join(
        line % item
        for item in [
            ("00000000", 9100, "0A"),
            ("0100007F", 631, "0A"),
            ("3500007F", 53, "0A"),
            ("0101A8C0", 2049, "0A"),
        ]
    )
    assert firewall_listeners.reachable(tcp_table.parse(table)) == {9100, 2049}


@pytest.mark.parametrize(
    ("item", "refused"),
    [
        (listener(22), False),
        (listener(2222), False),
        (listener(9443), False),
        (listener(8001), False),
        (listener(53), True),
        (listener(9100), True),
        (listener(9444, unit="tether-ingress.service"), False),
        (listener(8080, unit="tether-engine-team-a.qwen.service"), False),
        (listener(8080, unit="tether-something.service"), True),
        (listener(2049, name="", unit="", pid=0), True),
    ],
)
def test_who_would_be_cut(item, refused):
    if not refused:
        firewall_listeners.refuse(DESIRED, SESSION, [item])
        return
    with pytest.raises(Refusal, match="port %d on 0.0.0.0" % item["port"]):
        firewall_listeners.refuse(DESIRED, SESSION, [item])


def test_all_of_them_are_named_with_the_line_that_keeps_them_open():
    found = [
        listener(9100, "node_exporter", "node_exporter.service", 812, "::"),
        listener(2049, "", "", 0),
        listener(2049, "", "", 0, "::"),
        *(listener(80, "nginx", "nginx.service", pid) for pid in (31, 30, 32)),
    ]
    with pytest.raises(Refusal) as caught:
        firewall_listeners.refuse(DESIRED, SESSION, found)
    said = str(caught.value)
    assert (
        "port 80 on 0.0.0.0, process 30 (nginx) of unit nginx.service;"
        " port 2049 on 0.0.0.0 and ::, no process that can be seen (perhaps the kernel itself, as"
        " with NFS); port 9100 on ::, process 812 (node_exporter) of unit node_exporter.service;"
        in said
    )
    assert "firewall_listeners: cut" in said
    line = said[said.index("firewall_open_ports: ") : said.index("  (sources:")]
    assert yaml.safe_load(line) == {
        "firewall_open_ports": [
            {"port": 22, "proto": "tcp"},
            {"port": 53, "proto": "udp", "sources": ["10.0.0.0/8", "fd00::/8"]},
            {"port": 80, "proto": "tcp"},
            {"port": 2049, "proto": "tcp"},
            {"port": 9100, "proto": "tcp"},
        ]
    }


def test_a_socket_of_this_very_process_is_found():
    with socket.create_server(("0.0.0.0", 0)) as wide, socket.create_server(("127.0.0.1", 0)) as lo:
        port, inner = wide.getsockname()[1], lo.getsockname()[1]
        found = firewall_listeners.observe(set())
        mine = [item for item in found if item["pid"] == os.getpid()]
        assert [(item["port"], item["address"]) for item in mine] == [(port, "0.0.0.0")]
        assert inner not in {item["port"] for item in mine}
        assert port not in {item["port"] for item in firewall_listeners.observe({port})}
