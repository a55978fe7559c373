# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Talks to launchd: runs launchctl and says what its exit statuses mean.

Nothing of this was run on a Mac when it was written. What it relies on, and from where:

* ``bootout`` answers 0 while the process still runs, and the label is known until it has ended
  (measured on macOS 26.5.1). ``bootout --wait`` is a usage error (64) on macOS 15, so nobody waits
  with it here: ``print`` is asked until it answers 113, which alone means that a label is gone;
  ``state = SIGTERMed`` does not.
* A ``bootstrap`` that comes too early fails with 5 or 37 for about 5 s (issues of several
  projects).
* An override of ``disable`` outlives the plist and a reinstallation (measured on macOS 26.5.1), and
  a ``bootstrap`` of a disabled label fails with 119, in a gui domain with 5 (issues say both).
* gui/UID is there only while that account is logged in at the screen; over ssh it is answered with
  125 or 112 (issues say both).
"""

from __future__ import annotations

import subprocess
from typing import Dict, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.daemon import commands, launchd_job
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

ABSENT = 3
NO_DOMAIN = 112
NOT_FOUND = 113
DISABLED = 119
WRONG_DOMAIN = 125
# In progress, or anything at all: it may be otherwise a moment later.
PASSING = (5, 36, 37)
# A domain that is not there.
_NO_SESSION = (NO_DOMAIN, WRONG_DOMAIN)

# Status of launchctl -> (found, expected, remedy). The numbers are those of launchctl error N,
# measured on macOS 26.5.1, but for 3 and 155, which issues name.
STATUSES: Dict[int, Tuple[str, str, str]] = {
    ABSENT: (
        "that the label is not loaded (status 3)",
        "it to be loaded",
        "Run the playbook again: it loads what is to run",
    ),
    5: (
        "status 5, launchd's answer to everything that has no number of its own: a label that is"
        " loaded already or still ends, one that is disabled, a plist that it cannot read",
        "status 0",
        "Look for the reason in the system's log: sudo log show --last 5m --info --predicate"
        ' \'process == "launchd" OR process == "xpcproxy"\'',
    ),
    36: (
        "that it is still busy with this label (status 36)",
        "an answer within seconds",
        "Run the playbook again; if it stays so, look why the process does not end",
    ),
    37: (
        "that the label is loaded already or still ends (status 37)",
        "it to be gone within seconds",
        "Run the playbook again; if it stays so, look why the process does not end",
    ),
    64: (
        "that this launchctl does not know the command (status 64)",
        "launchctl as macOS has it",
        "Look which program it is (type launchctl), and for the version of macOS (sw_vers)",
    ),
    NO_DOMAIN: (
        "no such domain (status 112): nobody of that account is logged in at the screen",
        "a login session, which an ssh connection is not",
        "Log in at the screen, or use session=system, which needs no login",
    ),
    NOT_FOUND: (
        "that the label is not known (status 113)",
        "it to be loaded",
        "Look in System Settings, General, Login Items whether somebody switched it off there",
    ),
    DISABLED: (
        "that the label is disabled (status 119)",
        "it to be enabled",
        "Find out who disables it: it was enabled a moment before",
    ),
    122: (
        "a plist whose owner or mode launchd does not trust (status 122)",
        "a file of root's, or of the session's account, that nobody else may write",
        "Run the playbook again: it sets both; then find out what changes them",
    ),
    WRONG_DOMAIN: (
        "that this domain cannot do so (status 125): over ssh there is no login session of that"
        " account",
        "somebody of that account to be logged in at the screen",
        "Log in at the screen, or use session=system, which needs no login",
    ),
    134: (
        "that the plist is for sessions of another kind (status 134)",
        "a plist without LimitLoadToSessionType",
        "Run the playbook again: it writes the plist anew",
    ),
    155: (
        "a plist or program in quarantine, as what was downloaded with a browser is (status 155)",
        "files without the attribute com.apple.quarantine",
        "Remove it: sudo xattr -d com.apple.quarantine FILE",
    ),
}


class NoSessionError(Exception):
    """The domain of a login session is not there: nobody of that account is logged in."""


def call(*argv: str) -> subprocess.CompletedProcess[str]:
    return commands.run(["launchctl", *argv], timeout=60)


def look(target: str) -> Optional[launchd_job.Job]:
    """What launchd has loaded as ``system/LABEL`` or ``gui/UID/LABEL``; None when nothing.

    :raises NoSessionError: when there is no such domain
    """
    done = call("print", target)
    if done.returncode == 0:
        return launchd_job.parse(done.stdout)
    if done.returncode == NOT_FOUND:
        return None
    if done.returncode in _NO_SESSION and not target.startswith("system/"):
        raise NoSessionError
    raise refusal(done)


def disabled(domain: str) -> Dict[str, bool]:
    """Whether labels of a domain are disabled; those without an override are not in it."""
    done = call("print-disabled", domain)
    if done.returncode == 0:
        return launchd_job.overrides(done.stdout)
    if domain == "system":
        raise refusal(done)
    return {}


def must(*argv: str) -> None:
    done = call(*argv)
    if done.returncode != 0:
        raise refusal(done)


def refusal(done: subprocess.CompletedProcess[str]) -> Refusal:
    """What a failed call means, as a refusal."""
    found, expected, remedy = _meaning(done)
    return Refusal(" ".join(done.args), found, expected, remedy)


def in_words(done: subprocess.CompletedProcess[str]) -> str:
    """The same as one sentence of a daemon's reason."""
    found, expected, remedy = _meaning(done)
    return "launchd says %s; expected %s. %s" % (found, expected, remedy)


def _meaning(done: subprocess.CompletedProcess[str]) -> Tuple[str, str, str]:
    if done.returncode in STATUSES:
        return STATUSES[done.returncode]
    return (
        "status %d: %s" % (done.returncode, commands.said(done)),
        "status 0",
        "Ask what it means (launchctl error %d), and look in the system's log, for which"
        " docs/macs.md has the command" % done.returncode,
    )
