# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the emulated `launchctl print` shows.

The layout follows output that people published of macOS 26.5.1, 26.6 and 27.0 (measured there):
tab-indented `key = value`, blocks in braces, blank lines between groups. Blocks hold keys of the
same names as the job's own (`state = active`, `active count = 1`), which trap whoever does not look
at the indentation; so they are here too. Numbers of coalitions mean nothing.
"""

from __future__ import annotations

import grp
import pwd
import signal
from collections.abc import Iterable

from . import machine
from .domains import Domain, Overrides
from .job import RUNNING, Ending, Job
from .job_description import SPAWN_TYPES
from .spawn import DEFAULT_PATH
from .xpc_errors import SYSEXITS

_SIGNAL_NAMES = {
    signal.SIGHUP: "Hangup",
    signal.SIGINT: "Interrupt",
    signal.SIGKILL: "Killed",
    signal.SIGTERM: "Terminated",
    signal.SIGABRT: "Abort trap",
    signal.SIGSEGV: "Segmentation fault",
    signal.SIGBUS: "Bus error",
    signal.SIGTRAP: "Trace/BPT trap",
    signal.SIGILL: "Illegal instruction",
    signal.SIGFPE: "Floating point exception",
}


def job(domain: Domain, item: Job) -> str:
    """`print DOMAIN/LABEL`. Everybody may read it, the environment included."""
    wants = item.description
    kind = "LaunchDaemon" if domain.kind == "system" else "LaunchAgent"
    lines = [
        f"active count = {1 if item.pid else 0}",
        f"path = {wants.path}",
        f"type = {kind}",
        f"state = {item.state}",
        "",
        f"program = {wants.program}",
        *_block("arguments", wants.arguments),
        "",
    ]
    if wants.directory:
        lines += [f"working directory = {wants.directory}", ""]
    lines += [f"stdout path = {wants.stdout}"] if wants.stdout else []
    lines += [f"stderr path = {wants.stderr}"] if wants.stderr else []
    lines += [*_block("default environment", [f"PATH => {DEFAULT_PATH}"]), ""]
    shown = {"OSLogRateLimit": "64", **wants.environment, "XPC_SERVICE_NAME": item.label}
    lines += [*_block("environment", [f"{key} => {text}" for key, text in shown.items()]), ""]
    lines += _identity(domain, item)
    lines += [
        f"minimum runtime = {wants.throttle}",
        f"exit timeout = {wants.exit_timeout}",
        *([f"nice = {wants.nice}"] if wants.nice else []),
        f"runs = {item.runs}",
        *_process(item),
        *_last_end(item),
        "",
        *_semaphores(item),
        *_coalition("resource", item),
        *_coalition("jetsam", item),
        f"spawn type = {SPAWN_TYPES[wants.process_type]}",
        "jetsam priority = 40",
        "jetsam memory limit (active) = (unlimited)",
        "jetsam memory limit (inactive) = (unlimited)",
        "jetsamproperties category = daemon",
        "jetsam thread limit = 32",
        "cpumon = default",
        *([f"run interval = {wants.start_interval} seconds"] if wants.start_interval else []),
        f"job state = {_job_state(item)}",
        "sanitizer flags = 0x0",
        "",
        f"properties = {' | '.join(_properties(item))}",
    ]
    return _braces(f"{domain.name}/{item.label}", lines)


def whole_domain(domain: Domain, jobs: Iterable[Job]) -> str:
    """`print DOMAIN`: its jobs, and what is disabled."""
    items = list(jobs)
    rows = [
        f"{item.pid:>8} {exit_text(item.last) if item.last else '-':>6} \t{item.label}"
        for item in items
    ]
    lines = [
        f"type = {domain.kind}",
        f"handle = {domain.uid}",
        f"active count = {len(items) + 1}",
        f"service count = {len(items)}",
        f"active service count = {sum(1 for item in items if item.pid)}",
        "",
        *_block("services", rows),
        "",
        *_block("disabled services", _disabled(domain)),
    ]
    return _braces(domain.name, lines)


def disabled(domain: Domain) -> str:
    """`print-disabled DOMAIN`: labels that somebody enabled or disabled; others have no override.

    Measured on macOS 26: disabled and enabled; older ones say true and false (since when is
    inferred).
    """
    block = _block("disabled services", _disabled(domain))
    return "".join(f"\t{line}\n" for line in block)


def listing(jobs: Iterable[Job]) -> str:
    """`launchctl list`."""
    rows = ["PID\tStatus\tLabel"]
    rows += [
        f"{item.pid or '-'}\t{exit_text(item.last) if item.last else '0'}\t{item.label}"
        for item in jobs
    ]
    return "\n".join(rows) + "\n"


def legacy(domain: Domain, item: Job) -> str:
    """`launchctl list LABEL`; measured: the status is the raw one of wait(2)."""
    wants, last = item.description, item.last or Ending()
    rows = [
        f'"LimitLoadToSessionType" = "{domain.sessions[0]}";',
        f'"Label" = "{item.label}";',
        f'"OnDemand" = {str(not wants.keep_alive).lower()};',
        f'"LastExitStatus" = {last.signal or last.status << 8};',
        *([f'"PID" = {item.pid};'] if item.pid else []),
        f'"Program" = "{wants.program}";',
        '"ProgramArguments" = (',
        *(f'\t"{word}";' for word in wants.arguments),
        ");",
    ]
    inner = "".join(f"\t{row}\n" for row in rows)
    return f"{{\n{inner}}};\n"


def exit_text(ending: Ending) -> str:
    """An end as a number: a status, or a signal made negative."""
    return str(-ending.signal if ending.signal else ending.status)


def _identity(domain: Domain, item: Job) -> list[str]:
    if domain.kind != "system":
        number = 100000 + domain.uid
        return [f"domain = {domain.name} [{number}]", f"asid = {number}"]
    lines = ["domain = system"]
    wants = item.description
    if wants.user:
        lines.append(f"username = {wants.user}")
    group = wants.group or (_primary_group(wants.user) if wants.user else "")
    return [*lines, *([f"group = {group}"] if group else [])]


def _primary_group(user: str) -> str:
    try:
        return grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name
    except KeyError:
        return ""


def _process(item: Job) -> list[str]:
    if not item.pid:
        return []
    return [
        f"pid = {item.pid}",
        f"immediate reason = {item.reason}",
        "forks = 0",
        f"execs = {item.execs}",
        "initialized = 1",
        "trampolined = 1",
        "started suspended = 0",
        "proxy started suspended = 0",
    ]


def _last_end(item: Job) -> list[str]:
    if item.last is None:
        return ["last exit code = (never exited)"]
    if item.last.signal:
        number = item.last.signal
        name = _SIGNAL_NAMES.get(signal.Signals(number), signal.Signals(number).name)
        return [f"last terminating signal = {name}: {number}"]
    name = SYSEXITS.get(item.last.status, "")
    return [f"last exit code = {item.last.status}" + (f": {name}" if name else "")]


def _semaphores(item: Job) -> list[str]:
    names = {"SuccessfulExit": "successful exit", "Crashed": "crashed"}
    rows = [f"{names[k]} => {int(v)}" for k, v in item.description.keep_alive_if.items()]
    return [*_block("semaphores", rows), ""] if rows else []


def _coalition(kind: str, item: Job) -> list[str]:
    rows = [
        "ID = 1",
        f"type = {kind}",
        "state = active",
        "active count = 1",
        f"name = {item.label}",
    ]
    return [*_block(f"{kind} coalition", rows), ""]


def _job_state(item: Job) -> str:
    if item.state == RUNNING or item.pid:
        return "running"
    if item.problem:
        return "spawn failed"
    return "exited" if item.last else "uninitialized"


def _properties(item: Job) -> list[str]:
    wants = item.description
    found = []
    if wants.keep_alive:
        found.append("keepalive")
    if wants.run_at_load or wants.keep_alive_if:
        found.append("runatload")
    if not wants.has_program:
        found.append("inferred program")
    return found


def _disabled(domain: Domain) -> list[str]:
    said = Overrides(domain).all()
    words = {True: "disabled", False: "enabled"}
    if machine.major() < 13:
        words = {True: "true", False: "false"}
    return [f'"{label}" => {words[value]}' for label, value in sorted(said.items())]


def _block(name: str, rows: Iterable[str]) -> list[str]:
    return [f"{name} = {{", *(f"\t{row}" for row in rows), "}"]


def _braces(name: str, lines: Iterable[str]) -> str:
    inner = "".join(f"\t{line}\n" if line else "\n" for line in lines)
    return f"{name} = {{\n{inner}}}\n"
