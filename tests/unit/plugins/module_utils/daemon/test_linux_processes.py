# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import ipaddress

import pytest

from ansible_collections.tether.fleet.plugins.module_utils import tcp_table
from ansible_collections.tether.fleet.plugins.module_utils.daemon import linux_processes


@pytest.mark.parametrize(
    ("port", "state", "counts"),
    [
        (9443, tcp_table.ESTABLISHED, True),
        (22, tcp_table.ESTABLISHED, False),
        (9443, tcp_table.LISTEN, False),
        # TCP_TIME_WAIT: the other side has closed it, or has gone.
        (9443, "06", False),
    ],
)
def test_connections(monkeypatch: pytest.MonkeyPatch, port: int, state: str, counts: bool) -> None:
    own, peer = ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("10.0.0.9")
    one = tcp_table.Socket(state, own, port, peer, "1")
    monkeypatch.setattr(tcp_table, "read", lambda: [one])
    assert linux_processes.connections(9443) == ([one] if counts else [])
    assert linux_processes.listening() == ([one] if state == tcp_table.LISTEN else [])
