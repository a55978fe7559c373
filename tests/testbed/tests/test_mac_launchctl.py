# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The emulated launchd and launchctl behave as is known of the real ones.

No Mac runs here: each test pins a fact that the emulation must not lose, with the fact's source.
"Doubtful" stands where reports contradict each other; the emulation then does what is harder for
its users.
"""

from __future__ import annotations

import os
import plistlib
import signal
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from mac import calendar_times
from mac.harness import EmulatedMac

NOBODY = 65534
# Ignores SIGTERM, and says when it does.
STUBBORN = 'trap "" TERM; touch {ready}; while :; do sleep 0.1; done'


def stubborn(mac: EmulatedMac, label: str, **keys: Any) -> str:
    """A loaded job whose process ignores SIGTERM."""
    ready = mac.root / f"{label}.ready"
    target = mac.load(label, STUBBORN.format(ready=ready), RunAtLoad=True, **keys)
    mac.wait(ready.exists, "the job ignores SIGTERM")
    return target


def alive(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()


# What a request is answered.


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        ("print system/org.none", 113, 'Could not find service "org.none" in domain for system'),
        ("kickstart system/org.none", 113, "Could not find service"),
        ("kill TERM system/org.none", 113, "Could not find service"),
        ("blame system/org.none", 113, "Could not find service"),
        ("bootout system/org.none", 3, "Boot-out failed: 3: No such process"),
        ("print gui/424242", 112, "Could not find domain for user gui: 424242"),
        ("print gui/424242/org.none", 112, "Could not find domain for user gui: 424242"),
        ("bootstrap user/424242 /x", 112, "Bootstrap failed: 112"),
        ("bootstrap gui/0 /x", 125, "Bootstrap failed: 125: Domain does not support"),
        ("bootout gui/0/org.none", 125, "Boot-out failed: 125: Domain does not support"),
        ("kickstart gui/0/org.none", 125, "125: Domain does not support specified action"),
        ("print not-a-target", 64, "Unrecognized target specifier."),
        ("bootstrap /Library/LaunchDaemons/x.plist", 64, "Usage: launchctl bootstrap"),
        ("bootout --wait system/org.none", 64, "Unrecognized target specifier."),
        ("kickstart org.none", 64, "Unrecognized target specifier."),
        ("kickstart -u system/org.none", 64, "Usage: launchctl kickstart"),
        ("enable org.none", 64, "Unrecognized target specifier."),
        ("bootstrap", 64, "Usage: launchctl bootstrap"),
        ("load /Library/LaunchDaemons/x.plist", 64, "Unrecognized subcommand: load"),
        ("setenv A b", 64, "Unrecognized subcommand: setenv"),
        ("", 64, "Unrecognized subcommand"),
    ],
)
def test_exit_statuses(mac: EmulatedMac, words: str, status: int, says: str) -> None:
    """Measured on macOS 26.5.1: 113, 112, 64 of print. Issues say: 3, 125 over ssh where nobody is
    logged in at the screen, and 64 for `bootout --wait` on macOS 15. Verbs that the emulation lacks
    answer as unknown ones do."""
    done = mac.run("launchctl", *words.split())
    assert done.returncode == status
    assert says in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("bootout system/{label}", 1),
        ("kickstart -k system/{label}", 1),
        ("kill TERM system/{label}", 1),
        ("disable system/{label}", 1),
        ("bootstrap system {path}", 5),
    ],
)
def test_others_than_root_change_nothing_in_the_system_domain(
    mac: EmulatedMac, words: str, status: int
) -> None:
    """launchctl(1): root privileges are required. An issue says: bootstrap answers the catch-all,
    and the advice to try as root."""
    label = f"org.rights.{words.split()[0]}"
    path = mac.daemon(label)
    target = mac.load(label)
    before = mac.printed(target)
    done = mac.run("launchctl", *words.format(label=label, path=path).split(), uid=NOBODY)
    assert done.returncode == status
    assert ("as root for richer errors" in done.stderr) == (status == 5)
    assert mac.printed(target) == before


@pytest.mark.parametrize(
    ("name", "content", "mode", "owner", "status"),
    [
        ("writable by the group", {}, 0o664, 0, 122),
        ("writable by all", {}, 0o646, 0, 122),
        ("another owner", {}, 0o644, NOBODY, 122),
        ("private", {}, 0o600, 0, 0),
        ("no property list", b"<plist><dict>", 0o644, 0, 5),
        ("text", b"hello", 0o644, 0, 5),
        ("no dictionary", plistlib.dumps(["a"]), 0o644, 0, 5),
        ("binary", {"_binary": True}, 0o644, 0, 0),
        ("no label", {"Label": ""}, 0o644, 0, 5),
        ("no program", {"ProgramArguments": []}, 0o644, 0, 5),
        ("argument no text", {"ProgramArguments": ["/bin/sleep", 5]}, 0o644, 0, 5),
        ("unknown key", {"StandardOutFile": "/x"}, 0o644, 0, 5),
        ("unknown KeepAlive", {"KeepAlive": {"PathState": {}}}, 0o644, 0, 5),
        ("boolean as text", {"RunAtLoad": "true"}, 0o644, 0, 5),
        ("boolean as number", {"ThrottleInterval": True}, 0o644, 0, 5),
        ("unknown ProcessType", {"ProcessType": "Fast"}, 0o644, 0, 5),
        ("environment no text", {"EnvironmentVariables": {"A": 1}}, 0o644, 0, 5),
        ("bad Umask", {"Umask": "rw"}, 0o644, 0, 5),
        ("bad calendar", {"StartCalendarInterval": {"Hour": 24}}, 0o644, 0, 5),
    ],
)
def test_which_property_lists_are_taken(
    mac: EmulatedMac, name: str, content: Any, mode: int, owner: int, status: int
) -> None:
    """Issues say: 122 for ownership and permissions, 5 for a bad property list; read bits do not
    matter (measured on 26.5.1). A real launchd ignores unknown keys and wrong types; here they are
    refused, as nobody would notice a mistake."""
    label = f"org.lists.{name.replace(' ', '-')}"
    path = mac.daemon(label)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        kind = plistlib.FMT_BINARY if content.pop("_binary", False) else plistlib.FMT_XML
        path.write_bytes(plistlib.dumps({**plistlib.loads(path.read_bytes()), **content}, fmt=kind))
    path.chmod(mode)
    os.chown(path, owner, 0)
    assert mac.rc("launchctl", "bootstrap", "system", str(path)) == status
    assert bool(mac.printed(f"system/{label}")) == (status == 0)


def test_what_the_emulation_lacks_is_named(mac: EmulatedMac) -> None:
    """A real launchctl would say no more than 5; here a reader finds out at once."""
    path = str(mac.daemon("org.lacking", WatchPaths=["/tmp"]))
    said = mac.run("launchctl", "bootstrap", "system", path).stderr
    assert said.startswith("Bootstrap failed: 5: Input/output error\nemulated Mac: WatchPaths")


def test_a_quarantined_property_list_is_refused(mac: EmulatedMac) -> None:
    """An issue says: 155 for a file with the attribute com.apple.quarantine."""
    path = mac.daemon("org.quarantine")
    os.setxattr(path, "user.com.apple.quarantine", b"0083;0;Safari;")
    done = mac.run("launchctl", "bootstrap", "system", str(path))
    assert done.returncode == 155
    assert "quarantined" in done.stderr
    os.removexattr(path, "user.com.apple.quarantine")
    assert mac.rc("launchctl", "bootstrap", "system", str(path)) == 0


def test_a_missing_property_list(mac: EmulatedMac) -> None:
    """Inferred: the catch-all 5."""
    assert mac.rc("launchctl", "bootstrap", "system", "/nowhere/x.plist") == 5


def test_a_loaded_label_is_refused(mac: EmulatedMac) -> None:
    """Issues say: 5, the catch-all, which says nothing about the reason."""
    mac.load("org.twice")
    path = mac.place("/Library/LaunchDaemons/org.twice.plist")
    done = mac.run("launchctl", "bootstrap", "system", str(path))
    assert (done.returncode, done.stderr) == (5, "Bootstrap failed: 5: Input/output error\n")


# Ending.


def test_bootout_answers_before_the_process_has_ended(mac: EmulatedMac) -> None:
    """Measured on macOS 26.5.1: bootout answers 0 while the process runs; `state = SIGTERMed` is
    not stopped. Issues say: meanwhile bootstrap fails with 37 or 5, a second bootout with 36."""
    target = stubborn(mac, "org.slow", ExitTimeOut=2)
    path = str(mac.place("/Library/LaunchDaemons/org.slow.plist"))
    pid = mac.field(target, "pid")
    assert mac.rc("launchctl", "bootout", target) == 0
    assert mac.field(target, "state") == "SIGTERMed"
    assert mac.field(target, "pid") == pid
    assert alive(pid)
    assert mac.rc("launchctl", "bootstrap", "system", path) == 37
    assert mac.rc("launchctl", "bootstrap", "system", path) == 5
    assert mac.rc("launchctl", "bootout", target) == 36
    assert mac.rc("launchctl", "kickstart", target) == 37
    mac.wait_gone(target)
    assert not alive(pid)
    assert mac.rc("launchctl", "bootstrap", "system", path) == 0


def test_a_process_that_ignores_sigterm_is_killed(mac: EmulatedMac) -> None:
    """launchd.plist(5): SIGKILL when ExitTimeOut is over."""
    target = stubborn(mac, "org.stubborn", ExitTimeOut=1)
    pid = mac.field(target, "pid")
    assert mac.rc("launchctl", "bootout", target) == 0
    mac.wait_gone(target)
    log = mac.place("/var/db/emulated-mac/launchd.log").read_text()
    assert f"org.stubborn: process {pid} ended, wait status {int(signal.SIGKILL)}\n" in log


def test_a_willing_process_is_gone_soon(mac: EmulatedMac) -> None:
    """Only 113 of print means gone (measured: print's 113 on 26.5.1)."""
    target = mac.load("org.willing", RunAtLoad=True)
    mac.wait_field(target, "state", "running")
    assert mac.rc("launchctl", "bootout", target) == 0
    mac.wait_gone(target)


def test_bootout_by_path(mac: EmulatedMac) -> None:
    """launchctl(1): a domain and a property list instead of a service target."""
    target = mac.load("org.bypath")
    path = str(mac.place("/Library/LaunchDaemons/org.bypath.plist"))
    assert mac.rc("launchctl", "bootout", "system", path) == 0
    assert mac.rc("launchctl", "print", target) == 113


def test_what_is_left_of_the_process_group_is_ended(mac: EmulatedMac) -> None:
    """launchd.plist(5), AbandonProcessGroup."""
    child = mac.root / "child"
    command = f"sleep 1000 & echo $! > {child}.new; mv {child}.new {child}; exit 0"
    mac.load("org.group", command, RunAtLoad=True)
    mac.wait(child.exists, "the job started its child")
    pid = child.read_text().strip()
    mac.wait(lambda: not alive(pid), "the child was ended")


# Enabling.


def test_disable_outlives_bootout_reinstallation_and_reboot(own_mac: EmulatedMac) -> None:
    """Measured on macOS 26.5.1: the record is kept outside the property list and outlives reboots.
    Issues say: bootstrap then answers 119. So: enable before bootstrap."""
    mac = own_mac
    target = mac.load("org.off", RunAtLoad=True)
    mac.wait_field(target, "state", "running")
    assert mac.rc("launchctl", "disable", target) == 0
    # Being disabled does not stop what runs (launchctl(1)).
    assert mac.field(target, "state") == "running"
    assert mac.rc("launchctl", "bootout", target) == 0
    mac.wait_gone(target)
    path = mac.place("/Library/LaunchDaemons/org.off.plist")
    path.unlink()
    assert mac.daemon("org.off", RunAtLoad=True) == path
    done = mac.run("launchctl", "bootstrap", "system", str(path))
    assert (done.returncode, done.stderr) == (119, "Bootstrap failed: 119: Service is disabled\n")
    mac.reboot()
    assert mac.rc("launchctl", "print", target) == 113
    assert mac.rc("launchctl", "bootstrap", "system", str(path)) == 119
    assert mac.rc("launchctl", "enable", target) == 0
    assert mac.rc("launchctl", "bootstrap", "system", str(path)) == 0


def test_print_disabled(mac: EmulatedMac) -> None:
    """Measured on macOS 26: `"LABEL" => disabled|enabled`, no line without an override; a label
    needs no job to have one (measured on 26.5.1)."""
    assert mac.rc("launchctl", "disable", "system/org.never.there") == 0
    assert mac.rc("launchctl", "enable", "system/org.other") == 0
    lines = mac.run("launchctl", "print-disabled", "system").stdout.splitlines()
    assert lines[0] == "\tdisabled services = {"
    assert '\t\t"org.never.there" => disabled' in lines
    assert '\t\t"org.other" => enabled' in lines
    assert lines[-1] == "\t}"
    assert not any("org.unsaid" in line for line in lines)
    assert '"org.never.there" => disabled' in mac.printed("system")
    mac.python("from mac import machine; machine.change(version='12.7')")
    older = mac.run("launchctl", "print-disabled", "system").stdout
    mac.python("from mac import machine; machine.change(version='15.6')")
    assert '\t\t"org.never.there" => true\n\t\t"org.other" => false\n' in older


def test_the_property_lists_own_word_is_a_default(mac: EmulatedMac) -> None:
    """Measured on macOS 26.5.1: Disabled sets a default, the record wins."""
    path = str(mac.daemon("org.default", Disabled=True))
    assert mac.rc("launchctl", "bootstrap", "system", path) == 119
    assert mac.rc("launchctl", "enable", "system/org.default") == 0
    assert mac.rc("launchctl", "bootstrap", "system", path) == 0


# Starting.


def test_kickstart(mac: EmulatedMac) -> None:
    """launchctl(1): -k ends a running process first, -p prints the pid; source read: bare unless a
    terminal reads it. Inferred: a changed property list is not read again."""
    target = mac.load("org.kick", ThrottleInterval=1)
    assert mac.field(target, "state") == "not running"
    first = mac.run("launchctl", "kickstart", "-p", target)
    assert first.returncode == 0
    assert first.stdout.strip() == mac.field(target, "pid")
    again = mac.run("launchctl", "kickstart", "-p", target)
    assert again.stdout == first.stdout
    mac.daemon("org.kick", "exec sleep 2000")
    second = mac.run("launchctl", "kickstart", "-kp", target)
    assert second.returncode == 0
    assert second.stdout != first.stdout
    assert not alive(first.stdout.strip())
    assert mac.field(target, "last terminating signal") == "Terminated: 15"
    assert "sleep 1000" in mac.printed(target)


def test_kickstart_does_not_lift_the_throttle(mac: EmulatedMac) -> None:
    """Doubtful: source read (26.5.1), -u would, but no option reaches it; another reading says the
    opposite. A kickstart within ThrottleInterval after a start is answered, and comes later."""
    target = mac.load("org.throttled", "exit 0", ThrottleInterval=60)
    assert mac.rc("launchctl", "kickstart", target) == 0
    mac.wait_field(target, "last exit code", "0")
    assert mac.rc("launchctl", "kickstart", target) == 0
    assert mac.field(target, "state") == "spawn scheduled"
    assert mac.field(target, "runs") == "1"


def test_loading_alone_starts_nothing(mac: EmulatedMac) -> None:
    """launchd.plist(5): RunAtLoad and KeepAlive start a job; without them it waits."""
    target = mac.load("org.idle")
    assert mac.field(target, "state") == "not running"
    assert mac.field(target, "last exit code") == "(never exited)"
    assert mac.field(target, "runs") == "0"
    assert mac.field(target, "pid") == ""


@pytest.mark.parametrize(
    ("name", "keep_alive", "end", "returns"),
    [
        ("always", True, "exit 0", True),
        ("never", False, "exit 1", False),
        ("until-success-1", {"SuccessfulExit": False}, "exit 1", True),
        ("until-success-0", {"SuccessfulExit": False}, "exit 0", False),
        ("until-success-signal", {"SuccessfulExit": False}, "kill -KILL $$", True),
        ("until-failure-0", {"SuccessfulExit": True}, "exit 0", True),
        ("until-failure-1", {"SuccessfulExit": True}, "exit 1", False),
        ("crashed-segv", {"Crashed": True}, "kill -SEGV $$", True),
        ("crashed-status", {"Crashed": True}, "exit 1", False),
        ("crashed-term", {"Crashed": True}, "kill -TERM $$", False),
        ("not-crashed", {"Crashed": False}, "exit 0", True),
        ("either", {"Crashed": True, "SuccessfulExit": False}, "exit 1", True),
    ],
)
def test_keep_alive(mac: EmulatedMac, name: str, keep_alive: Any, end: str, returns: bool) -> None:
    """launchd.plist(5): KeepAlive and its dictionary. Measured on 26.5.1: what waits for its
    ThrottleInterval reads `spawn scheduled`."""
    target = mac.load(f"org.keep.{name}", end, KeepAlive=keep_alive, RunAtLoad=True)
    mac.wait(lambda: mac.field(target, "pid") == "", "it has ended")
    assert mac.field(target, "state") == ("spawn scheduled" if returns else "not running")


def test_starts_are_throttle_interval_apart(mac: EmulatedMac) -> None:
    """launchd.plist(5): not more often than once every ThrottleInterval seconds, counted from the
    start (measured on 26.5.1)."""
    times = mac.root / "times"
    mac.load("org.loop", f"date +%s.%N >> {times}", KeepAlive=True, ThrottleInterval=1)
    mac.wait(lambda: times.exists() and len(times.read_text().split()) == 3, "three starts")
    first, second, third = map(float, times.read_text().split())
    assert min(second - first, third - second) > 0.9


@pytest.mark.parametrize(
    ("end", "key", "value"),
    [
        ("exit 0", "last exit code", "0"),
        ("exit 3", "last exit code", "3"),
        ("exit 78", "last exit code", "78: EX_CONFIG"),
        ("kill -TERM $$", "last terminating signal", "Terminated: 15"),
        ("kill -KILL $$", "last terminating signal", "Killed: 9"),
    ],
)
def test_how_an_end_is_shown(mac: EmulatedMac, end: str, key: str, value: str) -> None:
    """Measured on macOS 26 and 27: a status with its name in sysexits.h; a signal has a line of its
    own, and no exit code then."""
    target = mac.load(f"org.end.{value.replace(' ', '').replace(':', '')}", end, RunAtLoad=True)
    mac.wait_field(target, key, value)
    shown = mac.printed(target)
    assert ("last exit code" in shown) != ("last terminating signal" in shown)
    assert mac.field(target, "job state") == "exited"


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("program", {"ProgramArguments": ["/nowhere/program"]}),
        ("relative", {"ProgramArguments": ["no-such-program"]}),
        ("directory", {"WorkingDirectory": "/nowhere"}),
        ("user", {"UserName": "_nobody_of_this_name"}),
        ("group", {"GroupName": "_no_group_of_this_name"}),
    ],
)
def test_what_cannot_be_started(mac: EmulatedMac, name: str, keys: dict[str, Any]) -> None:
    """Measured on macOS 26: bootstrap answers 0; then no pid, `last exit code = 78: EX_CONFIG`,
    `job state = spawn failed`, and `spawn scheduled` under KeepAlive."""
    target = mac.load(f"org.fails.{name}", KeepAlive=True, **keys)
    assert mac.field(target, "last exit code") == "78: EX_CONFIG"
    assert mac.field(target, "job state") == "spawn failed"
    assert mac.field(target, "state") == "spawn scheduled"
    assert mac.field(target, "pid") == ""


