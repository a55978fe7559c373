# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What became of daemons, in the facts of ``base.facts_of`` and in words."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

Facts = Dict[str, Dict[str, Any]]


def fail(fact: Dict[str, Any], reason: str, lines: List[str]) -> None:
    """Note that a daemon failed.

    :param lines: the last that it wrote
    """
    fact.update(failed=True, healthy=False, reason=reason, last_lines=lines)


def must_be_well(facts: Facts, more: Callable[[Facts], str]) -> None:
    """Refuse when any daemon failed.

    :param more: where a person finds more of those that failed
    :raises Refusal: with the facts of all daemons
    """
    failed = {name: fact for name, fact in facts.items() if fact["failed"]}
    if failed:
        raise Refusal(
            "%d of %d daemons" % (len(failed), len(facts)),
            "; ".join(_words(name, fact) for name, fact in sorted(failed.items())),
            "running, healthy processes",
            "Mend what the lines name, then run again; for more: %s" % more(failed),
            {"daemons": facts},
        )


def _words(name: str, fact: Dict[str, Any]) -> str:
    lines = fact["last_lines"]
    said = "its last lines:\n  %s\n" % "\n  ".join(lines) if lines else "it wrote no lines"
    reason = fact["reason"]
    if fact.get("drop_ins"):
        reason += "; its unit is changed by %s" % ", ".join(fact["drop_ins"])
    return "%s: %s; %s" % (name, reason, said)
