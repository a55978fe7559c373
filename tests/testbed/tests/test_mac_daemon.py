# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The launchd back end of the module ``daemon`` against the emulated launchd: no Mac runs here.

The functions run in this process; only the folders are those of the emulated Mac. Most of these
sequences have broken others who restart daemons on Macs.
"""

from __future__ import annotations

import json
import os
import plistlib
import pwd
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from mac.harness import EmulatedMac
from on_mac import at_once, redirect

from ansible_collections.tether.fleet.plugins.module_utils.daemon import (
    base,
    launchd,
    log_file,
    logins,
    plist_place,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal

NOBODY = pwd.getpwnam("nobody")
NAME = "tether-x"
TARGET = f"system/{NAME}"
# An engine in miniature: a unix socket that it makes and does not remove, or a port.
ENGINE = """#!/usr/bin/python3
import http.server, json, os, socket, socketserver, sys
with open(sys.argv[2], "w") as stream:
    json.dump({"argv": sys.argv, "environ": dict(os.environ), "uid": os.getuid()}, stream)
where = sys.argv[1]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def address_string(self):
        return "client"
class Server(http.server.HTTPServer):
    address_family = socket.AF_INET if where.isdigit() else socket.AF_UNIX
    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "it", 0
print("listening", flush=True)
Server(("127.0.0.1", int(where)) if where.isdigit() else where, Handler).serve_forever()
"""
SPEC = {"daemons": {"type": "list", "elements": "dict", "options": base.ENTRY_SPEC}}


@pytest.fixture
def fleet(own_mac: EmulatedMac, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    redirect(own_mac, monkeypatch)
    yield Fleet(own_mac)
    assert own_mac.offences() == []


class Fleet:
    """Runs the module's functions on an emulated Mac."""

    def __init__(self, mac: EmulatedMac) -> None:
        self.mac = mac
        self.engine = mac.root / "engine"
        self.engine.write_text(ENGINE)
        self.engine.chmod(0o755)
        self.folder = mac.place("/var/lib/tether/run/engines/a.b")
        self.socket = self.folder / "engine.sock"
        self.dump = self.folder / "dump.json"

    def script(self, text: str) -> str:
        """A program of a few words of shell."""
        path = self.mac.root / "script"
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return str(path)

    def served(self, **more: Any) -> dict[str, Any]:
        """An engine on a unix socket, of an account of its own."""
        directory = {
            "path": str(self.folder),
            "owner": "nobody",
            "group": "root",
            "mode": "2710",
            "seal": "engine.sock",
        }
        return {
            "name": NAME,
            "argv": [str(self.engine), str(self.socket), str(self.dump)],
            "user": "nobody",
            "umask": "0007",
            "runtime_directories": [directory],
            "restart": {"delay": 1},
            "stop_timeout": 5,
            "health": {"unix": str(self.socket), "path": "/", "timeout": 20},
            **more,
        }

    def plain(self, command: str = "exec sleep 1000", **more: Any) -> dict[str, Any]:
        """A daemon that is a script."""
        words = {"name": NAME, "argv": [self.script(command)], "restart": {"delay": 1}}
        return {**words, "stop_timeout": 2, **more}

    def plan(self, *daemons: dict[str, Any], prune: list[str] | None = None) -> Plan:
        checked = ArgumentSpecValidator(SPEC).validate({"daemons": list(daemons)})
        assert not checked.error_messages
        desired = {**checked.validated_parameters, "prune": prune or []}
        return launchd.plan(desired, launchd.observe(desired))

    def run(self, *daemons: dict[str, Any], prune: list[str] | None = None) -> list[str]:
        """One run: its steps."""
        plan = self.plan(*daemons, prune=prune)
        launchd.apply(plan)
        launchd.verify(plan)
        return [step.words() for step in plan.steps]

    def converge(self, *daemons: dict[str, Any], prune: list[str] | None = None) -> list[str]:
        """A run, and another that changes nothing."""
        steps = self.run(*daemons, prune=prune)
        again = self.plan(*daemons, prune=prune)
        assert again.steps == []
        assert launchd.settled(again) == ""
        return steps

    def failing(self, *daemons: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """A run that fails: what it says, and the facts of the first daemon."""
        with pytest.raises(Refusal) as caught:
            self.run(*daemons)
        return str(caught.value), caught.value.facts["daemons"][daemons[0]["name"]]

    def path(self, name: str = NAME) -> Path:
        return self.mac.place(f"/Library/LaunchDaemons/{name}.plist")

    def pid(self, target: str = TARGET) -> str:
        return self.mac.field(target, "pid")

    def told(self, since: int = 0) -> list[str]:
        """What was asked of launchctl, without looks."""
        words = [call["argv"] for call in self.mac.calls()[since:] if call["tool"] == "launchctl"]
        return [argv[0] for argv in words if argv[0] not in ("print", "print-disabled", "list")]


def words(fleet: Fleet, *actions: tuple[str, str]) -> list[str]:
    names = {
        "plist": str(fleet.path()),
        "log": log_file.path(NAME),
        "label": NAME,
        "process": NAME,
    }
    return ["%s %s %s" % (verb, kind, names[kind]) for verb, kind in actions]


def test_an_engine_from_nothing_to_nothing(fleet: Fleet) -> None:
    steps = fleet.converge(fleet.served())
    assert steps == words(fleet, ("create", "plist"), ("create", "log"), ("start", "process"))
    assert fleet.told() == ["bootstrap"]
    seen = json.loads(fleet.dump.read_text())
    assert seen["uid"] == NOBODY.pw_uid
    assert seen["environ"]["HOME"] == "/var/empty"
    assert seen["environ"]["PATH"] == "/usr/bin:/bin:/usr/sbin:/sbin"
    assert fleet.mac.field(TARGET, "spawn type") == "interactive (4)"
    assert fleet.folder.stat().st_mode & 0o7777 == 0o2710
    assert fleet.converge({"name": NAME, "state": "absent"}) == words(
        fleet, ("stop", "process"), ("remove", "plist")
    )
    assert fleet.mac.rc("launchctl", "print", TARGET) == 113
    assert not fleet.path().exists()
    assert not fleet.folder.exists()
    assert "listening" in Path(log_file.path(NAME)).read_text()


def test_a_check_foretells_and_changes_nothing(fleet: Fleet) -> None:
    foretold = [step.words() for step in fleet.plan(fleet.served()).steps]
    assert not fleet.path().exists()
    assert not Path(log_file.path(NAME)).exists()
    assert fleet.told() == []
    assert fleet.run(fleet.served()) == foretold


def test_every_word_arrives_as_it_is(fleet: Fleet) -> None:
    odd = ["a&b", "<b>", "&amp;", "]]>", "$HOME", "%n", "--", "", " two  words ", "ü€😀", "'", '"']
    one = fleet.served(environment={f"V{i}": word for i, word in enumerate(odd)})
    one["argv"] += odd
    fleet.converge(one)
    seen = json.loads(fleet.dump.read_text())
    assert seen["argv"][3:] == odd
    assert [seen["environ"][f"V{i}"] for i in range(len(odd))] == odd


def test_an_upgrade_while_it_runs(fleet: Fleet) -> None:
    fleet.converge(fleet.served())
    first, since = fleet.pid(), len(fleet.mac.calls())
    assert fleet.converge(fleet.served(version="2")) == words(
        fleet, ("update", "plist"), ("restart", "process")
    )
    assert fleet.told(since) == ["bootout", "bootstrap"]
    assert fleet.pid() not in ("", first)


def test_a_change_that_is_none_restarts_nothing(fleet: Fleet) -> None:
    fleet.converge(fleet.served())
    first = fleet.pid()
    content = plistlib.loads(fleet.path().read_bytes())
    fleet.path().write_bytes(plistlib.dumps(content, fmt=plistlib.FMT_BINARY))
    assert fleet.converge(fleet.served(description="other", read_only_paths=["/etc"])) == []
    assert fleet.pid() == first


def test_a_socket_that_a_crash_left_keeps_nobody_from_starting(fleet: Fleet) -> None:
    fleet.converge(fleet.served())
    first = fleet.pid()
    (fleet.folder / "stale").mkdir()
    os.kill(int(first), signal.SIGKILL)
    fleet.mac.wait(lambda: fleet.pid() not in ("", first), "launchd starts it again")
    assert fleet.run(fleet.served()) == []
    assert sorted(os.listdir(fleet.folder)) == ["dump.json", "engine.sock"]


def test_a_boot(fleet: Fleet) -> None:
    fleet.converge(fleet.served(), fleet.plain(name="tether-off", state="stopped"))
    fleet.mac.reboot()
    shutil.rmtree(fleet.mac.place("/var/run/tether"))
    fleet.mac.wait(lambda: bool(fleet.pid()), "it is started by the boot")
    assert fleet.run(fleet.served(), fleet.plain(name="tether-off", state="stopped")) == []


@pytest.mark.parametrize("before", ["fresh", "loaded"])
def test_a_label_that_somebody_disabled(fleet: Fleet, before: str) -> None:
    if before == "loaded":
        fleet.converge(fleet.plain())
    fleet.mac.rc("launchctl", "disable", TARGET)
    steps = fleet.converge(fleet.plain(version="2"))
    assert f"enable label {NAME}" in steps
    assert fleet.mac.field(TARGET, "state") == "running"


def test_stop_and_start(fleet: Fleet) -> None:
    fleet.converge(fleet.plain())
    assert fleet.converge(fleet.plain(state="stopped")) == words(
        fleet, ("disable", "label"), ("stop", "process")
    )
    assert fleet.mac.rc("launchctl", "print", TARGET) == 113
    # Edited while it was stopped: what is loaded then is what is wanted.
    content = plistlib.loads(fleet.path().read_bytes())
    fleet.path().write_bytes(plistlib.dumps({**content, "ProgramArguments": ["/bin/false"]}))
    assert fleet.converge(fleet.plain()) == words(
        fleet, ("update", "plist"), ("enable", "label"), ("start", "process")
    )
    assert fleet.converge({"name": NAME, "state": "absent"})[-1] == f"remove plist {fleet.path()}"


def test_absent_leaves_no_override(fleet: Fleet) -> None:
    fleet.converge(fleet.plain(state="stopped"))
    fleet.converge({"name": NAME, "state": "absent"})
    overrides = fleet.mac.run("launchctl", "print-disabled", "system").stdout
    assert f'"{NAME}" => disabled' not in overrides


def test_a_run_that_was_killed_before_the_bootstrap(fleet: Fleet) -> None:
    fleet.converge(fleet.plain())
    first = fleet.pid()
    plan = fleet.plan(fleet.plain(version="2"))
    fleet.path().write_text(plan.steps[0].data["text"])
    assert fleet.converge(fleet.plain(version="2")) == words(fleet, ("restart", "process"))
    assert fleet.pid() != first
    # Between bootout and bootstrap.
    fleet.mac.rc("launchctl", "bootout", TARGET)
    fleet.mac.wait_gone(TARGET)
    assert fleet.converge(fleet.plain(version="2")) == words(fleet, ("start", "process"))


def test_a_label_that_was_loaded_from_another_path(fleet: Fleet) -> None:
    fleet.converge(fleet.plain())
    elsewhere = fleet.mac.root / "elsewhere.plist"
    shutil.copy(fleet.path(), elsewhere)
    fleet.mac.rc("launchctl", "bootout", TARGET)
    fleet.mac.wait_gone(TARGET)
    assert fleet.mac.rc("launchctl", "bootstrap", "system", str(elsewhere)) == 0
    assert fleet.converge(fleet.plain()) == words(fleet, ("restart", "process"))
    assert fleet.mac.field(TARGET, "path") == str(fleet.path())


def test_what_is_not_ours_is_left_alone(fleet: Fleet) -> None:
    fleet.mac.load(NAME, RunAtLoad=True)
    before = fleet.path().read_bytes()
    for one in (fleet.plain(), {"name": NAME, "state": "absent"}):
        with pytest.raises(Refusal, match="a file that somebody else wrote"):
            fleet.run(one)
    fleet.path().unlink()
    elsewhere = fleet.mac.root / "elsewhere.plist"
    elsewhere.write_bytes(before)
    fleet.mac.rc("launchctl", "bootout", TARGET)
    fleet.mac.wait_gone(TARGET)
    fleet.mac.rc("launchctl", "bootstrap", "system", str(elsewhere))
    with pytest.raises(Refusal, match="somebody else loaded it from"):
        fleet.run(fleet.plain())
    assert fleet.run(prune=["tether-"]) == []


def test_what_is_no_longer_listed_goes(fleet: Fleet) -> None:
    fleet.converge(fleet.plain(), fleet.plain(name="tether-y"))
    fleet.mac.daemon("tether-foreign")
    steps = fleet.converge(fleet.plain(), prune=["tether-"])
    assert steps == ["stop process tether-y", f"remove plist {fleet.path('tether-y')}"]
    assert fleet.path("tether-foreign").exists()


def test_a_process_that_does_not_end_when_asked(fleet: Fleet) -> None:
    """It would take 20 s; its time is 2 s. bootout answers at once, the label stays until then."""
    ready = fleet.mac.root / "ready"
    stubborn = f"trap '' TERM; touch {ready}; for i in $(seq 200); do sleep 0.1; done"
    fleet.run(fleet.plain(stubborn))
    fleet.mac.wait(ready.exists, "it ignores SIGTERM")
    began, since = time.monotonic(), len(fleet.mac.calls())
    fleet.run(fleet.plain(stubborn, version="2"))
    assert 2 <= time.monotonic() - began < 15
    assert fleet.told(since) == ["bootout", "bootstrap"]


def test_a_daemon_that_dies_at_once(fleet: Fleet) -> None:
    Path(log_file.FOLDER).mkdir()
    Path(log_file.path(NAME)).write_text("a line of an earlier life\n")
    fine = fleet.plain(name="tether-y", argv=["/bin/sleep", "1000"])
    began = time.monotonic()
    said, fact = fleet.failing(fleet.plain("echo loading; echo no such tensor >&2; exit 7"), fine)
    assert time.monotonic() - began < 12
    assert "it ended with status 7" in fact["reason"]
    assert fact["last_lines"][:2] == ["loading", "no such tensor"]
    assert "earlier life" not in said
    assert fleet.mac.field("system/tether-y", "state") == "running"
    # The next run says so too, and starts it again when it is mended.
    fleet.failing(fleet.plain("echo loading; exit 7"))
    assert fleet.converge(fleet.plain("exec sleep 1000", version="2"))[-1] == (
        f"start process {NAME}"
    )


def test_a_loop_of_crashes_is_told_by_its_starts(fleet: Fleet) -> None:
    """It passes for healthy a while, then ends again and again."""
    _said, fact = fleet.failing(
        fleet.plain("sleep 0.3; kill -SEGV $$", health={"port": 9, "timeout": 20})
    )
    assert "it was ended by SIGSEGV" in fact["reason"]


def test_a_program_that_cannot_be_started(fleet: Fleet) -> None:
    _said, fact = fleet.failing(fleet.plain(argv=["/nowhere/x"]))
    assert fact["reason"] == "there is no program /nowhere/x; install its artifact first"
    broken = fleet.mac.root / "broken"
    broken.write_text("#!/nowhere/interpreter\n")
    broken.chmod(0o755)
    _said, fact = fleet.failing(fleet.plain(argv=[str(broken)]))
    assert "it ended with status 78 (EX_CONFIG)" in fact["reason"]


def test_a_log_that_its_account_cannot_write_is_mended(fleet: Fleet) -> None:
    """A file of root's would have the process end with 78 before it begins."""
    Path(log_file.FOLDER).mkdir()
    Path(log_file.path(NAME)).touch(0o600)
    fleet.converge(fleet.served())
    assert os.stat(log_file.path(NAME)).st_uid == NOBODY.pw_uid


def test_another_process_in_its_place(fleet: Fleet, unused_port: int) -> None:
    other = fleet.plain(name="tether-other", argv=["/bin/sleep", "1"])
    other["argv"] = [str(fleet.engine), str(unused_port), "/dev/null"]
    other["health"] = {"port": unused_port, "path": "/", "timeout": 20}
    fleet.converge(other)
    # Its own process listens nowhere.
    _said, fact = fleet.failing(
        fleet.plain(health={"port": unused_port, "path": "/", "timeout": 20})
    )
    assert "another process answers in its place: process " in fact["reason"]
    assert "of unit tether-other" in fact["reason"]


def test_without_lsof_no_answer_is_its_own(fleet: Fleet, unused_port: int) -> None:
    one = fleet.plain(argv=[str(fleet.engine), str(unused_port), "/dev/null"])
    one["health"] = {"port": unused_port, "path": "/", "timeout": 20}
    fleet.converge(one)
    fleet.mac.place("/usr/sbin/lsof").unlink()
    _said, fact = fleet.failing(one)
    assert "it cannot be told who answers in its place" in fact["reason"]
    assert "status 127: no program" in fact["reason"]


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_a_reload_runs_as_the_account(fleet: Fleet) -> None:
    config, mark = fleet.mac.root / "config", fleet.mac.place("/Users/Shared/mark")
    mark.parent.chmod(0o777)
    config.write_text("one")
    reload_argv = ["/bin/sh", "-c", f'echo "$(id -u) $HOME $(umask)" > {mark}']
    one = fleet.served(reload_files=[{"path": str(config)}], reload_argv=reload_argv)
    fleet.converge(one)
    first = fleet.pid()
    config.write_text("two")
    assert fleet.converge(one) == words(fleet, ("reload", "process"))
    assert mark.read_text() == f"{NOBODY.pw_uid} /var/empty 0007\n"
    assert fleet.pid() == first
    config.write_text("three")
    broken = {**one, "reload_argv": ["/bin/sh", "-c", "echo wrong port >&2; exit 1"]}
    _said, fact = fleet.failing(broken)
    assert "(status 1: wrong port); it still runs with the old one" in fact["reason"]
    # launchd starts it again by itself: it has read what there was.
    time.sleep(2.1)
    os.kill(int(first), signal.SIGKILL)
    fleet.mac.wait(lambda: fleet.pid() not in ("", first), "launchd starts it again")
    assert fleet.run(one) == []


def test_a_oneshot(fleet: Fleet) -> None:
    marks = fleet.mac.root / "marks"
    one = fleet.plain(f"echo once >> {marks}", type="oneshot")
    assert fleet.converge(one)[-1] == f"start process {NAME}"
    assert marks.read_text() == "once\n"
    fleet.converge({**one, "version": "2"})
    assert marks.read_text() == "once\n" * 2
    _said, fact = fleet.failing(fleet.plain("exit 3", type="oneshot", version="3"))
    assert "it ended with status 3" in fact["reason"]


def test_two_runs_at_once(fleet: Fleet) -> None:
    """Both see the old daemon; the second waits for the first, and then finds nothing to do."""
    fleet.converge(fleet.served())
    since = len(fleet.mac.calls())
    plans = [fleet.plan(fleet.served(version="2")) for _ in range(2)]

    def run(plan: Plan) -> None:
        launchd.apply(plan)
        launchd.verify(plan)

    assert at_once(run, plans) == []
    assert fleet.told(since) == ["bootout", "bootstrap"]
    assert fleet.plan(fleet.served(version="2")).steps == []


@pytest.fixture
def login(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The account nobody, with a home on the Mac; returns where its agents are."""
    home = fleet.mac.place("/Users/me")
    home.mkdir()
    os.chown(home, NOBODY.pw_uid, NOBODY.pw_gid)
    fields = ("nobody", "x", NOBODY.pw_uid, NOBODY.pw_gid, "", str(home), "/bin/sh")
    item = pwd.struct_passwd(fields)
    known = SimpleNamespace(getpwnam=lambda _name: item, getpwuid=lambda _uid: item)
    monkeypatch.setattr(plist_place, "pwd", known)
    return home / "Library" / "LaunchAgents"


def test_a_login_session(fleet: Fleet, login: Path) -> None:
    agent = fleet.plain(session="login", user="nobody")
    target = f"gui/{NOBODY.pw_uid}/{NAME}"
    said, fact = fleet.failing(agent)
    assert "nobody of the account nobody is logged in at the screen" in fact["reason"]
    assert "125 or 112" in said
    assert fleet.told() == []
    fleet.mac.python(f"from mac import domains; domains.log_in({NOBODY.pw_uid})")
    assert fleet.converge(agent)[-1] == f"start process {NAME} (session of nobody)"
    assert fleet.mac.field(target, "state") == "running"
    path = login / f"{NAME}.plist"
    assert path.stat().st_uid == NOBODY.pw_uid
    assert [one.place.account for one in logins.read(NAME)] == ["nobody"]
    # Over to the system, and nothing stays behind; and back.
    steps = fleet.converge(fleet.plain())
    assert f"remove plist {path}" in steps
    assert fleet.mac.rc("launchctl", "print", target) == 113
    assert f"remove plist {fleet.path()}" in fleet.converge(agent)
    assert fleet.mac.rc("launchctl", "print", TARGET) == 113
    assert f"remove plist {path}" in fleet.converge(prune=["tether-"])
    assert os.listdir(logins.FOLDER) == []


def test_stopped_where_nobody_is_logged_in(fleet: Fleet, login: Path) -> None:
    """There is no override without a session: no plist is what keeps a login from starting it."""
    agent = fleet.plain(session="login", user="nobody")
    assert fleet.converge({**agent, "state": "stopped"}) == []
    fleet.failing(agent)
    path = login / f"{NAME}.plist"
    assert path.exists()
    assert fleet.converge({**agent, "state": "stopped"}) == [f"remove plist {path}"]
    assert not path.exists()
    fleet.mac.python(f"from mac import domains; domains.log_in({NOBODY.pw_uid})")
    steps = fleet.converge({**agent, "state": "stopped"})
    assert steps[0] == f"disable label {NAME} (session of nobody)"


def test_what_an_account_plants_is_none_of_roots_business(fleet: Fleet, login: Path) -> None:
    """A plist as ours, which names the directory of an engine that runs."""
    fleet.converge(fleet.served())
    login.mkdir(parents=True)
    planted = login / "tether-planted.plist"
    shutil.copy(fleet.path(), planted)
    os.chown(planted, NOBODY.pw_uid, NOBODY.pw_gid)
    assert fleet.converge(fleet.served(), prune=["tether-"]) == []
    assert fleet.converge({"name": "tether-planted", "state": "absent"}) == []
    assert planted.exists()
    assert fleet.socket.exists()


def test_an_account_in_the_way_fails_its_daemon_alone(fleet: Fleet, login: Path) -> None:
    """Its folder cannot be written, as a read-only or a foreign one cannot."""
    login.parent.mkdir(parents=True)
    login.write_text("a file where a folder is to be")
    agent = fleet.plain(session="login", user="nobody")
    other = fleet.plain(name="tether-y", argv=["/bin/sleep", "1000"])
    _said, fact = fleet.failing(agent, other)
    assert "the account nobody cannot write it" in fact["reason"]
    assert fleet.mac.field("system/tether-y", "state") == "running"


def test_an_accounts_folder_leads_root_nowhere(fleet: Fleet, login: Path) -> None:
    """Its link to root's folder must not have root write there, nor read what only root may."""
    login.parent.mkdir()
    login.symlink_to(fleet.path().parent)
    os.lchown(login, NOBODY.pw_uid, NOBODY.pw_gid)
    fleet.path().parent.chmod(0o755)
    with pytest.raises(Refusal, match="the account nobody cannot write it"):
        fleet.run(fleet.plain(session="login", user="nobody"))
    assert not fleet.path().exists()
