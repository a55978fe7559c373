# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The firewall of a Mac against the emulated pfctl and launchd: no Mac runs here, and no packet is
filtered.

The functions run in this process; only the folders are those of the emulated Mac.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from mac.harness import EmulatedMac
from on_mac import at_once, redirect

from ansible_collections.tether.fleet.plugins.module_utils import (
    firewall_listeners,
    firewall_options,
    pf,
    pf_firewall,
    pf_rules,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal

SESSION = "10.9.9.9 50000 10.9.0.1 22"
PLIST = "/Library/LaunchDaemons/tether-firewall.plist"


class Host:
    """Runs the firewall's functions on an emulated Mac."""

    def __init__(self, mac: EmulatedMac) -> None:
        self.mac = mac

    def options(self, **keys: Any) -> dict[str, Any]:
        given = {"ingress_sources": ["10.0.0.0/8"], "ssh_connection": SESSION, **keys}
        checked = ArgumentSpecValidator(firewall_options.ARGUMENT_SPEC).validate(given)
        assert not checked.error_messages
        return dict(checked.validated_parameters)

    def plan(self, **keys: Any) -> Plan:
        desired = self.options(**keys)
        return pf_firewall.plan(desired, pf_firewall.observe(desired))

    def run(self, **keys: Any) -> list[str]:
        """One run: its steps. Another one, and a check, then find nothing."""
        made = self.plan(**keys)
        if made.steps:
            pf_firewall.apply(made)
        assert [step.words() for step in self.plan(**keys).steps] == []
        return [step.words() for step in made.steps]

    def rules(self) -> list[str]:
        return self.mac.run("pfctl", "-a", "com.apple/tether", "-s", "rules").stdout.splitlines()

    def tokens(self) -> set[str]:
        return pf.tokens(self.mac.run("pfctl", "-s", "References").stdout)

    def enabled(self) -> bool:
        return self.mac.run("pfctl", "-s", "info").stdout.startswith("Status: Enabled")

    def token(self) -> str:
        return Path(pf_firewall.TOKEN).read_text().strip()

    def wait_for_boot(self) -> None:
        """Until the daemon that loads the rules at boot has ended well."""
        target = "system/tether-firewall"
        self.mac.wait(
            lambda: self.mac.field(target, "last exit code") == "0", "it loaded the rules"
        )


@pytest.fixture
def host(own_mac: EmulatedMac, monkeypatch: pytest.MonkeyPatch) -> Host:
    places = (
        (pf, "PFCTL", "/sbin/pfctl"),
        (pf_firewall, "RULES", "/etc/tether/firewall.pf"),
        (pf_firewall, "SCRIPT", "/etc/tether/firewall-load.sh"),
        (pf_firewall, "TOKEN", "/var/lib/tether/pf-token"),
        (pf_firewall, "LOCK", "/var/run/tether/firewall.lock"),
    )
    redirect(own_mac, monkeypatch, places)
    # Of this machine, which is none of these tests' business.
    monkeypatch.setattr(firewall_listeners, "observe", lambda known: [])
    return Host(own_mac)


FIRST = [
    "create file {}/etc/tether/firewall.pf",
    "create file {}/etc/tether/firewall-load.sh",
    "create plist {}" + PLIST,
    "create log {}/var/log/tether/tether-firewall.log",
    "start process tether-firewall",
    "load anchor com.apple/tether",
    "enable filter pf",
]


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"policy": "guard"},
        {
            "ingress_sources": ["10.0.0.0/8", "192.0.2.7", "fd00::/8"],
            "open_ports": [
                {"port": 2222},
                {"port": 53, "proto": "udp", "sources": ["10.0.0.0/9", "10.128.0.0/9"]},
            ],
            "loopback_ports": [{"port": 8081, "accounts": ["nobody"], "server": "daemon"}],
            "service_ports": [{"port": 8001, "sources": ["10.1.0.0/16"]}, {"port": 8002}],
        },
        # As many as pfctl would put into a table of its own.
        {"ingress_sources": [f"10.{number}.0.0/16" for number in range(0, 20, 2)]},
    ],
)
def test_rules_are_loaded_once_and_counted(host: Host, keys: dict[str, Any]) -> None:
    """What pfctl shows of the anchor is what it makes of the text; pf is enabled by our token."""
    before = host.mac.place("/etc/pf.conf").read_text()
    assert host.run(**keys) == [step.format(host.mac.root) for step in FIRST]
    assert host.rules() == pf.meaning(Path(pf_firewall.RULES).read_text())
    assert (host.enabled(), host.tokens()) == (True, {host.token()})
    host.mac.python("from mac import pf_state; assert pf_state.evaluated('com.apple/tether')")
    # Neither macOS's own files nor what others loaded.
    assert host.mac.place("/etc/pf.conf").read_text() == before
    assert host.mac.offences() == []
    modes = {
        path: stat.S_IMODE(os.stat(path).st_mode)
        for path in (pf_firewall.RULES, pf_firewall.SCRIPT, pf_firewall.TOKEN)
    }
    assert list(modes.values()) == [0o600, 0o700, 0o600]


