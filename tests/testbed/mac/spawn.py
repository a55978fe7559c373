# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Starting a job's process as the emulated launchd does: xpcproxy's part, from fork to exec."""

from __future__ import annotations

import contextlib
import ctypes
import grp
import os
import pwd
import resource
import signal
from dataclasses import dataclass

from .job_description import JobDescription
from .xpc_errors import EX_CONFIG

# Measured: `default environment` of print.
DEFAULT_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
# macOS gives daemons this many open files unless their plist asks for more (launchctl limit).
_OPEN_FILES = 256
_RESOURCES = {
    "NumberOfFiles": resource.RLIMIT_NOFILE,
    "NumberOfProcesses": resource.RLIMIT_NPROC,
    "Core": resource.RLIMIT_CORE,
    "FileSize": resource.RLIMIT_FSIZE,
    "MemoryLock": resource.RLIMIT_MEMLOCK,
    "Stack": resource.RLIMIT_STACK,
    "Data": resource.RLIMIT_DATA,
}
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass
class Started:
    """A process that was forked; `problem` says why it never became the job's program."""

    pid: int
    problem: str


def environment(description: JobDescription, label: str, account: str = "") -> dict[str, str]:
    """The environment of a job's process.

    In the system domain nothing else is set: no HOME, USER or SHELL (an issue says: headless
    daemons need HOME and PATH in their plist). Agents get those of their account.
    """
    result = {"PATH": DEFAULT_PATH}
    if account:
        entry = pwd.getpwnam(account)
        result |= {"HOME": entry.pw_dir, "USER": account, "LOGNAME": account, "SHELL": "/bin/zsh"}
    result |= {"XPC_FLAGS": "0x0", "OSLogRateLimit": "64"}
    return {**result, **description.environment, "XPC_SERVICE_NAME": label}


def start(description: JobDescription, account: str, env: dict[str, str]) -> Started:
    """Fork, become what the description says, and run its program.

    :param account: whom the process runs as; empty for root
    """
    for path in (description.stdout, description.stderr):
        if path:
            _make_log_directory(path)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(description, account, env, writing)
    os.close(writing)
    with os.fdopen(reading) as stream:
        # The program's exec closes the pipe; until then the child may still write why it fails.
        return Started(pid, stream.read())


def _make_log_directory(path: str) -> None:
    """The parent of a log is made by root, before privileges are dropped, for root alone.

    Source read (xpcproxy's mkpath_np(dirname, 0766), less launchd's mask): no execute bit for
    others, so that a job with a UserName cannot reach the log in it.
    """
    missing = []
    directory = os.path.dirname(path)
    while directory and not os.path.isdir(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    for name in reversed(missing):
        os.mkdir(name)
        os.chmod(name, 0o744)


def _become(description: JobDescription, account: str, env: dict[str, str], problems: int) -> None:
    """In the child: never returns."""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        _limit(description)
        os.nice(description.nice)
        _drop_privileges(description, account)
        # A Mac without launchd is a dead Mac: no job survives it. Set last, as a change of user
        # takes the setting away.
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.umask(description.umask)
        os.chdir(description.directory or "/")
        _open_streams(description)
        os.execve(_program(description), description.arguments, env)  # noqa: S606
    except BaseException as error:  # noqa: BLE001 (whatever it is, the child must end here)
        os.write(problems, str(error).encode())
    finally:
        os._exit(EX_CONFIG)


def _program(description: JobDescription) -> str:
    """A name without a slash is looked up on the default path, not on the plist's PATH."""
    if "/" in description.program or description.has_program:
        return description.program
    for directory in DEFAULT_PATH.split(":"):
        path = os.path.join(directory, description.program)
        if os.access(path, os.X_OK):
            return path
    return description.program


def _limit(description: JobDescription) -> None:
    soft = {"NumberOfFiles": _OPEN_FILES, **description.soft_limits}
    for key in {**soft, **description.hard_limits}:
        kind = _RESOURCES[key]
        ceiling = resource.getrlimit(kind)[1]
        hard = _at_most(description.hard_limits.get(key, ceiling), ceiling)
        # This machine's ceiling bounds both: root may be unable to raise it here.
        resource.setrlimit(kind, (_at_most(soft.get(key, hard), hard), hard))


def _at_most(value: int, ceiling: int) -> int:
    return value if ceiling == resource.RLIM_INFINITY else min(value, ceiling)


def _drop_privileges(description: JobDescription, account: str) -> None:
    if not account and not description.group:
        return
    entry = pwd.getpwnam(account or "root")
    group = grp.getgrnam(description.group).gr_gid if description.group else entry.pw_gid
    if description.init_groups:
        os.initgroups(entry.pw_name, group)
    else:
        os.setgroups([group])
    os.setgid(group)
    os.setuid(entry.pw_uid)


def _open_streams(description: JobDescription) -> None:
    """Logs are opened by the account, not by root (an issue says: a 0600 log of root gives 78)."""
    streams = [
        os.open(os.devnull, os.O_RDONLY),
        _open_log(description.stdout),
        _open_log(description.stderr),
    ]
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    for descriptor in streams:
        if descriptor > 2:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _open_log(path: str) -> int:
    return os.open(path or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
