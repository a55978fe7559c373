# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import subprocess
from typing import Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.tether.fleet.plugins.module_utils.daemon import (
    commands,
    darwin_processes,
    processes,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

# As lsof(8) describes -F: a field a line, its letter first.
TCP = "\n".join(
    [
        *("p707", "ccaddy", "f3", "tIPv4", "n*:9443", "f5", "tIPv6", "n*:9443"),
        *("f6", "tIPv6", "n*:9443", "p808", "cpython3.12", "f9", "tIPv4", "n127.0.0.1:9443", ""),
    ]
)
UNIX = "\n".join(
    [
        *("p1", "claunchd", "f7", "tunix", "n/var/run/x"),
        *("p909", "cllama-server", "f4", "tunix", "n/tmp/e.sock", "f5", "tunix", "n->0xabc", ""),
    ]
)
LIST = "PID\tStatus\tLabel\n-\t0\tcom.apple.x\n700\t0\ttether-ingress\n909\t-9\ttether-engine-a.b\n"
PARENTS = "    1     0\n  700     1\n  707   700\n  808     1\n  909     1\n"


@pytest.fixture
def mac(monkeypatch):
    """lsof, launchctl and ps with fixed answers: there is no Mac."""

    def run(argv, timeout, **environment):
        out = {
            "/usr/sbin/lsof": UNIX if "-U" in argv else TCP,
            "launchctl": LIST,
            "ps": PARENTS,
        }[argv[0]]
        return subprocess.CompletedProcess(argv, 0, out, "")

    monkeypatch.setattr(commands, "run", run)
    monkeypatch.setattr(processes.platform, "system", lambda: "Darwin")


def test_who_listens(mac):
    found = [
        {key: item[key] for key in ("pid", "name", "unit", "address")}
        for item in processes.listeners(9443)
    ]
    assert found == [
        {"pid": 707, "name": "caddy", "unit": "tether-ingress", "address": "0.0.0.0"},
        {"pid": 707, "name": "caddy", "unit": "tether-ingress", "address": "::"},
        {"pid": 808, "name": "python3.12", "unit": "", "address": "127.0.0.1"},
    ]
    assert processes.in_words(processes.listeners(9443)) == (
        "process 707 (caddy) of unit tether-ingress, process 808 (python3.12)"
    )


def test_who_holds_a_unix_socket(mac):
    found = processes.unix_listeners("/tmp/e.sock")
    assert [(item["pid"], item["unit"]) for item in found] == [(909, "tether-engine-a.b")]
    assert processes.unix_listeners("/tmp/other.sock") == []


def test_nobody_listens(mac, monkeypatch):
    done = subprocess.CompletedProcess([], 1, "", "")
    monkeypatch.setattr(commands, "run", lambda *_, **__: done)
    assert processes.listeners(1) == []


@pytest.mark.parametrize(
    ("status", "out", "error"),
    [
        (127, "", "no program /usr/sbin/lsof"),
        (124, "", "no answer within 30 s"),
        (-9, TCP, ""),  # cut off
        (0, "COMMAND PID USER FD TYPE", ""),
        (0, "", ""),
        (1, "", "lsof: illegal option"),
    ],
)
def test_what_lsof_does_not_tell_is_not_nobody(mac, monkeypatch, status, out, error):
    done = subprocess.CompletedProcess([], status, out, error)
    monkeypatch.setattr(commands, "run", lambda *_, **__: done)
    for look in (lambda: processes.listeners(1), lambda: processes.unix_listeners("/x")):
        with pytest.raises(Refusal, match=r"who listens on this Mac: .*status %d" % status):
            look()


def test_a_program_that_may_not_be_run(tmp_path):
    assert commands.run([str(tmp_path)], timeout=5).returncode == 126
    assert commands.run([str(tmp_path / "none")], timeout=5).returncode == 127


@pytest.mark.parametrize(
    ("kind", "name", "wanted"),
    [
        ("IPv4", "*:1", "0.0.0.0"),
        ("IPv6", "*:1", "::"),
        ("IPv4", "10.0.0.1:65535", "10.0.0.1"),
        ("IPv6", "[::1]:1", "::1"),
        ("IPv6", "[fe80::1%lo0]:1", "fe80::1"),
    ],
)
def test_addresses(kind, name, wanted):
    assert darwin_processes.address(darwin_processes.OpenFile(1, "x", kind, name)) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Thu Jan 1 00:00:10 1970", 10.0),
        ("Mon Nov 30 16:45:12 2026", 1796057112.0),
        ("Mon 30 Nov 16:45:12 2026", None),  # another locale's order
        ("lun. nov. 30 16:45:12 2026", None),
        ("", None),
    ],
)
def test_when_a_process_started(text, wanted):
    assert darwin_processes.moment(text) == wanted


def test_a_process_that_is_there_has_a_start(mac, monkeypatch):
    done = subprocess.CompletedProcess([], 0, "Thu Jan  1 00:00:10 1970    \n", "")
    monkeypatch.setattr(commands, "run", lambda *_, **__: done)
    assert darwin_processes.started(7) == ("Thu Jan 1 00:00:10 1970", 10.0)
    done.stdout = ""
    assert darwin_processes.started(7) == ("", None)


def test_a_lineage_ends():
    assert darwin_processes.lineage(3, {3: 2, 2: 1, 1: 0}) == [3, 2]
    assert darwin_processes.lineage(3, {3: 2, 2: 3}) == [3, 2]
    assert darwin_processes.lineage(3, {}) == [3]


@given(st.lists(st.sampled_from("pcftn") | st.text(max_size=9)).map("\n".join))
def test_no_output_is_too_odd(text):
    assert all(one.pid for one in darwin_processes.parse(text))
    assert isinstance(darwin_processes.labels(text), dict)


@pytest.mark.parametrize(
    ("kind", "name", "ends"),
    [
        ("IPv4", "10.0.0.1:9443->10.0.0.9:51324", ("10.0.0.1", 9443, "10.0.0.9")),
        ("IPv6", "[fd00::1]:9443->[fd00::9]:5", ("fd00::1", 9443, "fd00::9")),
        ("IPv6", "[::ffff:10.0.0.1]:9443->[::ffff:10.0.0.9]:5", ("10.0.0.1", 9443, "10.0.0.9")),
        ("IPv6", "[fe80::1%en0]:9443->[fe80::9%en0]:5", ("fe80::1", 9443, "fe80::9")),
        ("IPv4", "10.0.0.1:9443", None),
        ("IPv4", "10.0.0.1:https->10.0.0.9:51324", None),
        ("unix", "->0x12", None),
        ("IPv4", "", None),
    ],
)
def test_connections(kind: str, name: str, ends: Optional[Tuple[str, int, str]]) -> None:
    one = darwin_processes.connection(darwin_processes.OpenFile(1, "caddy", kind, name))
    seen = one and (str(one.address), one.port, str(one.peer))
    assert seen == ends