def test_a_check_changes_nothing_and_says_what_the_run_does(host: Host) -> None:
    made = host.plan()
    assert [step.words() for step in made.steps] == [s.format(host.mac.root) for s in FIRST]
    assert (host.rules(), host.enabled()) == ([], False)
    assert not Path(pf_firewall.RULES).exists()
    shown = next(step for step in made.steps if step.kind == "anchor").diff()
    # Ports by name, as pfctl has them: what a person will see.
    assert "port = tungsten-https flags S/SA no state" in shown["after"]


def test_one_change_loads_the_rules_and_keeps_the_token(host: Host) -> None:
    host.run()
    token = host.token()
    assert host.run(open_ports=[{"port": 22}, {"port": 9100}]) == [
        f"update file {host.mac.root}/etc/tether/firewall.pf",
        f"update plist {host.mac.root}{PLIST}",
        "restart process tether-firewall",
        "load anchor com.apple/tether",
    ]
    assert any("port = 9100" in rule for rule in host.rules())
    assert host.tokens() == {token}


def test_after_a_boot_the_rules_are_there_before_any_run(host: Host) -> None:
    """Facts: neither tokens nor anchors outlive a boot. The token that is on disk then is stale,
    and another one takes its place."""
    host.run()
    rules, stale = host.rules(), host.token()
    host.mac.reboot()
    host.wait_for_boot()
    assert host.rules() == rules
    assert host.enabled()
    assert host.token() != stale
    assert host.tokens() == {host.token()}
    assert host.plan().steps == []


def test_a_boot_in_which_the_daemon_did_not_run(host: Host) -> None:
    """The next run finds the token stale, the filter off and the anchor empty."""
    host.run()
    host.mac.place(PLIST).unlink()
    host.mac.reboot()
    assert host.run() == [
        f"create plist {host.mac.root}{PLIST}",
        "start process tether-firewall",
        "load anchor com.apple/tether",
        "enable filter pf",
    ]
    assert host.tokens() == {host.token()}


def test_an_anchor_that_another_program_flushed(host: Host) -> None:
    """The files are as they were: only the live rules tell it."""
    host.run()
    rules = host.rules()
    host.mac.run("pfctl", "-a", "com.apple/tether", "-F", "rules")
    made = host.plan()
    assert [step.words() for step in made.steps] == ["load anchor com.apple/tether"]
    assert made.steps[0].diff()["before"] == ""
    assert host.run() == ["load anchor com.apple/tether"]
    assert host.rules() == rules
    assert host.mac.offences() == []


def test_a_rule_that_another_program_added(host: Host) -> None:
    host.run()
    text = "pass in quick all\n" + Path(pf_firewall.RULES).read_text().partition("reassemble\n")[2]
    host.mac.run("pfctl", "-a", "com.apple/tether", "-f", "-", stdin=text)
    assert host.run() == ["load anchor com.apple/tether"]
    assert "pass in quick all flags S/SA keep state" not in host.rules()


def test_a_filter_that_another_program_ended(host: Host) -> None:
    """Measured: pfctl -d ends all tokens, whoever holds them; -e alone brings none back."""
    host.run()
    stale = host.token()
    host.mac.run("pfctl", "-d")
    host.mac.run("pfctl", "-e")
    assert (host.enabled(), host.tokens()) == (True, set())
    assert host.run() == ["enable filter pf"]
    assert host.tokens() == {host.token()} != {stale}


def test_a_main_ruleset_without_anchors_is_refused(host: Host) -> None:
    """Measured: after pfctl -F all every rule of ours is there and none is looked at."""
    host.run()
    host.mac.run("pfctl", "-F", "all")
    assert host.rules()
    with pytest.raises(Refusal, match="no rule of ours is looked at"):
        host.plan(foreign="ignore")
    host.mac.reboot()
    host.wait_for_boot()
    assert host.plan().steps == []


