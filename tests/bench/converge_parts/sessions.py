# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Counts what was executed on each host, in the words of the host's own SSH server.

At LogLevel VERBOSE sshd notes each command that a client has it start ("Starting session: command
for ops from ..."; OpenSSH 9.2, session.c). Every tool goes through it, so all are counted alike: a
module that travels through the open connection is one, and so is a helper such as making a
temporary folder. Transfers of files by SFTP are sessions too and counted apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench_parts.command import run

from . import hosts

_SETTING = "etc/ssh/sshd_config.d/bench.conf"


@dataclass(frozen=True)
class Sessions:
    """What one host's SSH server started."""

    commands: int
    transfers: int


class Ledger:
    """Reads the journals of hosts, each from where it was read last."""

    def __init__(self, names: list[str]) -> None:
        self._inside = {name: hosts.inside(name) for name in names}
        self._cursors: dict[str, str] = {}
        for name, enter in self._inside.items():
            (hosts.disk(name) / _SETTING).write_text("LogLevel VERBOSE\n")
            run([*enter, "systemctl", "reload", "ssh"])
        self.read()

    def read(self) -> dict[str, Sessions]:
        """What was started on each host since the last reading."""
        return {name: self._read(name) for name in self._inside}

    def _read(self, name: str) -> Sessions:
        enter = self._inside[name]
        run([*enter, "journalctl", "--sync"])
        cursor = self._cursors.get(name)
        since = [f"--after-cursor={cursor}"] if cursor else []
        text = run(
            [*enter, "journalctl", "--output=cat", "--quiet", "--show-cursor", "_COMM=sshd", *since]
        )
        *lines, last = text.splitlines() or [""]
        # Nothing new: the cursor of before still holds.
        if last.startswith("-- cursor: "):
            self._cursors[name] = last.removeprefix("-- cursor: ")
        started = [line for line in lines if line.startswith("Starting session: ")]
        transfers = sum("subsystem 'sftp'" in line for line in started)
        return Sessions(commands=len(started) - transfers, transfers=transfers)