def test_a_program_is_not_looked_for_on_the_property_lists_path(mac: EmulatedMac) -> None:
    """An issue says: 78 for a bare name outside of /usr/bin:/bin:/usr/sbin:/sbin."""
    tool = mac.root / "own-bin/tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    keys: dict[str, Any] = {"EnvironmentVariables": {"PATH": f"{tool.parent}:/bin"}}
    target = mac.load("org.path", RunAtLoad=True, ProgramArguments=["tool"], **keys)
    assert mac.field(target, "last exit code") == "78: EX_CONFIG"
    keys["ProgramArguments"] = ["sleep", "1000"]
    mac.wait_field(mac.load("org.path.found", RunAtLoad=True, **keys), "state", "running")


def test_what_a_process_gets(mac: EmulatedMac) -> None:
    """launchd.plist(5): user, group, folder, umask (a decimal number), environment, limits.
    Measured on 26.5.1: only PATH of four folders by default. Inferred: no HOME in the system
    domain, 256 open files."""
    out = mac.root / "got"
    out.mkdir()
    out.chmod(0o777)
    report = "id -un; id -gn; id -G; pwd; umask; ulimit -Sn; env | grep -v ^_= | sort"
    command = f"({report}) > {out}/new; mv {out}/new {out}/done"
    keys: dict[str, Any] = {
        "UserName": "nobody",
        "GroupName": "daemon",
        "WorkingDirectory": "/tmp",
        "Umask": 0o027,
        "EnvironmentVariables": {"HOME": "/var/empty", "ENGINE": "x y"},
        "RunAtLoad": True,
    }
    mac.load("org.gets", command, **keys)
    mac.wait((out / "done").exists, "the job reported")
    lines = (out / "done").read_text().splitlines()
    assert lines[:6] == ["nobody", "daemon", "1", "/tmp", "0027", "256"]
    assert lines[6:] == [
        "ENGINE=x y",
        "HOME=/var/empty",
        "OSLogRateLimit=64",
        "PATH=/usr/bin:/bin:/usr/sbin:/sbin",
        "PWD=/tmp",
        "XPC_FLAGS=0x0",
        "XPC_SERVICE_NAME=org.gets",
    ]


