# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An emulated Mac below a temporary folder, for tests that need no host. Needs root."""

from __future__ import annotations

import json
import plistlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import install, places

# Tests wait for events; this only bounds how long a broken one takes to fail.
DEADLINE = 20


class EmulatedMac:
    """An emulated Mac: its root, its programs, its boots."""

    def __init__(self) -> None:
        # Short, as a socket's path must be; and others than root may enter it.
        self.root = Path(tempfile.mkdtemp(prefix="emulated-mac-"))
        self.root.chmod(0o755)
        install.programs(self.root, str(self.root))
        self._launchd: subprocess.Popen[bytes] | None = None
        self._environment = {places.ROOT_VARIABLE: str(self.root)}

    def boot(self) -> None:
        """Start the emulated launchd, and wait until it has loaded its daemons."""
        with (self.root / "launchd.out").open("ab") as log:
            self._launchd = subprocess.Popen(
                [str(self.root / install.LIBRARY / "emulated-launchd")],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.wait(lambda: self.rc("launchctl", "print", "system") == 0, "launchd answers")

    def shut_down(self) -> None:
        """End the emulated launchd, which ends its jobs first."""
        if self._launchd:
            self._launchd.send_signal(signal.SIGTERM)
            self._launchd.wait(DEADLINE)
            self._launchd = None

    def reboot(self) -> None:
        self.shut_down()
        self.boot()

    def destroy(self) -> None:
        """End everything and delete the root."""
        if self._launchd:
            # Its jobs die with it, whatever they do with a SIGTERM.
            self._launchd.kill()
            self._launchd.wait(DEADLINE)
        shutil.rmtree(self.root)

    def place(self, path: str) -> Path:
        """An absolute path of the Mac, as a path of this machine."""
        return self.root / path.lstrip("/")

    def run(
        self, tool: str, *words: str, uid: int = 0, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the Mac."""
        return subprocess.run(
            [str(self.root / install.PROGRAMS[tool]), *words],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE,
            cwd="/",
            env=self._environment,
            user=uid or None,
            group=uid or None,
            extra_groups=[] if uid else None,
        )

    def rc(self, tool: str, *words: str, uid: int = 0) -> int:
        """Run a program of the Mac; its exit status."""
        return self.run(tool, *words, uid=uid).returncode

    def python(self, code: str) -> None:
        """Run a line of Python that changes the emulation itself: what no tool of a Mac can do."""
        library = str(self.root / install.LIBRARY)
        start = f"import sys; sys.path.insert(0, {library!r}); "
        subprocess.run(
            ["/usr/bin/python3", "-ISc", start + code], env=self._environment, check=True
        )

    def calls(self) -> list[dict[str, Any]]:
        """The log of tools' calls."""
        lines = (self.root / "var/db/emulated-mac/calls.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def offences(self) -> list[str]:
        """Tools that were used as a careful guest never does."""
        path = self.root / "var/db/emulated-mac/offences.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line)["tool"] for line in lines]

    # Jobs.

    def daemon(self, label: str, command: str = "exec sleep 1000", **keys: Any) -> Path:
        """Write a property list to /Library/LaunchDaemons; `command` is run by sh."""
        path = self.place(f"/Library/LaunchDaemons/{label}.plist")
        content = {"Label": label, "ProgramArguments": ["/bin/sh", "-c", command], **keys}
        path.write_bytes(plistlib.dumps(content))
        path.chmod(0o644)
        return path

    def load(self, label: str, command: str = "exec sleep 1000", **keys: Any) -> str:
        """Write a property list and bootstrap it; its service target."""
        path = self.daemon(label, command, **keys)
        done = self.run("launchctl", "bootstrap", "system", str(path))
        assert done.returncode == 0, done
        return f"system/{label}"

    def printed(self, target: str) -> str:
        """What `print` says of a target; nothing where there is none."""
        return self.run("launchctl", "print", target).stdout

    def field(self, target: str, key: str) -> str:
        """A job's own value of a key: by its single tab, as blocks repeat keys."""
        found = re.search(rf"^\t{re.escape(key)} = (.*)$", self.printed(target), re.M)
        return found[1] if found else ""

    def wait_field(self, target: str, key: str, value: str) -> None:
        """Wait until a job shows a value."""
        self.wait(lambda: self.field(target, key) == value, f"{target} has {key} = {value}")

    def wait_gone(self, target: str) -> None:
        """Wait until launchd does not know a job any more."""
        gone = lambda: self.rc("launchctl", "print", target) == 113  # noqa: E731
        self.wait(gone, f"{target} is gone")

    @staticmethod
    def wait(condition: Callable[[], bool], what: str) -> None:
        """Wait for something; say what when it never comes."""
        deadline = time.monotonic() + DEADLINE
        while not condition():
            if time.monotonic() > deadline:
                print(f"waited {DEADLINE} s in vain: {what}", file=sys.stderr)
                raise TimeoutError(what)
            time.sleep(0.05)
