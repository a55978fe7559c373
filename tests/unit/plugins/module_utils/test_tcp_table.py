# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel's list of TCP sockets."""

from __future__ import annotations

import socket
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.tether.fleet.plugins.module_utils import tcp_table

little = pytest.mark.skipif(sys.byteorder != "little", reason="the texts are a little endian's")


@little
@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000", "0.0.0.0"),
        ("0100007F", "127.0.0.1"),
        ("0101A8C0", "192.168.1.1"),
        ("0" * 32, "::"),
        ("00000000000000000000000001000000", "::1"),
        ("0000000000000000FFFF00000100007F", "127.0.0.1"),
        ("000080FE00000000FF005450B6AD1DFE", "fe80::5054:ff:fe1d:adb6"),
    ],
)
def test_decode(text: str, address: str) -> None:
    assert str(tcp_table.decode(text)) == address


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_own_sockets_are_seen(family: int, address: str) -> None:
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        with socket.create_connection((address, port)):
            found = [one for one in tcp_table.read() if one.port == port]
    assert {(one.state, str(one.address)) for one in found} == {
        (tcp_table.LISTEN, address),
        (tcp_table.ESTABLISHED, address),
    }
    assert {str(one.peer) for one in found} == {address, "::" if ":" in address else "0.0.0.0"}


HEXADECIMAL = st.text(alphabet="0123456789ABCDEF:", max_size=12)


@pytest.mark.parametrize("line", ["0 0 0 0 0 0 0 0 0 0", "0 : : 0 0 0 0 0 0 0", "0: 1:2:3 01"])
def test_lines_that_are_no_sockets_are_left_out(line: str) -> None:
    assert tcp_table.parse("head\n" + line) == []


@given(st.lists(st.lists(HEXADECIMAL, max_size=12).map(" ".join)).map("\n".join))
def test_no_text_is_too_odd(text: str) -> None:
    for one in tcp_table.parse("head\n" + text):
        assert one.port >= 0
