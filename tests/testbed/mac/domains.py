# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Domains of the emulated launchd: which there are, who may change them, what is disabled there."""

from __future__ import annotations

import plistlib
import pwd
from dataclasses import dataclass
from pathlib import Path

from . import places, store
from .xpc_errors import NO_DOMAIN, NOT_PERMITTED, WRONG_DOMAIN, LaunchdError

SESSIONS = "sessions"
"""Document of the accounts that are logged in at the screen; until the next reboot."""


def log_in(uid: int) -> None:
    """Open a session at the screen for an account; a test does, no tool of a Mac can."""
    with store.changed(store.until_reboot(SESSIONS)) as content:
        content[str(uid)] = True


@dataclass(frozen=True)
class Domain:
    """`system`, `user/UID` or `gui/UID`."""

    kind: str
    uid: int = 0

    @property
    def name(self) -> str:
        return "system" if self.kind == "system" else f"{self.kind}/{self.uid}"

    @property
    def spoken(self) -> str:
        """As launchctl's messages say it; measured for system and gui."""
        return {
            "system": "system",
            "user": f"user: {self.uid}",
            "gui": f"user gui: {self.uid}",
        }[self.kind]

    @property
    def account(self) -> str:
        """Whose domain it is."""
        return pwd.getpwuid(self.uid).pw_name

    @property
    def sessions(self) -> tuple[str, ...]:
        """Session types (LimitLoadToSessionType) of jobs that may load here."""
        return {"system": ("System",), "user": ("Background",), "gui": ("Aqua", "LoginWindow")}[
            self.kind
        ]

    def exists(self) -> bool:
        """Whether the domain is there.

        An issue says: gui/UID is there only while that account is logged in at the screen; over ssh
        it is not. user/UID needs no login (launchctl(1)).
        """
        if self.kind == "system":
            return True
        try:
            pwd.getpwuid(self.uid)
        except KeyError:
            return False
        return self.kind == "user" or str(self.uid) in store.read(store.until_reboot(SESSIONS))

    def require(self) -> None:
        """For requests that read.

        :raises LaunchdError: 112 (measured: `print gui/424242`)
        """
        if not self.exists():
            raise LaunchdError(NO_DOMAIN)

    def require_for_change(self, caller: int, refusal: int = NOT_PERMITTED) -> None:
        """For requests that change something.

        :param refusal: what somebody gets who may not change the system domain
        :raises LaunchdError: 125 where the domain is not there (an issue says: gui over ssh)
        """
        if not self.exists():
            raise LaunchdError(WRONG_DOMAIN if self.kind == "gui" else NO_DOMAIN)
        if caller in (0, self.uid):
            return
        raise LaunchdError(refusal if self.kind == "system" else WRONG_DOMAIN)


class Overrides:
    """What `enable` and `disable` said; outlives bootout, reinstallation and reboot.

    Measured on macOS 26.5.1: a flat map of labels in /var/db/com.apple.xpc.launchd, one for the
    system domain and one for each account, which its user and gui domains share.
    """

    def __init__(self, domain: Domain) -> None:
        name = "disabled.plist" if domain.kind == "system" else f"disabled.{domain.uid}.plist"
        self._path = places.place("/var/db/com.apple.xpc.launchd") / name

    def all(self) -> dict[str, bool]:
        """Labels; true means disabled."""
        return _read(self._path)

    def disabled(self, label: str, default: bool) -> bool:
        """Whether a label is disabled; `default` is its property list's word on it."""
        return self.all().get(label, default)

    def set(self, label: str, *, disabled: bool) -> None:
        """Remember what was said of a label, also where no job of that name exists."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".new")
        temporary.write_bytes(plistlib.dumps({**self.all(), label: disabled}))
        temporary.replace(self._path)


def _read(path: Path) -> dict[str, bool]:
    if not path.exists():
        return {}
    content = plistlib.loads(path.read_bytes())
    return {str(label): bool(value) for label, value in content.items()}
