# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Error numbers of the emulated launchd: launchctl prints them, and they are its exit statuses.

Measured with `launchctl error N` on macOS 26.5.1, and listed by public reports; 155 is from the
table of texts in Darling's source (source read).
"""

from __future__ import annotations

NOT_PERMITTED = 1
NO_SUCH_PROCESS = 3
INPUT_OUTPUT = 5
IN_PROGRESS = 36
ALREADY_IN_PROGRESS = 37
NO_DOMAIN = 112
NO_SERVICE = 113
DISABLED = 119
BAD_OWNERSHIP = 122
WRONG_DOMAIN = 125
WRONG_SESSION = 134
QUARANTINED = 155

TEXTS = {
    NOT_PERMITTED: "Operation not permitted",
    NO_SUCH_PROCESS: "No such process",
    INPUT_OUTPUT: "Input/output error",
    IN_PROGRESS: "Operation now in progress",
    ALREADY_IN_PROGRESS: "Operation already in progress",
    NO_DOMAIN: "Could not find specified domain",
    NO_SERVICE: "Could not find specified service",
    DISABLED: "Service is disabled",
    BAD_OWNERSHIP: "Path had bad ownership/permissions",
    WRONG_DOMAIN: "Domain does not support specified action",
    WRONG_SESSION: "Service cannot load in requested session",
    QUARANTINED: "Refusing to execute/trust quarantined program/file",
}
# What `print` adds to an exit status that sysexits.h has a name for. Measured: "78: EX_CONFIG".
SYSEXITS = {
    64: "EX_USAGE",
    65: "EX_DATAERR",
    66: "EX_NOINPUT",
    67: "EX_NOUSER",
    68: "EX_NOHOST",
    69: "EX_UNAVAILABLE",
    70: "EX_SOFTWARE",
    71: "EX_OSERR",
    72: "EX_OSFILE",
    73: "EX_CANTCREAT",
    74: "EX_IOERR",
    75: "EX_TEMPFAIL",
    76: "EX_PROTOCOL",
    77: "EX_NOPERM",
    78: "EX_CONFIG",
}
EX_CONFIG = 78


class LaunchdError(Exception):
    """A request that the emulated launchd refuses.

    :param why: for the emulation's log; the real launchd does not tell launchctl either
    :param hint: what the emulation lacks, which launchctl says here besides
    """

    def __init__(self, code: int, why: str = "", hint: str = "") -> None:
        super().__init__(": ".join(filter(None, (str(code), TEXTS[code], why, hint))))
        self.code = code
        self.hint = hint
