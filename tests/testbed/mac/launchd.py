# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The emulated launchd: a supervisor that really runs what property lists describe.

`python3 -m mac.launchd`, as root. Its start is the Mac's boot and its end (SIGTERM) the shutdown:
what a reboot loses is lost, and property lists in /Library/LaunchDaemons are loaded unless
disabled. One thread; launchctl asks over a unix socket, one JSON line each way, and the kernel says
who asks.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import filevault, job_description, pf_state, places, plist_file, printing, store
from .clock import Clock
from .domains import Domain, Overrides
from .job import Job
from .xpc_errors import (
    ALREADY_IN_PROGRESS,
    DISABLED,
    INPUT_OUTPUT,
    NO_SERVICE,
    NO_SUCH_PROCESS,
    WRONG_SESSION,
    LaunchdError,
)

Answer = Callable[[dict[str, Any]], None]


class Launchd:
    """All domains and their jobs."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.jobs: dict[tuple[str, str], Job] = {}

    # The machine.

    def boot(self) -> None:
        """Lose what a reboot loses, and load the daemons of /Library/LaunchDaemons."""
        shutil.rmtree(places.until_reboot(), ignore_errors=True)
        places.until_reboot().mkdir(parents=True)
        places.kept().mkdir(parents=True, exist_ok=True)
        with store.changed(store.until_reboot(store.BOOT)) as content:
            content["time"] = int(time.time())
        pf_state.boot()
        places.call_log().touch()
        places.call_log().chmod(0o666)
        _log("boot")
        if filevault.waits_for_unlock():
            _log("boot: the volume is locked; daemons wait until somebody unlocks it")
            return
        self.load_daemons()

    def load_daemons(self) -> None:
        """Load what is in /Library/LaunchDaemons; whatever is wrong with a file is only logged."""
        for path in sorted(places.place("/Library/LaunchDaemons").glob("*.plist")):
            try:
                # An issue says: since macOS 14 links are not followed at boot, only by bootstrap.
                if path.is_symlink():
                    raise LaunchdError(INPUT_OUTPUT, "a link")
                self._load(Domain("system"), path)
            except LaunchdError as error:
                _log(f"boot: {path}: {error}")

    def shut_down(self) -> None:
        """Ask all processes to end; their ExitTimeOut bounds how long they take."""
        for item in list(self.jobs.values()):
            if not item.removing:
                item.boot_out()

    def reap(self) -> None:
        """Notice processes that ended."""
        for item in list(self.jobs.values()):
            if item.pid:
                pid, status = os.waitpid(item.pid, os.WNOHANG)
                if pid:
                    _log(f"{item.label}: process {pid} ended, wait status {status}")
                    item.ended(status)

    # Requests of launchctl.

    def handle(self, caller: int, request: dict[str, Any], answer: Answer) -> None:
        """Do what launchctl asks for; the answer may come later."""
        verb = request["verb"]
        domain = Domain(request["kind"], request["uid"])
        label = request.get("label", "")
        try:
            if verb == "kickstart":
                self._kickstart(domain, label, caller, request, answer)
                return
            out = self._do(verb, domain, label, caller, request)
            answer({"code": 0, "out": out})
        except LaunchdError as error:
            _log(f"{verb} {domain.name} {label}: {error}")
            answer({"code": error.code, "spoken": domain.spoken, "hint": error.hint})

    def _do(
        self, verb: str, domain: Domain, label: str, caller: int, request: dict[str, Any]
    ) -> str:
        if verb == "bootstrap":
            # An issue says: as another than root it answers the catch-all.
            domain.require_for_change(caller, INPUT_OUTPUT)
            self._load(domain, Path(request["path"]))
        elif verb == "bootout":
            domain.require_for_change(caller)
            self._loaded(domain, label, NO_SUCH_PROCESS).boot_out()
        elif verb in ("enable", "disable"):
            # The record is the account's: it needs no gui domain to be there.
            owner = domain if domain.kind == "system" else Domain("user", domain.uid)
            owner.require_for_change(caller)
            Overrides(domain).set(label, disabled=verb == "disable")
        elif verb == "kill":
            domain.require_for_change(caller)
            self._loaded(domain, label).send(request["signal"])
        elif verb == "unlock":
            filevault.unlock()
            self.load_daemons()
        else:
            return self._tell(verb, domain, label)
        return ""

    def _tell(self, verb: str, domain: Domain, label: str) -> str:
        if verb == "print-disabled":
            return printing.disabled(domain)
        domain.require()
        if verb == "blame":
            return f"{self._loaded(domain, label).reason or '(not running)'}\n"
        if label:
            show = printing.legacy if verb == "list" else printing.job
            return show(domain, self._loaded(domain, label))
        jobs = [item for (name, _), item in self.jobs.items() if name == domain.name]
        return printing.listing(jobs) if verb == "list" else printing.whole_domain(domain, jobs)

    def _kickstart(
        self, domain: Domain, label: str, caller: int, request: dict[str, Any], answer: Answer
    ) -> None:
        domain.require_for_change(caller)
        item = self._loaded(domain, label)
        if not request["wait"]:
            item.kickstart(kill=request["kill"], then=None)
            answer({"code": 0, "out": ""})
            return

        def told(pid: int) -> None:
            answer({"code": 0, "pid": pid} if pid else {"code": INPUT_OUTPUT})

        item.kickstart(kill=request["kill"], then=told)

    def _load(self, domain: Domain, path: Path) -> None:
        plist_file.check(path, domain.uid)
        description = job_description.read(path)
        label = description.label
        if Overrides(domain).disabled(label, description.disabled):
            # An issue says: 119, and the catch-all in a gui domain.
            raise LaunchdError(DISABLED if domain.kind == "system" else INPUT_OUTPUT, "disabled")
        present = self.jobs.get((domain.name, label))
        if present:
            raise LaunchdError(*_why_not_again(present))
        wanted = description.sessions or [domain.sessions[0] if domain.kind == "system" else "Aqua"]
        if not set(wanted) & set(domain.sessions):
            raise LaunchdError(WRONG_SESSION, f"{wanted} in {domain.name}")
        account = description.user if domain.kind == "system" else domain.account
        item = Job(description, domain.name, account, self.clock, self._forget)
        self.jobs[(domain.name, label)] = item
        _log(f"loaded {domain.name}/{label}")
        item.load()

    def _loaded(self, domain: Domain, label: str, absent: int = NO_SERVICE) -> Job:
        item = self.jobs.get((domain.name, label))
        if item is None:
            raise LaunchdError(absent)
        return item

    def _forget(self, item: Job) -> None:
        del self.jobs[(item.domain, item.label)]
        _log(f"removed {item.domain}/{item.label}")


def _why_not_again(present: Job) -> tuple[int, str]:
    """Why a label that is there cannot be loaded.

    Issues say: the catch-all, for one that is loaded and for one that still ends; for the latter
    also 37. Both come here in turn, so that nobody relies on one.
    """
    if not present.removing:
        return INPUT_OUTPUT, "loaded already"
    present.refusals += 1
    code = ALREADY_IN_PROGRESS if present.refusals % 2 else INPUT_OUTPUT
    return code, "it is still being booted out"


def _log(text: str) -> None:
    with (places.kept() / "launchd.log").open("a") as stream:
        stream.write(f"{time.time():.3f} {text}\n")


class Server:
    """Sockets and signals around a Launchd."""

    def __init__(self, launchd: Launchd) -> None:
        self._launchd = launchd
        self._selector = selectors.DefaultSelector()
        self._ending = False
        self._wake_out, wake_in = socket.socketpair()
        for end in (self._wake_out, wake_in):
            end.setblocking(False)
        self._wake_in = wake_in
        signal.set_wakeup_fd(wake_in.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        self._selector.register(self._wake_out, selectors.EVENT_READ, self._woken)
        path = places.socket_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        path.chmod(0o666)
        self._listener.listen(64)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def serve(self) -> None:
        """Until a SIGTERM came and every process has ended."""
        launchd = self._launchd
        while not (self._ending and not launchd.jobs):
            for key, _ in self._selector.select(launchd.clock.seconds_to_next()):
                key.data()
            if self._ending:
                launchd.shut_down()
            launchd.reap()
            launchd.clock.run_due()
        places.socket_path().unlink(missing_ok=True)

    def _end(self, *_: object) -> None:
        self._ending = True

    def _woken(self) -> None:
        self._wake_out.recv(4096)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        # launchctl writes its line at once; whoever does not is left alone.
        connection.settimeout(5)
        try:
            line = connection.makefile("rb").readline()
        except OSError:
            line = b""
        if not line:
            connection.close()
            return
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _, caller, _ = struct.unpack("3i", credentials)

        def answer(reply: dict[str, Any]) -> None:
            try:
                connection.sendall((json.dumps(reply) + "\n").encode())
            except OSError as error:
                _log(f"nobody waits for an answer any more: {error}")
            connection.close()

        self._launchd.handle(caller, json.loads(line), answer)


def _tell_systemd() -> None:
    """On a host of the test bed this is a unit of Type=notify: ssh waits for it."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream:
            stream.connect(address.replace("@", "\0", 1))
            stream.send(b"READY=1")


def main() -> int:
    """Boot, serve, shut down."""
    os.umask(0o022)
    launchd = Launchd()
    server = Server(launchd)
    launchd.boot()
    _tell_systemd()
    server.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
