# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The document of ``summary`` as a table for people.

Hosts that say the same share a row, so that a fleet of a hundred hosts without a change is one
line. What failed stands below its row, not in a cell: there it would be three words wide.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.plan import printable
from ansible_collections.tether.fleet.plugins.plugin_utils.summary import CONTROLLER, MARK, totals

MIN_WIDTH, MAX_WIDTH = 80, 120
# Styles of a line: the callback gives them colours.
PLAIN, HEAD, CHANGED, FAILED = "plain", "head", "changed", "failed"
_GAP = "  "
_LABEL = 28
# At most so many lines of a message: its beginning says what was found, its end what to do.
_FIRST, _LAST = 5, 3
# Hosts named in a shared row.
_NAMED = 3

# Action -> as the table says it. Actions that make or mend a thing are told by the thing alone.
_PAST = {
    "add": "added", "delete": "deleted", "disable": "disabled", "enable": "enabled",
    "reload": "reloaded", "remove": "removed", "restart": "restarted", "start": "started",
    "stop": "stopped", "adopt": "adopted", "release": "released",
}  # fmt: skip
_PLAIN_ACTIONS = ("create", "update", "install", "load", "sign", "upload", "replace", "patch")
# A process is known by its unit; an artifact and a model by what they are called.
_BY_NAME = ("process", "artifact", "model")
_PLURALS = {
    "process": "processes", "directory": "directories", "NetworkPolicy": "NetworkPolicies",
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One line, and how it looks."""

    text: str
    style: str = PLAIN


@dataclass(frozen=True)
class _Row:
    label: str
    changed: str
    url: str
    failures: Tuple[str, ...]
    # Whether nothing of the failures may be left out: each line of a list of mistakes is one.
    whole: bool = False


def clamp(columns: int) -> int:
    """The table's width on a terminal with so many columns."""
    return max(MIN_WIDTH, min(columns, MAX_WIDTH))


def draw(document: Mapping[str, Any], width: int) -> List[Line]:
    """The table, none of its lines longer than ``width``, and a last line with totals."""
    rows = _rows(document)
    if not rows:
        return [Line(_nothing(document), PLAIN if document["ok"] else FAILED)]
    label = min(max([len(row.label) for row in rows] + [len("host or model")]), _LABEL)
    urls = max([len(row.url) for row in rows] + [len("answers at")])
    # A URL is for copying, so it is never broken: a long one gets a line of its own.
    beside = label + urls + 2 * len(_GAP) + 24 <= width
    middle = width - label - len(_GAP) - (urls + len(_GAP) if beside else 0)
    head = "would change" if document["check_mode"] else "changed"
    lines = [Line(_join((_pad("host or model", label), _pad(head, middle), "answers at")), HEAD)]
    if not beside:
        lines = [Line(_join((_pad("host or model", label), head + ", answers at")), HEAD)]
    for row in rows:
        style = FAILED if row.failures else CHANGED if row.changed != "nothing" else PLAIN
        lines += [Line(text, style) for text in _cells(row, label, middle, beside)]
        for failure in row.failures:
            text = wrap(failure, width - 4) if row.whole else excerpt(failure, width - 4)
            lines += [Line("    " + line, FAILED) for line in text]
    changes, bad = totals(document)
    lines.append(Line(_last(document, changes, bad), FAILED if not document["ok"] else PLAIN))
    return lines


def fold(changes: Sequence[Mapping[str, str]], limit: int = 2) -> str:
    """Changes in a few words: ``3 files, artifact caddy 2.11.7, restarted tether-ingress``."""
    groups: Dict[Tuple[str, str], List[str]] = {}
    for step in changes:
        verb = _PAST.get(step["action"], "")
        if not verb and step["action"] not in _PLAIN_ACTIONS:
            verb = step["action"]
        names = groups.setdefault((verb, step["kind"]), [])
        if step["name"] not in names:
            names.append(step["name"])
    # Things first, then what was done to processes: the order of cause and effect.
    ordered = sorted(groups.items(), key=lambda item: item[0][1] == "process")
    return ", ".join(_phrase(verb, kind, names, limit) for (verb, kind), names in ordered)


def wrap(message: str, width: int) -> List[str]:
    """A message in lines of at most ``width``."""
    lines: List[str] = []
    for line in message.splitlines():
        lines += textwrap.wrap(printable(line), width, break_on_hyphens=False)
    return lines


def excerpt(message: str, width: int) -> List[str]:
    """A message in a few lines of at most ``width``: its beginning and its end."""
    lines = wrap(message, width)
    # One line in place of one would say less.
    if len(lines) <= _FIRST + _LAST + 1:
        return lines
    left = len(lines) - _FIRST - _LAST
    return [*lines[:_FIRST], "[%d more lines above]" % left, *lines[-_LAST:]]


def _rows(document: Mapping[str, Any]) -> List[_Row]:
    rows = []
    if document["inventory"]["failures"]:
        failures = _messages(document["inventory"])
        rows.append(_Row("inventory", "nothing", "", failures, whole=True))
    shared: Dict[Tuple[str, Tuple[str, ...]], List[str]] = {}
    for name, host in document["hosts"].items():
        shared.setdefault((_changed(host), _messages(host)), []).append(name)
    rows += [
        _Row(_names(names), changed, "", failures) for (changed, failures), names in shared.items()
    ]
    for key, model in document["models"].items():
        # The answer itself says more than what the relay was last seen to do.
        wired = model["state"] in ("served", "planned") and model["answers"] is not False
        serves = model["answers"] or wired
        rows.append(_Row(key, _changed(model), model["url"] if serves else "-", _messages(model)))
    return rows


def _changed(row: Mapping[str, Any]) -> str:
    said = [fold(row["changes"])] if row["changes"] else []
    if row.get("attempted"):
        # The task failed on its way: some of it may have been done.
        said.append("begun: %s" % fold(row["attempted"]))
    return printable("; ".join(said)) or "nothing"


def _messages(row: Mapping[str, Any]) -> Tuple[str, ...]:
    return tuple(each["message"] for each in row["failures"])


def _names(names: Sequence[str]) -> str:
    if len(names) <= _NAMED:
        return ", ".join(names)
    return "%s and %d more" % (", ".join(names[: _NAMED - 1]), len(names) - _NAMED + 1)


def _phrase(verb: str, kind: str, names: Sequence[str], limit: int) -> str:
    if kind == MARK:
        return " and ".join(names)
    short = {name.removesuffix(".service").rsplit("/", 1)[-1]: name for name in names}
    # Two namespaces may have a file of one name: twice the same word would say less than a number.
    if kind in _BY_NAME and len(names) <= limit and len(short) == len(names):
        noun = "" if kind == "process" else kind if len(names) == 1 else _plural(kind)
        return " ".join(word for word in (verb, noun, " and ".join(short)) if word)
    thing = kind if len(names) == 1 else _plural(kind)
    return " ".join(word for word in (verb, str(len(names)), thing) if word)


def _plural(kind: str) -> str:
    return _PLURALS.get(kind, kind + "s")


def _cells(row: _Row, label: int, middle: int, beside: bool) -> Iterable[str]:
    left = textwrap.wrap(row.label, label, break_on_hyphens=False) or [""]
    right = textwrap.wrap(row.changed, middle, break_on_hyphens=False) or [""]
    if row.url and not beside:
        right.append(row.url)
    for number in range(max(len(left), len(right))):
        cells = [
            _pad(left[number] if number < len(left) else "", label),
            _pad(right[number] if number < len(right) else "", middle),
            row.url if beside and number == 0 else "",
        ]
        yield _join(cells)


def _nothing(document: Mapping[str, Any]) -> str:
    """For a run that went to no host, as ``--tags validate``."""
    count = document["inventory"]["models"]
    if count is None or not document["ok"]:
        return "No host was looked at."
    models = "%d model%s" % (count, "s" * (count != 1))
    if document["inventory"].get("warnings"):
        return (
            "No host was looked at. The inventory's form is right (%s); see the warnings." % models
        )
    return "No host was looked at. The inventory is sound: %s." % models


def _last(document: Mapping[str, Any], changes: int, bad: int) -> str:
    would = "would change" if document["check_mode"] else "changed"
    done = "%s%s" % (changes or "nothing", " things" if changes > 1 else " thing" * (changes == 1))
    # Machines: the cluster and the controller have a row too, and are none.
    rows = set(document["hosts"]) - {CONTROLLER}
    hosts = len(rows & set(document["inventory"]["hosts"] or rows))
    models = len(document["models"])
    head = "%s %s" % (done, would)
    if hosts or models:
        counts = (hosts, "s" * (hosts != 1), models, "s" * (models != 1))
        head = "%d host%s, %d model%s: %s" % (*counts, head)
    head = head[0].upper() + head[1:]
    if bad:
        needy = "1 row above needs" if bad == 1 else "%d rows above need" % bad
        return "%s; %s attention." % (head, needy)
    return "%s%s." % (head, ", nothing failed" if document["ok"] else "; the run failed")


def _pad(text: str, width: int) -> str:
    return text.ljust(width)


def _join(cells: Iterable[str]) -> str:
    return _GAP.join(cells).rstrip()