def test_resource_limits(mac: EmulatedMac) -> None:
    """launchd.plist(5): SoftResourceLimits and HardResourceLimits."""
    out = mac.root / "limits"
    keys: dict[str, Any] = {
        "SoftResourceLimits": {"NumberOfFiles": 300, "Core": 0},
        "HardResourceLimits": {"NumberOfFiles": 400},
        "RunAtLoad": True,
    }
    mac.load("org.limits", f"(ulimit -Sn; ulimit -Hn) > {out}.new; mv {out}.new {out}", **keys)
    mac.wait(out.exists, "the job reported")
    assert out.read_text().split() == ["300", "400"]


# Logs.


def test_logs_are_appended_to(mac: EmulatedMac) -> None:
    """launchd.plist(5): StandardOutPath and StandardErrorPath, made if they are missing."""
    out, err = mac.root / "out.log", mac.root / "err.log"
    out.write_text("before\n")
    keys: dict[str, Any] = {"StandardOutPath": str(out), "StandardErrorPath": str(err)}
    mac.load("org.logs", "echo good; echo bad >&2", RunAtLoad=True, **keys)
    mac.wait(lambda: err.exists() and err.read_text() == "bad\n", "the job wrote")
    assert out.read_text() == "before\ngood\n"


def test_a_log_that_the_account_may_not_write_keeps_the_job_from_starting(mac: EmulatedMac) -> None:
    """An issue says: a log of root, mode 0600, with a UserName: bootstrap 0, then 78 and no
    exec."""
    log = mac.root / "roots.log"
    log.touch(0o600)
    target = mac.load("org.rootlog", RunAtLoad=True, UserName="nobody", StandardOutPath=str(log))
    assert mac.field(target, "last exit code") == "78: EX_CONFIG"
    assert mac.field(target, "state") == "not running"


