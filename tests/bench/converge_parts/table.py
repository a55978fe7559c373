# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The benchmark's figures for people."""

from __future__ import annotations

from typing import Any

from bench_parts import rows

TITLES = {
    "site": "site.yml, the whole",
    "host": "site.yml, the hosts' part",
    "role": "published role",
    "ordinary": "ordinary tasks",
    "pyinfra": "pyinfra",
    "one_change": "site.yml, one change",
}
_HEAD = ("hosts", "way", "seconds", "of rounds", "tasks", "on a host", "modules", "controller")
_WIDTHS = (5, 26, 8, 22, 6, 10, 8, 10)
_NUMBERS = (0, 2, 4, 5, 6, 7)


def head() -> str:
    return _line(_HEAD)


def row(count: int, way: str, figures: dict[str, Any]) -> str:
    walls = figures["seconds_of_rounds"]
    spread = f"{min(walls):.1f} to {max(walls):.1f} ({len(walls)})"
    executions = str(figures["executions_per_host"])
    if figures["transfers_per_host"]:
        executions += f"+{figures['transfers_per_host']}"
    # pyinfra has no modules: it sends shell commands.
    known = way != "pyinfra"
    return _line(
        (
            str(count),
            TITLES[way],
            f"{figures['seconds']:.1f}",
            spread,
            str(figures["tasks"]),
            executions,
            str(figures["modules_per_host"]) if known else "-",
            str(figures["modules_on_controller"]) if known else "-",
        )
    )


def ratios(count: int, found: dict[str, float]) -> str:
    words = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
    return f"{count:>5}  time over that of the control, in the same round: {words}"


def mixed(found: dict[str, dict[str, int]]) -> str:
    """What a run without changes executes on a Linux host and on an emulated Mac."""
    each = [
        f"{name} {row['executions']} ({row['modules']} modules, {row['transfers']} transfers)"
        for name, row in found.items()
    ]
    return f"A fleet of both systems, {TITLES['site']}; executions: {', '.join(each)}"


def profile(count: int, tasks: list[tuple[str, float]]) -> str:
    lines = [f"Where the time goes in site.yml, {count} host{'s' if count > 1 else ''}:"]
    lines += [f"  {seconds:6.2f} s  {name}" for name, seconds in tasks]
    return "\n".join(lines)


def _line(cells: tuple[str, ...]) -> str:
    return rows.line(cells, _WIDTHS, _NUMBERS)
