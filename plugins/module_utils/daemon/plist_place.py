# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where plists lie: the system's folder, and those of accounts with a login session.

An account's folder is its own, so root never writes in it: a link there could lead root anywhere,
/Library/LaunchDaemons among it. What is written there, its account writes. Root does read there, a
plain file of that account's and no more than so long, and believes nothing of it: what is ours
there, ``logins`` says.
"""

from __future__ import annotations

import glob
import os
import pwd
import stat
import subprocess
from dataclasses import dataclass
from typing import List, Optional

from ansible_collections.tether.fleet.plugins.module_utils import files
from ansible_collections.tether.fleet.plugins.module_utils.daemon import commands
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

DAEMONS = "/Library/LaunchDaemons"
_AGENTS = "Library/LaunchAgents"
# Longer plists are nobody's.
_LONGEST = 1024 * 1024
# Accounts' own: it is read at each look.
_LONGEST_OF_ACCOUNT = 128 * 1024
# Seconds for a command as an account, whose folder may be on a server, or made to hang.
_PATIENCE = 30
# Both by rename, so that launchd at login and readers see the old file or the new one.
_WRITE = 'umask 022; mkdir -p "$1" && cat > "$1/.$2.tether" && mv -f "$1/.$2.tether" "$1/$2"'
_REMOVE = 'rm -f "$1/$2"'


@dataclass(frozen=True)
class Place:
    """A domain of launchd, and the folder of its plists.

    :ivar domain: ``system`` or ``gui/UID``
    :ivar account: of the login session; "" for the system's
    :ivar home: of that account
    """

    domain: str
    folder: str
    account: str = ""
    home: str = ""
    uid: int = 0
    gid: int = 0

    def path(self, label: str) -> str:
        return os.path.join(self.folder, label + ".plist")

    def target(self, label: str) -> str:
        """A label as launchctl takes it."""
        return "%s/%s" % (self.domain, label)

    def shown(self, label: str) -> str:
        """A label as a person would say it: with its session, where that is not the system's."""
        return "%s (session of %s)" % (label, self.account) if self.account else label

    def read(self, label: str) -> Optional[bytes]:
        """The bytes of a plist; None where there is no such file, or none of the place's owner."""
        flags = os.O_RDONLY | os.O_NONBLOCK | (os.O_NOFOLLOW if self.account else 0)
        try:
            handle = os.open(self.path(label), flags)
        except OSError:
            return None
        try:
            return self._checked(handle)
        except OSError:  # an account's folder may be on a server
            return None
        finally:
            os.close(handle)

    def _checked(self, handle: int) -> Optional[bytes]:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or (self.account and status.st_uid != self.uid):
            return None
        longest = _LONGEST_OF_ACCOUNT if self.account else _LONGEST
        with open(handle, "rb", closefd=False) as stream:
            data = stream.read(longest + 1)
        # Whatever it is, it is none of ours.
        return b"" if len(data) > longest else data

    def is_trusted(self, label: str) -> bool:
        """Whether owner and mode are as they are written here; launchd takes no other (122)."""
        if not self.account:
            return files.is_roots(self.path(label), 0o644)
        try:
            status = os.lstat(self.path(label))
        except OSError:
            return False
        return status.st_uid == self.uid and stat.S_IMODE(status.st_mode) == 0o644

    def write(self, label: str, text: str) -> None:
        data = text.encode("utf-8")
        if self.account:
            self._as_account(_WRITE, label, data)
        else:
            files.write_file(self.path(label), data, 0o644, 0, 0)

    def remove(self, label: str) -> None:
        if self.account:
            self._as_account(_REMOVE, label)
        elif os.path.lexists(self.path(label)):
            os.unlink(self.path(label))

    def _as_account(self, script: str, label: str, data: bytes = b"") -> None:
        argv = ["/bin/sh", "-c", script, "sh", self.folder, label + ".plist"]
        try:
            done = subprocess.run(
                argv,
                input=data,
                capture_output=True,
                cwd="/",
                # Root's own is none of the account's business.
                env={"PATH": "/usr/bin:/bin"},
                timeout=_PATIENCE,
                user=self.uid,
                group=self.gid,
                extra_groups=[],
                check=False,
            )
        except subprocess.TimeoutExpired:
            problem = "no answer within %d s" % _PATIENCE
        except (OSError, subprocess.SubprocessError) as error:
            problem = str(error)
        else:
            problem = commands.said(_as_text(done)) if done.returncode != 0 else ""
        if problem:
            raise Refusal(
                "plist %s" % self.path(label),
                "that the account %s cannot write it: %s" % (self.account, problem),
                "a folder of its own",
                "Mend that folder's owner and mode",
            )


def _as_text(done: subprocess.CompletedProcess[bytes]) -> subprocess.CompletedProcess[str]:
    said = done.stderr.decode("utf-8", "replace")
    return subprocess.CompletedProcess(done.args, done.returncode, "", said)


SYSTEM = Place("system", DAEMONS)


def of_login(account: str) -> Place:
    """The place of an account's login session.

    :raises Refusal: when there is no such account
    """
    try:
        item = pwd.getpwnam(account)
    except KeyError:
        raise Refusal(
            "login session of %s" % account,
            "no such account",
            "an account that somebody logs in with at the screen",
            "Make that account in System Settings, or use session=system",
        ) from None
    return session(account, item.pw_dir, item.pw_uid, item.pw_gid)


def session(account: str, home: str, uid: int, gid: int) -> Place:
    """The place of a login session, of an account that need not be there any more."""
    return Place("gui/%d" % uid, os.path.join(home, _AGENTS), account, home, uid, gid)


def labels(place: Place, prefix: str) -> List[str]:
    """Labels that begin so, by the names of the plists there."""
    pattern = os.path.join(glob.escape(place.folder), glob.escape(prefix) + "*.plist")
    return sorted(os.path.basename(path)[: -len(".plist")] for path in glob.glob(pattern))