def test_a_logs_folder_is_made_for_root_alone(mac: EmulatedMac) -> None:
    """Source read (xpcproxy of 26.5.1): missing folders of a log are made before privileges are
    dropped, without the right to enter them; so the account cannot reach its log."""
    log = mac.root / "made/for/log"
    target = mac.load("org.logdir", RunAtLoad=True, UserName="nobody", StandardOutPath=str(log))
    assert mac.field(target, "last exit code") == "78: EX_CONFIG"
    assert log.parent.stat().st_mode & 0o777 == 0o744
    assert log.parent.stat().st_uid == 0


# What print shows.


def test_the_layout_of_print(mac: EmulatedMac) -> None:
    """Measured on macOS 26.5.1, 26.6 and 27.0: tab-indented `key = value`; blocks repeat the job's
    keys, so that only a single tab tells the job's own state."""
    keys: dict[str, Any] = {"EnvironmentVariables": {"A": "b = c"}, "UserName": "nobody"}
    target = mac.load("org.layout", "exec sleep 3", RunAtLoad=True, **keys)
    mac.wait_field(target, "state", "running")
    shown = mac.printed(target)
    path = mac.place("/Library/LaunchDaemons/org.layout.plist")
    head = [
        "system/org.layout = {",
        "\tactive count = 1",
        f"\tpath = {path}",
        "\ttype = LaunchDaemon",
        "\tstate = running",
        "",
        "\tprogram = /bin/sh",
        "\targuments = {",
        "\t\t/bin/sh",
        "\t\t-c",
        "\t\texec sleep 3",
        "\t}",
    ]
    assert shown.splitlines()[: len(head)] == head
    assert "\tenvironment = {\n\t\tOSLogRateLimit => 64\n\t\tA => b = c\n" in shown
    assert "\t\tXPC_SERVICE_NAME => org.layout\n" in shown
    assert "\t\tstate = active\n" in shown
    assert mac.field(target, "username") == "nobody"
    assert mac.field(target, "runs") == "1"
    # Measured: these are the defaults; older manuals say 20 s for the second.
    assert mac.field(target, "minimum runtime") == "10"
    assert mac.field(target, "exit timeout") == "5"


