# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The application firewall's entries against the emulated socketfilterfw: no Mac runs here.

`app_firewall.blocks` says whether a Mac would keep other hosts from a program.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from mac.harness import EmulatedMac
from on_mac import at_once

from ansible_collections.tether.fleet.plugins.module_utils import application_firewall
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal


class Host:
    """Runs the component's functions on an emulated Mac."""

    def __init__(self, mac: EmulatedMac) -> None:
        self.mac = mac

    def install(self, version: str, text: str = "") -> str:
        """A version of the ingress; its path."""
        path = self.mac.place(f"/opt/tether/caddy/{version}/caddy")
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name("fresh")
        fresh.write_text(f"#!/bin/sh\n# {version} {text}\n")
        fresh.chmod(0o755)
        os.replace(fresh, path)
        return str(path)

    def turn(self, what: str, value: str = "on") -> None:
        assert self.mac.rc("socketfilterfw", what, value) == 0

    def plan(self, *programs: str) -> Plan:
        desired = {"programs": list(programs)}
        return application_firewall.plan(desired, application_firewall.observe(desired))

    def run(self, *programs: str) -> list[tuple[str, str]]:
        """One run: its steps. Another one then finds nothing."""
        made = self.plan(*programs)
        if made.steps:
            application_firewall.apply(made)
        assert self.plan(*programs).steps == []
        return [(step.action, step.name) for step in made.steps]

    def blocks(self, path: str) -> bool:
        code = f"from mac import app_firewall; import sys; sys.exit(app_firewall.blocks({path!r}))"
        try:
            self.mac.python(code)
        except subprocess.CalledProcessError:
            return True
        return False


@pytest.fixture
def host(own_mac: EmulatedMac, monkeypatch: pytest.MonkeyPatch) -> Host:
    root = str(own_mac.root)
    for name, path in (
        ("PROGRAM", "/usr/libexec/ApplicationFirewall/socketfilterfw"),
        ("RECORD", "/var/lib/tether/application-firewall.json"),
        ("LOCK", "/var/run/tether/application-firewall.lock"),
        ("OURS", "/opt/tether/"),
    ):
        monkeypatch.setattr(application_firewall, name, root + path)
    own_mac.place("/var/lib/tether").mkdir(parents=True)
    return Host(own_mac)


@pytest.mark.parametrize("version", ["14.7", "15.6", "27.0"])
def test_the_ingress_is_let_in(host: Host, version: str) -> None:
    """The list is written in two ways, by the version of macOS (output published)."""
    host.mac.python(f"from mac import machine; machine.change(version={version!r})")
    host.turn("--setglobalstate")
    host.turn("--setstealthmode")
    path = host.install("2.11.7")
    assert host.blocks(path)
    assert host.run(path) == [("add", path)]
    assert not host.blocks(path)


def test_a_firewall_that_is_off_is_left_alone(host: Host) -> None:
    path = host.install("2.11.7")
    assert host.run(path) == []
    assert path not in host.mac.run("socketfilterfw", "--listapps").stdout
    assert host.plan(path).facts == {"state": "off"}
    # Somebody switches it on: the next run sees it.
    host.turn("--setglobalstate")
    assert host.run(path) == [("add", path)]


def test_an_upgrade_has_an_entry_of_its_own(host: Host) -> None:
    host.turn("--setglobalstate")
    old, others = host.install("2.11.7"), "/usr/bin/python3"
    host.mac.run("socketfilterfw", "--add", others)
    host.run(old)
    new = host.install("2.12.0")
    assert host.blocks(new)
    assert host.run(new) == [("remove", old), ("add", new)]
    assert not host.blocks(new)
    assert os.path.realpath(others) in host.mac.run("socketfilterfw", "--listapps").stdout


