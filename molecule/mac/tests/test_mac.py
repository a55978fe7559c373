# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A Mac beside a Linux host, as its users and its owner see it.

The Mac is emulated (docs/testing.md): its launchd, its accounts and its tools answer as those of a
real one are known to. Its engine and its ingress are Linux programs.
"""

from __future__ import annotations

import ipaddress
import json
import os
import plistlib
import re
import signal
import threading
import time
from contextlib import contextmanager
from typing import Any, Iterator

import pytest
from bed import ROOT, bed, client, declared_models, playbook, site, ssh, streamed, token
from going_on import Requests
from mac.pf_packets import Packet, verdict

FIREWALL = "/usr/libexec/ApplicationFirewall/socketfilterfw"
RULES = "pfctl -a com.apple/tether -s rules"
TINY, SMALL = "http://tiny.team-a.svc", "http://small.team-b.svc"
BODY = json.dumps({"model": "x", "max_tokens": 4, "messages": [{"role": "user", "content": "hi"}]})
# What stands in for macOS on the emulated Mac, for what no tool of it sets.
EMULATED = "PYTHONPATH=/usr/lib/emulated-mac EMULATED_MAC_ROOT=/ python3"
LABELS = ("tether-ingress", "tether-engine-team-a.tiny", "tether-engine-team-b.small")


def chat(service: str, attempts: int = 1) -> list[str]:
    """Statuses of that many requests from the client pod."""
    ask = (
        f"for n in $(seq {attempts}); do curl -sS -o /dev/null -w '%{{http_code}}\\n' -m 40"
        f" {service}/v1/chat/completions -H 'Content-Type: application/json' -d '{BODY}'; done"
    )
    return client(ask).stdout.split()


def mac(command: str, **options: Any) -> str:
    return str(ssh("mac1", command, **options).stdout)


def pid(label: str) -> str:
    """The process of a job, as launchctl shows it; nothing without one."""
    lines = mac(f"launchctl print system/{label}").splitlines()
    return next((line.split()[-1] for line in lines if line.startswith("\tpid = ")), "")


@contextmanager
def without(host: str, stop: str, start: str) -> Iterator[None]:
    ssh(host, stop)
    try:
        yield
    finally:
        ssh(host, start)


def test_both_systems_serve_one_model() -> None:
    """One of the two is stopped, then the other: the Service's users notice nothing."""
    assert set(chat(TINY, 6)) == {"200"}
    plist = "/Library/LaunchDaemons/tether-ingress.plist"
    with without(
        "mac1",
        "launchctl bootout system/tether-ingress",
        "until launchctl bootstrap system %s; do sleep 1; done" % plist,
    ):
        assert set(chat(TINY, 6)) == {"200"}
    assert set(chat(SMALL, 2)) == {"200"}  # it waits for the Mac
    with without("gpu1", "systemctl stop tether-ingress", "systemctl start tether-ingress"):
        assert set(chat(TINY, 6)) == {"200"}


def test_streams() -> None:
    events = streamed(SMALL, json.loads(BODY))
    assert events[-1] == "[DONE]"
    assert len(events) >= 3


def test_engines_are_on_sockets_that_only_the_ingress_reaches() -> None:
    directory = "/var/lib/tether/run/engines/team-a.tiny"
    said = mac(f"ls -ld {directory} {directory}/engine.sock; lsof -w -n -P +c 0 -F pcftn -U")
    folder, socket = said.splitlines()[:2]
    assert folder.split()[:4] == [
        "drwx--s---",
        folder.split()[1],
        "tether-team-a",
        "tether-ingress",
    ]
    assert socket.split()[0] == "srwxrwx---"
    assert f"n{directory}/engine.sock" in said
    # Nobody but the ingress's own port.
    for label in LABELS[1:]:
        assert pid(label)
    reached = ssh("mac1", "lsof -w -n -P +c 0 -F pcftn -iTCP:9443 -sTCP:LISTEN").stdout
    assert f"p{pid('tether-ingress')}" in reached.split()


@pytest.mark.parametrize("label", LABELS)
def test_property_lists(label: str) -> None:
    """Root's, for everybody to read, and without a secret: M1, M2."""
    path = f"/Library/LaunchDaemons/{label}.plist"
    mode, owner, text = mac(f"stat -c '%a' {path}; stat -c '%U' {path}; cat {path}").split("\n", 2)
    assert (mode, owner) == ("644", "root")
    content = plistlib.loads(text.encode())
    assert content["Label"] == label
    assert content["UserName"].startswith("tether-")
    assert content["ProcessType"] == "Interactive"
    shown = text + mac(f"launchctl print system/{label}")
    for namespace in ("team-a", "team-b"):
        assert token(namespace) not in shown