def test_everybody_may_read_print(mac: EmulatedMac) -> None:
    """launchctl(1): anyone may read the system domain; so argv and environment hold no secret."""
    target = mac.load(
        "org.open", "exec sleep 1000 # argument", EnvironmentVariables={"T": "secret"}
    )
    shown = mac.run("launchctl", "print", target, uid=NOBODY).stdout
    assert "T => secret" in shown
    assert "# argument" in shown


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("", "daemon (3)"),
        ("Interactive", "interactive (4)"),
        ("Background", "background (5)"),
    ],
)
def test_process_types(mac: EmulatedMac, kind: str, shown: str) -> None:
    """Measured on macOS 27.0: what print says of each ProcessType. (Measured elsewhere: an engine
    made 11 tokens a second as Background, 87 as Interactive; the emulation slows nothing down.)"""
    keys = {"ProcessType": kind} if kind else {}
    target = mac.load(f"org.type.{kind or 'none'}", **keys)
    assert mac.field(target, "spawn type") == shown


def test_domains_and_lists_name_the_jobs(mac: EmulatedMac) -> None:
    """launchctl(1): print of a domain; list: pid or -, last status (negative: a signal), label."""
    target = mac.load("org.listed", "kill -KILL $$", RunAtLoad=True)
    mac.wait_field(target, "last terminating signal", "Killed: 9")
    assert "-\t-9\torg.listed\n" in mac.run("launchctl", "list").stdout
    assert "\torg.listed\n" in mac.printed("system")
    assert '\t"LastExitStatus" = 9;\n' in mac.run("launchctl", "list", "org.listed").stdout
    assert mac.rc("launchctl", "list", "org.none") == 113


