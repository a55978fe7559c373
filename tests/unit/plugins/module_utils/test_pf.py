# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import subprocess

import pytest

from ansible_collections.tether.fleet.plugins.module_utils import foreign_pf, pf
from ansible_collections.tether.fleet.plugins.module_utils.daemon import commands
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

NOISE = "No ALTQ support in kernel\nALTQ related functions disabled\n"
# Of macOS 26, as published.
MAIN = ['scrub-anchor "com.apple/*" all fragment reassemble', 'anchor "com.apple/*" all']
REFERENCES = """\
TOKENS:
PID      Process Name                 TOKEN                    TIMESTAMP
4063     pfctl                        13971906727590307623     0 days 00:00:00
99999    a 123 name                   11529317103429473721     12 days 01:02:03
"""
NOTHING_HELD = "No pf starter references held\n"


@pytest.fixture
def pfctl(monkeypatch):
    """pfctl with fixed answers: ``(status, out, error)`` by the thing that is shown."""
    answers = {
        "info": (0, "Status: Enabled for 0 days 00:01:02          Debug: Urgent\n", NOISE),
        "References": (0, REFERENCES, NOISE),
        "rules": (0, "\n".join(MAIN) + "\n", NOISE),
        "Interfaces": (0, "en0\n\tCleared: x\nlo0 (skip)\n", NOISE),
    }

    def run(argv, timeout, text=""):
        assert argv[0] == "/sbin/pfctl"
        if argv[1:3] == ["-a", "com.apple/tether"]:
            return subprocess.CompletedProcess(argv, 0, "", "pfctl: DIOCGETRULES: Invalid argument")
        return subprocess.CompletedProcess(argv, *answers[argv[-1]])

    monkeypatch.setattr(commands, "run", run)
    return answers


def test_what_it_does_now(pfctl):
    assert pf.look() == pf.State(
        enabled=True,
        tokens={"13971906727590307623", "11529317103429473721"},
        main=MAIN,
        rules=[],
        skipped=["lo0"],
    )


@pytest.mark.parametrize(
    "answer",
    [(0, NOTHING_HELD, NOISE), (1, "", "pfctl: no pf starter references held\n")],
)
def test_no_token_is_no_failure(pfctl, answer):
    pfctl["References"] = answer
    pfctl["info"] = (0, "Status: Disabled                  Debug: Urgent\n", NOISE)
    state = pf.look()
    assert (state.enabled, state.tokens) == (False, set())


def test_a_failure_is_told_without_the_noise(pfctl):
    pfctl["info"] = (1, "", NOISE + "pfctl: /dev/pf: Permission denied\n")
    with pytest.raises(Refusal) as caught:
        pf.look()
    assert "found status 1: pfctl: /dev/pf: Permission denied;" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "yes"),
    [("13971906727590307623", True), ("", False), ("123", False), ("1" * 21, False), ("x", False)],
)
def test_tokens_are_long_numbers(text, yes):
    """Else a process's number could pass for one."""
    assert pf.is_token(text) is yes


@pytest.mark.parametrize(
    ("main", "skipped", "keys", "message"),
    [
        (MAIN, [], {}, ""),
        (MAIN, ["lo0"], {}, ""),
        (MAIN, ["lo0"], {"loopback_ports": [{"port": 1}]}, "set skip on lo0"),
        (MAIN, ["en0"], {"foreign": "ignore"}, "set skip on en0"),
        (MAIN[:1], [], {"foreign": "ignore"}, 'without anchor "com.apple/*": a flush'),
        (MAIN[1:], [], {}, 'without scrub-anchor "com.apple/*": a flush'),
        ([], [], {}, 'without scrub-anchor "com.apple/*" and anchor "com.apple/*"'),
        (["block drop in quick all", *MAIN], [], {}, "before ours, block drop in quick all: it"),
        (["block drop in quick all", *MAIN], [], {"foreign": "ignore"}, ""),
        ([*MAIN, "block drop in quick all"], [], {}, ""),
    ],
)
def test_what_keeps_our_rules_from_counting(main, skipped, keys, message):
    desired = {"ingress_port": 9443, "foreign": "refuse", "loopback_ports": [], **keys}
    state = pf.State(main=main, skipped=skipped)
    if not message:
        return foreign_pf.refuse(desired, state)
    with pytest.raises(Refusal) as caught:
        foreign_pf.refuse(desired, state)
    assert message in str(caught.value)
    return None


@pytest.mark.parametrize(
    ("rule", "blocks"),
    [
        ("block drop quick all", True),
        ("block drop in quick on en0 proto tcp all", True),
        ("block drop in quick inet from 10.0.0.0/8 to any", True),
        ("block drop in quick proto tcp from any to any port = 9443", True),
        ("block drop in quick proto tcp from any to any port 9000:9999", True),
        ("block drop in quick proto tcp from any to any port = 22", False),
        ("block drop in quick proto tcp from any port = 9443 to any port = ssh", False),
        ("block drop in quick proto udp all", False),
        ("block drop in all", False),
        ("block drop out quick all", False),
        ("pass in quick all no state", False),
    ],
)
def test_rules_of_others_that_end_the_look(rule, blocks):
    assert foreign_pf.blocking([rule, *MAIN], 9443) == ([rule] if blocks else [])


def test_a_port_that_has_a_name():
    """pfctl shows it as /etc/services has it."""
    rule = "block drop in quick proto tcp from any to any port = https"
    assert foreign_pf.blocking([rule, *MAIN], 443) == [rule]
    assert foreign_pf.blocking([rule, *MAIN], 444) == []