@pytest.mark.parametrize(
    ("port", "source", "expected"),
    [
        (9443, "cluster", "pass"),
        (9443, "pods", "pass"),
        (9443, "gpu1", "block drop"),
        (22, "gpu1", "pass"),
        (8081, "cluster", "block drop"),
    ],
)
def test_who_reaches_what_by_the_rules_that_are_loaded(
    port: int, source: str, expected: str
) -> None:
    """The emulated pf filters nothing: what a Mac would do is read from what it has loaded. That a
    port is closed to a neighbour is not shown here; it is on the Linux host beside."""
    known = json.loads(bed("status", "--json").stdout)
    cluster, pods = (ipaddress.ip_network(known[key]) for key in ("network", "pods"))
    address = {"cluster": cluster[1], "pods": pods[7], "gpu1": cluster[11]}[source]
    packet = Packet(port=port, source=str(address))
    assert verdict(mac(RULES).splitlines(), packet) == expected
    assert "Status: Enabled" in mac("pfctl -s info")


def test_what_another_program_does_to_pf_is_found_and_mended() -> None:
    rules, token = mac(RULES), mac("cat /var/lib/tether/pf-token")
    for offence, mended in (
        ("pfctl -a com.apple/tether -F rules", "1 anchor"),
        ("pfctl -X $(cat /var/lib/tether/pf-token)", "1 filter"),
    ):
        mac(offence)
        done = site("--limit", "mac1")
        assert done.returncode == 0, done.stdout
        assert mended in done.stdout
        assert mac(RULES) == rules
        assert mac("cat /var/lib/tether/pf-token").strip() in mac("pfctl -s References")
    assert mac("cat /var/lib/tether/pf-token") != token


def test_the_application_firewall_lets_the_ingress_in() -> None:
    """It is off on a new Mac, and nothing is done there. Somebody switches it on."""
    assert "State = 0" in mac(f"{FIREWALL} --getglobalstate")
    mac(f"{FIREWALL} --setglobalstate on")
    done = site("--limit", "mac1")
    assert done.returncode == 0, done.stdout
    listed = mac(f"{FIREWALL} --listapps")
    program = mac("realpath /opt/tether/caddy/current/caddy").strip()
    assert f" {program} \n" in listed
    blocks = "import sys; sys.path.insert(0, '/usr/lib/emulated-mac'); from mac import app_firewall"
    mac(f"/usr/bin/python3 -c \"{blocks}; sys.exit(app_firewall.blocks('{program}'))\"")
    again = site("--limit", "mac1")
    assert "nothing changed, nothing failed" in again.stdout


def test_nothing_was_done_that_a_guest_on_somebodys_mac_never_does() -> None:
    """Such as pfctl -d, or flushing what others loaded."""
    assert mac("cat /var/db/emulated-mac/offences.jsonl 2>/dev/null; true") == ""


def test_accounts_are_hidden_and_nobody_logs_in_to_them() -> None:
    for name in ("tether-ingress", "tether-team-a", "tether-team-b"):
        record = dict(
            line.split(": ", 1)
            for line in mac(f"dscl . -read /Users/{name}").splitlines()
            if ": " in line
        )
        assert 400 < int(record["UniqueID"]) < 500
        assert record["UserShell"] == "/usr/bin/false"
        assert record["IsHidden"] == "1"


def power() -> dict[str, str]:
    rows = [line.split() for line in mac("pmset -g custom").splitlines()[1:]]
    return {row[0]: row[1] for row in rows}


def test_it_never_sleeps_and_its_gpu_has_its_memory() -> None:
    wanted = {"sleep": "0", "disksleep": "0", "autorestart": "1"}
    assert wanted.items() <= power().items()
    assert mac("sysctl -n iogpu.wired_limit_mb") == "16000\n"
    mac("pmset -a sleep 7; sysctl iogpu.wired_limit_mb=9000")
    found = site("--check", "--diff")
    assert "-sleep 7\n+sleep 0\n" in found.stdout
    assert "-iogpu.wired_limit_mb=9000\n+iogpu.wired_limit_mb=16000\n" in found.stdout
    assert site().returncode == 0
    assert wanted.items() <= power().items()
    assert mac("sysctl -n iogpu.wired_limit_mb") == "16000\n"


def test_one_change_restarts_one_engine_drained() -> None:
    models = declared_models()
    next(model for model in models if model["name"] == "small")["args"] = ["--ctx-size", "500"]
    before = {label: pid(label) for label in LABELS}
    done = site("-e", json.dumps({"fleet_models": models}))
    assert done.returncode == 0, done.stdout
    assert "restarted tether-engine-team-b.small" in done.stdout
    after = {label: pid(label) for label in LABELS}
    assert [label for label in LABELS if before[label] != after[label]] == [LABELS[2]]
    assert site().returncode == 0


def test_all_comes_back_after_a_power_cut() -> None:
    """Sockets of the former life are still there then: macOS keeps /var/lib over a boot."""
    before = json.loads(bed("status", "--json").stdout)["hosts"]["mac1"]["pid"]
    os.kill(before, signal.SIGKILL)
    bed("up", "--hosts", "mac1,gpu1", timeout=300)
    end = time.monotonic() + 120
    while not all(pid(label) for label in LABELS):
        assert time.monotonic() < end
        time.sleep(1)
    assert set(chat(SMALL, 2)) == {"200"}
    # Neither rules nor tokens outlive a boot: the Mac's own daemon has loaded both.
    assert "Status: Enabled" in mac("pfctl -s info")
    done = site()
    assert done.returncode == 0, done.stdout
    assert "nothing changed, nothing failed" in done.stdout