# Sessions.


def test_session_rules(own_mac: EmulatedMac) -> None:
    """Issues say: gui/UID exists only while that account is logged in at the screen, and not after
    a reboot; user/UID takes only jobs for Background sessions. Measured texts: 134 is "Service
    cannot load in requested session"."""
    mac = own_mac
    agent = str(mac.daemon("org.agent", RunAtLoad=True))
    assert mac.rc("launchctl", "bootstrap", "gui/0", agent) == 125
    assert mac.rc("launchctl", "print", "gui/0") == 112
    assert mac.rc("launchctl", "bootstrap", "user/0", agent) == 134
    mac.python("from mac import domains; domains.log_in(0)")
    assert mac.rc("launchctl", "bootstrap", "gui/0", agent) == 0
    assert mac.field("gui/0/org.agent", "type") == "LaunchAgent"
    assert mac.rc("launchctl", "print", "system/org.agent") == 113
    background = str(mac.daemon("org.back", LimitLoadToSessionType="Background"))
    assert mac.rc("launchctl", "bootstrap", "user/0", background) == 0
    assert mac.rc("launchctl", "bootstrap", "gui/0", background) == 134
    screen = str(mac.daemon("org.screen", LimitLoadToSessionType="Aqua"))
    assert mac.rc("launchctl", "bootstrap", "system", screen) == 134
    mac.reboot()
    assert mac.rc("launchctl", "print", "gui/0") == 112


