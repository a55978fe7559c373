# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Settings of a Mac that serves unattended: its power, and how much memory its GPU may take.

``pmset -g custom`` lists the settings of each source of power; a Mac leaves out what it does not
have (a laptop has no ``autorestart``), so that what it does not list is no difference. pmset keeps
them. What sysctl sets is lost at the next boot, and /etc/sysctl.conf is not read on Apple silicon
(several projects' issues say so): a daemon that sets it at boot is the role's business.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from ansible_collections.tether.fleet.plugins.module_utils.daemon import commands
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal, Step

ARGUMENT_SPEC: Dict[str, Any] = {
    "power": {"type": "dict", "default": {}},
    "gpu_memory_mb": {"type": "int", "default": 0},
}

PMSET, SYSCTL = "/usr/bin/pmset", "/usr/sbin/sysctl"
GPU_MEMORY = "iogpu.wired_limit_mb"
# What macOS itself needs to go on, whatever the GPU holds.
_SPARE_MB = 2048
_NAME = re.compile(r"[a-z]{2,32}")


def observe(desired: Dict[str, Any]) -> Dict[str, Any]:
    """Read what is set.

    :param desired: ``{"power": {setting: number}, "gpu_memory_mb": MiB, or 0 to leave it}``
    :return: ``{"power": {source: {setting: text}}, "gpu_memory_mb": MiB or None, "memory_mb"}``
    """
    kernel: Dict[str, Optional[int]] = {GPU_MEMORY: None, "hw.memsize": None}
    if desired["gpu_memory_mb"]:
        kernel = {key: _number(key) for key in kernel}
    shown = commands.run([PMSET, "-g", "custom"], timeout=20).stdout if desired["power"] else ""
    memory = kernel["hw.memsize"]
    return {
        "power": sections(shown),
        "gpu_memory_mb": kernel[GPU_MEMORY],
        "memory_mb": None if memory is None else memory // 2**20,
    }


def sections(text: str) -> Dict[str, Dict[str, str]]:
    """``pmset -g custom``: settings below the name of each source of power, as ``AC Power:``."""
    found: Dict[str, Dict[str, str]] = {}
    source = ""
    for line in text.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            source = line[:-1]
        elif source and len(line.split()) >= 2:
            key, value = line.split()[:2]
            found.setdefault(source, {})[key] = value
    return found


def plan(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """What is set otherwise.

    :raises Refusal: for what cannot be set here
    """
    result = Plan()
    _check(desired, observed)
    for key, value in sorted(desired["power"].items()):
        wanted = str(value)
        has = sorted({each[key] for each in observed["power"].values() if key in each})
        if has and has != [wanted]:
            result.steps.append(
                Step(
                    "update",
                    "power setting",
                    key,
                    before="%s %s" % (key, ", ".join(has)),
                    after="%s %s" % (key, wanted),
                    data={"words": [key, wanted]},
                )
            )
    limit = desired["gpu_memory_mb"]
    if limit and observed["gpu_memory_mb"] != limit:
        result.steps.append(
            Step(
                "update",
                "kernel setting",
                GPU_MEMORY,
                before="%s=%s" % (GPU_MEMORY, observed["gpu_memory_mb"]),
                after="%s=%d" % (GPU_MEMORY, limit),
                data={"word": "%s=%d" % (GPU_MEMORY, limit)},
            )
        )
    return result


def apply(plan: Plan) -> Dict[str, Any]:
    """Set it: one call for all that is of power.

    :raises Refusal: where a tool refuses
    """
    words = [word for step in plan.steps for word in step.data.get("words", [])]
    if words:
        _must([PMSET, "-a", *words])
    for step in plan.steps:
        if "word" in step.data:
            _must([SYSCTL, step.data["word"]])
    return {}


def _check(desired: Dict[str, Any], observed: Dict[str, Any]) -> None:
    wrong = [
        "%s: %s" % (key, value)
        for key, value in sorted(desired["power"].items())
        if not _NAME.fullmatch(str(key)) or not re.fullmatch(r"\d{1,5}", str(value))
    ]
    if wrong:
        raise Refusal(
            "power settings",
            ", ".join(wrong),
            "names and numbers as pmset -g custom shows them",
            "Correct baseline_mac_power",
        )
    if desired["power"] and not observed["power"]:
        raise Refusal(
            "power settings",
            "nothing that can be read from %s -g custom" % PMSET,
            "the settings of each source of power",
            "Run it on the Mac and mend what it says, or set baseline_mac_power: {}",
        )
    limit, memory = desired["gpu_memory_mb"], observed["memory_mb"]
    if limit and observed["gpu_memory_mb"] is None:
        raise Refusal(
            "memory for the GPU",
            "no kernel setting %s" % GPU_MEMORY,
            "it, as Macs with Apple silicon have it",
            "Remove baseline_mac_gpu_memory_mb of this host",
        )
    if limit and memory is not None and limit > memory - _SPARE_MB:
        raise Refusal(
            "memory for the GPU",
            "%d MiB wanted of %d" % (limit, memory),
            "at most %d: the rest is for macOS itself" % (memory - _SPARE_MB),
            "Lower baseline_mac_gpu_memory_mb of this host",
        )


def _number(key: str) -> Optional[int]:
    text = commands.run([SYSCTL, "-n", key], timeout=20).stdout.strip()
    return int(text) if text.isdecimal() else None


def _must(argv: List[str]) -> None:
    done = commands.run(argv, timeout=30)
    if done.returncode:
        raise Refusal(
            " ".join(argv),
            "status %d: %s" % (done.returncode, commands.said(done)),
            "status 0",
            "Do what the message says, then run again",
        )