def test_a_program_that_was_replaced_is_let_in_anew(host: Host) -> None:
    """Issues say: another file at a listed path, or one that was signed ad hoc anew, is blocked
    without a word; the list says "Allow" as before."""
    host.turn("--setglobalstate")
    path = host.install("2.11.7")
    host.run(path)
    host.install("2.11.7", "built anew")
    assert host.blocks(path)
    assert "(Allow incoming" in host.mac.run("socketfilterfw", "--listapps").stdout
    assert host.run(path) == [("update", path)]
    assert not host.blocks(path)


def test_somebody_blocked_it(host: Host) -> None:
    host.turn("--setglobalstate")
    path = host.install("2.11.7")
    host.run(path)
    host.mac.run("socketfilterfw", "--blockapp", path)
    assert host.run(path) == [("update", path)]
    assert not host.blocks(path)


def test_somebody_took_it_out(host: Host) -> None:
    host.turn("--setglobalstate")
    path = host.install("2.11.7")
    host.run(path)
    host.mac.run("socketfilterfw", "--remove", path)
    assert host.run(path) == [("add", path)]


def test_a_lost_record_costs_one_more_entry(host: Host) -> None:
    """Which file was added is not known then."""
    host.turn("--setglobalstate")
    path = host.install("2.11.7")
    host.run(path)
    Path(application_firewall.RECORD).chmod(0o666)
    assert host.run(path) == [("update", path)]


def test_one_that_blocks_everything(host: Host) -> None:
    host.turn("--setglobalstate")
    host.turn("--setblockall")
    path = host.install("2.11.7")
    with pytest.raises(Refusal, match="it blocks all incoming connections"):
        host.plan(path)


def test_a_managed_mac(host: Host) -> None:
    """Fact: it says that its settings cannot be modified; with which status is not known."""
    host.turn("--setglobalstate")
    host.mac.python("from mac import machine; machine.change(managed=True)")
    path = host.install("2.11.7")
    made = host.plan(path)
    with pytest.raises(Refusal, match="this Mac is managed: its firewall cannot be changed"):
        application_firewall.apply(made)
    assert not Path(application_firewall.RECORD).exists()


def test_a_success_that_changed_nothing_is_not_believed(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fact: without root, --add says that it did and does nothing."""
    host.turn("--setglobalstate")
    path = host.install("2.11.7")
    made = host.plan(path)
    ask = application_firewall._ask
    says_yes = host.mac.run("socketfilterfw", "--add", path, uid=65534)
    assert "added to firewall" in says_yes.stdout

    def without_root(*words: str) -> object:
        return says_yes if words[0] in ("--add", "--unblockapp") else ask(*words)

    monkeypatch.setattr(application_firewall, "_ask", without_root)
    with pytest.raises(Refusal, match=r"it not listed .*said nothing against the change"):
        application_firewall.apply(made)


def test_a_check_before_the_program_is_there(host: Host) -> None:
    host.turn("--setglobalstate")
    path = str(host.mac.place("/opt/tether/caddy/2.11.7/caddy"))
    made = host.plan(path)
    assert [(step.action, step.name) for step in made.steps] == [("add", path)]
    with pytest.raises(Refusal, match=r"no program .*/caddy; expected it to be installed"):
        application_firewall.apply(made)
    host.install("2.11.7")
    assert host.run(path) == [("add", path)]


def test_two_runs_at_once(host: Host) -> None:
    host.turn("--setglobalstate")
    path = host.install("2.11.7")
    plans = [host.plan(path), host.plan(path)]
    assert at_once(application_firewall.apply, plans) == []
    assert host.plan(path).steps == []
    assert not host.blocks(path)


def test_entries_go_with_the_programs(host: Host) -> None:
    host.turn("--setglobalstate")
    path = host.install("2.11.7")
    host.run(path)
    shutil.rmtree(host.mac.place("/opt/tether"))
    assert host.run() == [("remove", path)]
    assert path not in host.mac.run("socketfilterfw", "--listapps").stdout


def test_words_that_nobody_knows(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application_firewall, "PROGRAM", "/bin/echo")
    with pytest.raises(Refusal, match="nothing that can be read from /bin/echo --getglobalstate"):
        host.plan("/opt/tether/x")