def test_a_disabled_agent_answers_the_catch_all(own_mac: EmulatedMac) -> None:
    """An issue says: 5, not 119, in a gui domain. Measured on 26.5.1: user and gui domain of an
    account share one record."""
    mac = own_mac
    mac.python("from mac import domains; domains.log_in(0)")
    assert mac.rc("launchctl", "disable", "user/0/org.agent") == 0
    agent = str(mac.daemon("org.agent"))
    assert mac.rc("launchctl", "bootstrap", "gui/0", agent) == 5
    assert "org.agent" in mac.run("launchctl", "print-disabled", "gui/0").stdout


# Boots.


def test_a_boot_loads_what_lies_in_library_launchdaemons(own_mac: EmulatedMac) -> None:
    """launchd(8): property lists in /Library/LaunchDaemons. Issues say: one with bad ownership is
    passed over in silence, a link is since macOS 14; the record of disabled labels counts."""
    mac = own_mac
    mac.daemon("org.boots", RunAtLoad=True)
    mac.daemon("org.writable").chmod(0o666)
    mac.daemon("org.disabled")
    mac.rc("launchctl", "disable", "system/org.disabled")
    elsewhere = mac.root / "org.elsewhere.plist"
    mac.daemon("org.elsewhere").rename(elsewhere)
    mac.place("/Library/LaunchDaemons/org.link.plist").symlink_to(elsewhere)
    assert mac.rc("launchctl", "bootstrap", "system", str(elsewhere)) == 0
    mac.reboot()
    mac.wait_field("system/org.boots", "state", "running")
    for label in ("org.writable", "org.disabled", "org.elsewhere"):
        assert mac.rc("launchctl", "print", f"system/{label}") == 113


