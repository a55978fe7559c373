# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reading a job's property list as the emulated launchd does: keys of launchd.plist(5), checked.

The real launchd ignores keys that it does not know and values of a wrong type. Here both are
refused (a typing mistake would go unseen otherwise), and so is a key that the emulation does not
act on.
"""

from __future__ import annotations

import plistlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from .xpc_errors import INPUT_OUTPUT, LaunchdError

# launchd.plist(5): a job is not started more often than this. Zero is ignored (source read:
# "ThrottleInterval set to zero. You're not that important. Ignoring.").
THROTTLE_SECONDS = 10
# Measured: `launchctl print` says "exit timeout = 5" on macOS 26.5.1, 26.6 and 27.0 where a plist
# does not set ExitTimeOut. Older manuals say 20; the shorter time is the stricter one.
EXIT_TIMEOUT_SECONDS = 5

# `spawn type` of print, by ProcessType (measured: daemon (3), interactive (4), background (5);
# adaptive is inferred).
SPAWN_TYPES = {
    "Standard": "daemon (3)",
    "Interactive": "interactive (4)",
    "Background": "background (5)",
    "Adaptive": "adaptive (6)",
}
_SESSIONS = ("Aqua", "Background", "LoginWindow", "StandardIO", "System")
_KEYS: dict[str, tuple[type, ...]] = {
    "Label": (str,),
    "Disabled": (bool,),
    "UserName": (str,),
    "GroupName": (str,),
    "InitGroups": (bool,),
    "Program": (str,),
    "ProgramArguments": (list,),
    "KeepAlive": (bool, dict),
    "RunAtLoad": (bool,),
    "StartInterval": (int,),
    "StartCalendarInterval": (dict, list),
    "ThrottleInterval": (int,),
    "ExitTimeOut": (int,),
    "WorkingDirectory": (str,),
    "EnvironmentVariables": (dict,),
    "Umask": (int, str),
    "StandardOutPath": (str,),
    "StandardErrorPath": (str,),
    "SoftResourceLimits": (dict,),
    "HardResourceLimits": (dict,),
    "Nice": (int,),
    "ProcessType": (str,),
    "AbandonProcessGroup": (bool,),
    "LimitLoadToSessionType": (str, list),
    # No effect that the emulation could show.
    "LowPriorityIO": (bool,),
    "LegacyTimers": (bool,),
    "EnableTransactions": (bool,),
    "SessionCreate": (bool,),
    "AssociatedBundleIdentifiers": (str, list),
}
_KEEP_ALIVE_KEYS = ("SuccessfulExit", "Crashed")
_LIMITS = ("NumberOfFiles", "NumberOfProcesses", "Core", "FileSize", "MemoryLock", "Stack", "Data")
_CALENDAR = {
    "Minute": (0, 59),
    "Hour": (0, 23),
    "Day": (1, 31),
    "Weekday": (0, 7),
    "Month": (1, 12),
}


@dataclass
class JobDescription:
    """What a property list asks for."""

    path: Path
    label: str
    program: str
    arguments: list[str]
    has_program: bool
    keep_alive: bool = False
    keep_alive_if: dict[str, bool] = field(default_factory=dict)
    run_at_load: bool = False
    start_interval: int = 0
    calendar: list[dict[str, int]] = field(default_factory=list)
    throttle: int = THROTTLE_SECONDS
    exit_timeout: int = EXIT_TIMEOUT_SECONDS
    disabled: bool = False
    user: str = ""
    group: str = ""
    init_groups: bool = True
    directory: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    umask: int = 0o022
    stdout: str = ""
    stderr: str = ""
    soft_limits: dict[str, int] = field(default_factory=dict)
    hard_limits: dict[str, int] = field(default_factory=dict)
    nice: int = 0
    process_type: str = "Standard"
    abandon_group: bool = False
    sessions: list[str] = field(default_factory=list)
    """LimitLoadToSessionType; empty where the property list has none."""


def read(path: Path) -> JobDescription:
    """Read a property list.

    :raises LaunchdError: 5, as launchd says of every property list that it does not like
    """
    try:
        content = plistlib.loads(path.read_bytes())
    except FileNotFoundError:
        raise _bad("there is no such file") from None
    except (plistlib.InvalidFileException, ExpatError, ValueError, KeyError, IndexError) as error:
        raise _bad(f"not a property list: {error}") from error
    if not isinstance(content, dict):
        raise _bad("not a dictionary")
    _check_types(content)
    return _describe(path, content)


def _describe(path: Path, content: dict[str, Any]) -> JobDescription:
    arguments = content.get("ProgramArguments", [])
    _check_texts("ProgramArguments", arguments)
    program = content.get("Program", arguments[0] if arguments else "")
    if not content.get("Label"):
        raise _bad("no Label")
    if not program:
        raise _bad("neither Program nor ProgramArguments")
    description = JobDescription(
        path=path,
        label=content["Label"],
        program=program,
        arguments=arguments or [program],
        has_program="Program" in content,
        run_at_load=content.get("RunAtLoad", False),
        start_interval=content.get("StartInterval", 0),
        calendar=_calendar(content.get("StartCalendarInterval", [])),
        throttle=content.get("ThrottleInterval", 0) or THROTTLE_SECONDS,
        exit_timeout=content.get("ExitTimeOut", EXIT_TIMEOUT_SECONDS),
        disabled=content.get("Disabled", False),
        user=content.get("UserName", ""),
        group=content.get("GroupName", ""),
        init_groups=content.get("InitGroups", True),
        directory=content.get("WorkingDirectory", ""),
        environment=_environment(content.get("EnvironmentVariables", {})),
        umask=_umask(content.get("Umask", 0o022)),
        stdout=content.get("StandardOutPath", ""),
        stderr=content.get("StandardErrorPath", ""),
        soft_limits=_limits(content.get("SoftResourceLimits", {})),
        hard_limits=_limits(content.get("HardResourceLimits", {})),
        nice=content.get("Nice", 0),
        process_type=content.get("ProcessType", "Standard"),
        abandon_group=content.get("AbandonProcessGroup", False),
        sessions=_sessions(content.get("LimitLoadToSessionType", [])),
    )
    if description.process_type not in SPAWN_TYPES:
        raise _bad(f"ProcessType {description.process_type!r}")
    _keep_alive(description, content.get("KeepAlive", False))
    return description


def _check_types(content: dict[str, Any]) -> None:
    for key, value in content.items():
        if key not in _KEYS:
            raise _lacking(f"{key} is no key of launchd.plist(5), or one that is not emulated")
        # bool is an int in Python, and is none in a property list.
        kinds = _KEYS[key]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise _bad(f"{key} is of a wrong type")
    for key in ("StartInterval", "ThrottleInterval", "ExitTimeOut"):
        if content.get(key, 0) < 0:
            raise _bad(f"{key} is negative")


def _keep_alive(description: JobDescription, value: bool | dict[str, Any]) -> None:
    if isinstance(value, bool):
        description.keep_alive = value
        return
    for key, wanted in value.items():
        if key not in _KEEP_ALIVE_KEYS or not isinstance(wanted, bool):
            raise _lacking(f"KeepAlive: {key} is not emulated")
        description.keep_alive_if[key] = wanted


def _check_texts(key: str, values: Any) -> None:
    if not all(isinstance(value, str) for value in values):
        raise _bad(f"{key} holds something that is no text")


def _environment(value: dict[str, Any]) -> dict[str, str]:
    _check_texts("EnvironmentVariables", value.values())
    return dict(value)


def _umask(value: int | str) -> int:
    """An integer, which property lists write in decimal; or a text, octal with its leading 0."""
    if isinstance(value, int):
        return value
    try:
        return int(value, 8 if value.startswith("0") else 10)
    except ValueError:
        raise _bad(f"Umask {value!r}") from None


def _limits(value: dict[str, Any]) -> dict[str, int]:
    for key, number in value.items():
        if key not in _LIMITS or not isinstance(number, int) or isinstance(number, bool):
            raise _lacking(f"resource limit {key}: not emulated, or no number")
    return dict(value)


def _sessions(value: str | list[Any]) -> list[str]:
    names = [value] if isinstance(value, str) else value
    for name in names:
        if name not in _SESSIONS:
            raise _bad(f"LimitLoadToSessionType {name!r}")
    return list(names)


def _calendar(value: dict[str, Any] | list[Any]) -> list[dict[str, int]]:
    entries = [value] if isinstance(value, dict) else value
    for entry in entries:
        if not isinstance(entry, dict):
            raise _bad("StartCalendarInterval holds something that is no dictionary")
        for key, number in entry.items():
            low, high = _CALENDAR.get(key, (0, -1))
            if not isinstance(number, int) or not low <= number <= high:
                raise _bad(f"StartCalendarInterval: {key} = {number!r}")
    return [dict(entry) for entry in entries]


def _lacking(what: str) -> LaunchdError:
    return LaunchdError(INPUT_OUTPUT, hint=what)


def _bad(why: str) -> LaunchdError:
    return LaunchdError(INPUT_OUTPUT, why)