def test_a_filter_that_another_program_loads_meanwhile(host: Host) -> None:
    """At boot nobody would run the script a second time."""
    host.run()
    rules = host.rules()
    host.mac.run("pfctl", "-a", "com.apple/tether", "-F", "rules")
    host.mac.python("from mac import pf_state\nwith pf_state.changed() as s: s['busy'] = 2")
    assert host.mac.rc("pfctl", "-a", "com.apple/other", "-f", "/dev/null") == 1
    assert host.run() == ["load anchor com.apple/tether"]
    assert host.rules() == rules


def test_an_update_of_macos_takes_nothing_away(host: Host) -> None:
    """Fact: updates bring their own /etc/pf.conf. Our anchor is in no file of macOS."""
    host.mac.place("/etc/pf.conf").write_text(
        host.mac.place("/etc/pf.conf").read_text() + 'anchor "somebody"\n'
    )
    host.run()
    rules = host.rules()
    host.mac.python("from mac import machine; machine.update('15.7', '24G222')")
    host.mac.reboot()
    host.wait_for_boot()
    assert host.rules() == rules
    assert host.plan().steps == []


def test_two_runs_at_once_take_one_token(host: Host) -> None:
    plans = [host.plan(), host.plan()]
    assert at_once(pf_firewall.apply, plans) == []
    assert host.tokens() == {host.token()}
    assert host.plan().steps == []


def test_a_text_that_pfctl_refuses_changes_nothing(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.run()
    rules = host.rules()
    render = pf_rules.render
    monkeypatch.setattr(pf_rules, "render", lambda *words: render(*words) + "nonsense\n")
    made = host.plan()
    assert made.steps
    with pytest.raises(Refusal, match=r"tether -nf -: found status 1: stdin:\d+: syntax error"):
        pf_firewall.apply(made)
    assert host.rules() == rules
    assert "nonsense" not in Path(pf_firewall.RULES).read_text()


def test_interfaces_without_a_filter(host: Host) -> None:
    """pf.conf(5): nothing is filtered there, whatever the rules say."""
    skip = "from mac import pf_state\nwith pf_state.changed() as state: state['skipped'] = {!r}"
    host.mac.python(skip.format(["lo0"]))
    assert host.plan().steps
    ports = [{"port": 8081, "accounts": ["nobody"]}]
    with pytest.raises(Refusal, match="set skip on lo0"):
        host.plan(loopback_ports=ports)
    host.mac.python(skip.format(["en0"]))
    with pytest.raises(Refusal, match="set skip on en0"):
        host.plan()


def test_nothing_is_left_of_it(host: Host) -> None:
    """Others' tokens keep the filter enabled."""
    host.run()
    other = host.mac.run("pfctl", "-E").stderr.split("Token : ")[1].strip()
    assert host.run(state="absent") == [
        "stop process tether-firewall",
        f"remove plist {host.mac.root}{PLIST}",
        "remove anchor com.apple/tether",
        "release filter pf",
        f"remove file {host.mac.root}/var/lib/tether/pf-token",
        f"remove file {host.mac.root}/etc/tether/firewall.pf",
        f"remove file {host.mac.root}/etc/tether/firewall-load.sh",
    ]
    assert (host.rules(), host.tokens(), host.enabled()) == ([], {other}, True)
    host.mac.reboot()
    assert (host.rules(), host.enabled()) == ([], False)
    assert host.mac.offences() == []


def test_a_stale_token_is_given_back_to_nobody(host: Host) -> None:
    host.run()
    host.mac.place(PLIST).unlink()
    host.mac.reboot()
    assert "release filter pf" not in host.run(state="absent")
    assert not Path(pf_firewall.TOKEN).exists()


def test_a_link_in_the_tokens_place_is_not_followed(host: Host, tmp_path: Path) -> None:
    """The script replaces the file by rename: what a link points to stays as it is."""
    precious = tmp_path / "precious"
    precious.write_text("precious\n")
    os.makedirs(os.path.dirname(pf_firewall.TOKEN))
    os.symlink(precious, pf_firewall.TOKEN)
    host.run()
    assert precious.read_text() == "precious\n"
    assert not Path(pf_firewall.TOKEN).is_symlink()