def test_a_shutdown_ends_processes_politely(own_mac: EmulatedMac) -> None:
    """launchd.plist(5): SIGTERM, and SIGKILL after ExitTimeOut."""
    mac = own_mac
    told = mac.root / "told"
    ready = mac.root / "ready"
    command = f"trap 'touch {told}; exit 0' TERM; touch {ready}; while :; do sleep 0.1; done"
    mac.load("org.polite", command, RunAtLoad=True)
    mac.wait(ready.exists, "the job listens for SIGTERM")
    target = stubborn(mac, "org.impolite", ExitTimeOut=1)
    pid = mac.field(target, "pid")
    mac.shut_down()
    assert told.exists()
    assert not alive(pid)


def test_filevault_keeps_daemons_from_starting(own_mac: EmulatedMac) -> None:
    """An issue says: after a boot daemons wait until the disk is unlocked."""
    mac = own_mac
    mac.daemon("org.boots", RunAtLoad=True)
    mac.python("from mac import filevault; filevault.turn(True)")
    mac.reboot()
    assert mac.rc("launchctl", "print", "system/org.boots") == 113
    mac.python("from mac import client; client.unlock()")
    mac.wait_field("system/org.boots", "state", "running")


# Times.


def test_start_interval(mac: EmulatedMac) -> None:
    """launchd.plist(5): every so many seconds."""
    marks = mac.root / "marks"
    target = mac.load("org.every", f"echo >> {marks}", StartInterval=1, ThrottleInterval=1)
    assert mac.field(target, "run interval") == "1 seconds"
    mac.wait(lambda: marks.exists() and len(marks.read_text()) >= 2, "two runs")


@pytest.mark.parametrize(
    ("entry", "due"),
    [
        ({}, "2026-02-28 10:31"),
        ({"Minute": 30}, "2026-02-28 11:30"),
        ({"Hour": 10}, "2026-02-28 10:31"),
        ({"Hour": 9, "Minute": 5}, "2026-03-01 09:05"),
        ({"Day": 28, "Hour": 4, "Minute": 0}, "2026-03-28 04:00"),
        ({"Weekday": 0, "Hour": 0, "Minute": 0}, "2026-03-01 00:00"),
        ({"Weekday": 7, "Hour": 0, "Minute": 0}, "2026-03-01 00:00"),
        ({"Weekday": 1, "Day": 5, "Hour": 0, "Minute": 0}, "2026-03-02 00:00"),
        ({"Month": 2, "Day": 29, "Hour": 0, "Minute": 0}, "2028-02-29 00:00"),
    ],
)
def test_calendar_intervals(entry: dict[str, int], due: str) -> None:
    """launchd.plist(5): a missing key is a wildcard; 0 and 7 are Sunday."""
    found = calendar_times.next_time(entry, datetime(2026, 2, 28, 10, 30, 40))
    assert found == datetime.fromisoformat(due)


def test_a_day_that_never_comes() -> None:
    """An entry for the 30th of February is never due."""
    assert calendar_times.next_time({"Month": 2, "Day": 30}, datetime(2026, 1, 1)) is None


# The emulation itself.


def test_every_call_is_logged(mac: EmulatedMac) -> None:
    """What tests of the collection look at: who called which tool with what, and its exit
    status."""
    mac.run("launchctl", "print", "system/org.none", uid=NOBODY)
    entry = mac.calls()[-1]
    del entry["time"]
    assert entry == {
        "tool": "launchctl",
        "argv": ["print", "system/org.none"],
        "uid": NOBODY,
        "rc": 113,
    }


def test_kill_sends_a_signal(mac: EmulatedMac) -> None:
    """launchctl(1): by name or number; a job that does not run has no process (3, inferred)."""
    target = mac.load("org.signal", RunAtLoad=True)
    mac.wait_field(target, "state", "running")
    assert mac.rc("launchctl", "kill", "SIGKILL", target) == 0
    mac.wait_field(target, "last terminating signal", "Killed: 9")
    assert mac.rc("launchctl", "kill", str(int(signal.SIGTERM)), target) == 3