@contextmanager
def power_button() -> Iterator[None]:
    """Starts a machine of the bed again that has restarted itself: to the bed it has ended."""
    done = threading.Event()

    def press() -> None:
        while not done.wait(0.5):
            state = json.loads(bed("status", "--json", check=False).stdout)
            if not all(host["pid"] for host in state["hosts"].values()):
                bed("up", "--hosts", "mac1,gpu1", timeout=300)

    beside = threading.Thread(target=press)
    beside.start()
    try:
        yield
    finally:
        done.set()
        beside.join()


def test_both_machines_are_restarted_and_nobody_notices() -> None:
    boot = "sysctl -n kern.boottime"
    before = mac(boot)
    with power_button(), Requests() as requests:
        requests.go_on()
        found = playbook("reboot", "-e", "reboot_hosts=mac1,gpu1", "-e", "reboot_timeout=120")
        assert found.returncode == 0, found.stdout
        requests.go_on()
    assert set(requests.statuses) == {"200"}
    assert mac(boot) != before
    # What the boot forgot is set again.
    assert mac("sysctl -n iogpu.wired_limit_mb") == "16000\n"
    assert re.search(r"^gpu1, mac1 +restarted 1 machine$", found.stdout, re.MULTILINE)
    assert "nothing changed, nothing failed" in site().stdout


def test_what_does_not_come_back_is_told_and_ends_the_run() -> None:
    """An engine runs whose model is gone: the other machine is left alone."""
    label = "tether-engine-team-b.small"
    uptime = ssh("gpu1", "systemctl show --property=UserspaceTimestampMonotonic").stdout
    mac("rm -r /var/lib/tether/models/team-b/*")
    with power_button():
        found = playbook("reboot", "-e", "reboot_hosts=fleet_hosts", "-e", "reboot_timeout=20")
    told = " ".join(found.stdout.split())
    assert found.returncode != 0
    assert re.search(rf"host mac1: found, 20 s after its restart, [^;]*{label}", told), told
    assert "gpu1: nothing is restarted there, because mac1 failed." in told
    assert ssh("gpu1", "systemctl show --property=UserspaceTimestampMonotonic").stdout == uptime
    assert set(chat(TINY, 4)) == {"200"}
    assert site().returncode == 0
    assert set(chat(SMALL, 2)) == {"200"}


def test_filevault_is_told_before_any_machine_is_restarted() -> None:
    before = mac("sysctl -n kern.boottime")
    mac(f"{EMULATED} -c 'from mac import filevault; filevault.turn(True)'")
    try:
        found = playbook("reboot", "-e", "reboot_hosts=fleet_hosts")
        assert found.returncode != 0
        assert "mac1: found FileVault on; expected it off, or" in " ".join(found.stdout.split())
        assert mac("sysctl -n kern.boottime") == before
        password = "not & a <word>"
        who = json.dumps({"reboot_filevault_user": "ops", "reboot_filevault_password": password})
        with power_button():
            found = playbook("reboot", "-e", "reboot_hosts=mac1", "-e", who, "-vvv")
        assert found.returncode == 0, found.stdout
        assert password not in found.stdout + found.stderr
        assert mac("sysctl -n kern.boottime") != before
    finally:
        mac(f"{EMULATED} -c 'from mac import filevault; filevault.turn(False)'")
    assert set(chat(SMALL, 2)) == {"200"}


def test_a_mac_that_the_inventory_calls_linux() -> None:
    done = site("-e", "fleet_system=linux", "--check")
    assert done.returncode != 0
    assert "found Darwin; expected Linux, as the inventory says" in " ".join(done.stdout.split())


def test_z_removal_by_hand_leaves_nothing() -> None:
    """The script of docs/remove.md, the last thing that is done to the Mac."""
    script = (ROOT / "docs" / "remove.md").read_text().split("```sh\n")[2].split("```")[0]
    assert "dscl" in script
    mac(script, timeout=180)
    assert mac(RULES) == ""
    assert "/opt/tether" not in mac(f"{FIREWALL} --listapps")
    assert "No pf starter references held" in mac("pfctl -s References")
    left = mac(
        "ls -d /opt/tether /etc/tether /var/lib/tether /var/log/tether /var/run/tether"
        " /Library/LaunchDaemons/tether-* 2>/dev/null; dscl . -list /Users | grep ^tether-;"
        " dscl . -list /Groups | grep ^tether-; launchctl list | grep tether-;"
        " launchctl print-disabled system | grep 'tether-.*disabled'; true"
    )
    assert left == ""
    # Its models' other host goes on.
    assert set(chat(TINY, 2)) == {"200"}
