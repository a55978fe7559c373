# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs the checks and says at the end what each gave and how long it took.

``python tests/run [PART ...]``, from `make test` and its quick parts. A part that fails does not
keep the others from running. The last line is ``N passed, M failed``: a part that counts its own
tests (pytest) adds those, every other part counts as one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import lanes
from beds import FIRST, SECOND, Beds
from binaries import settings
from parts import Part, choose
from paths import BIN, BUILD, ROOT


@dataclass
class Result:
    """What a part gave; ``note`` and ``failures`` (a line a failed test) are for people."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    note: str = ""
    failures: list[str] = field(default_factory=list)


def report_of(part: Part) -> Path:
    """Where pytest leaves its counts."""
    return BUILD / f"{part.name.replace(' ', '-')}.xml"


def count(report: Path, status: int) -> Result:
    """Counts of a pytest report (JUnit's form), held against the part's exit status."""
    result = Result("")
    if report.exists():
        for suite in ET.parse(report).getroot().iter("testsuite"):  # noqa: S314 (our own file)
            bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped = int(suite.get("skipped", 0))
            result.failed += bad
            result.skipped += skipped
            result.passed += int(suite.get("tests", 0)) - bad - skipped
            result.failures += failures(suite)
    elif status == 0:
        result.passed = 1
    if status and not result.failed:
        result.failed = 1
    return result


def failures(suite: ET.Element) -> list[str]:
    """The failed tests of a suite, each with the first line of its message."""
    lines = []
    for case in suite.iter("testcase"):
        for bad in [*case.iterfind("failure"), *case.iterfind("error")]:
            message = (bad.get("message", "").strip().splitlines() or [""])[0]
            lines.append(f"{case.get('classname')}::{case.get('name')}: {message[:200]}")
    return lines


def run(parts: list[Part], beds: Beds) -> Iterator[Result]:
    """Run parts that may run together; yields the result of each."""
    ready, refusals = [], {}
    for part in parts:
        refusal = beds.join() if part.bed else ""
        if part.needs and not any(ROOT.glob(part.needs)):
            yield Result(part.name, note=f"nothing to check: no {part.needs}")
        elif refusal and part.bed == "must":
            yield Result(part.name, failed=1, note=refusal)
        else:
            ready.append(part)
            refusals[part.name] = refusal
            report_of(part).unlink(missing_ok=True)
    for ended in lanes.run(ready, lambda part: environment(part, beds), BUILD):
        result = count(report_of(ended.part), ended.status)
        result.name, result.seconds = ended.part.name, ended.seconds
        failure = f"exit status {ended.status}" if ended.status else ""
        result.note = ended.note or failure or refusals[ended.part.name]
        yield result


def bed_of(part: Part) -> str:
    """The bed that a part uses, or waits for: those who make their own find everything built."""
    return SECOND if part.claims == SECOND else FIRST


def environment(part: Part, beds: Beds) -> dict[str, str]:
    """What a part's program finds in its environment; the user's own settings come first."""
    bed = bed_of(part)
    return {
        **settings(fetch=False),
        **beds.settings(bed),
        **os.environ,
        "PYTEST_ADDOPTS": f"{os.environ.get('PYTEST_ADDOPTS', '')} --junitxml={report_of(part)}",
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "TETHER_BED": bed,
        # The bed is this run's: a scenario neither waits for a new one nor takes it away.
        "TETHER_KEEP_BED": "1",
        # Colours are for people; ansible and its kin decide by the terminal unless told.
        **({} if sys.stdout.isatty() else {"NO_COLOR": "1", "ANSIBLE_NOCOLOR": "1"}),
    }


def table(results: list[Result]) -> str:
    """A row a part, for people."""
    rows = [f"{'part':24}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}"]
    for each in results:
        rows.append(
            f"{each.name:24}{each.passed:8}{each.failed:8}{each.skipped:9}{each.seconds:9.1f}"
            + (f"  {each.note}" if each.note else "")
        )
    return "\n".join(rows)


def main(words: list[str]) -> int:
    parts = choose(words)
    BUILD.mkdir(parents=True, exist_ok=True)
    beds = Beds({bed_of(part) for part in parts if part.bed})
    # An end by a signal takes the same way as Ctrl-C: the bed goes away.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = time.monotonic()
    results: list[Result] = []
    try:
        if any(part.bed for part in parts):
            beds.start()
        # Parts that stand next to one another and bear company run together, others alone.
        for together, group in groupby(parts, key=lambda part: part.company):
            for some in [list(group)] if together else [[part] for part in group]:
                results.extend(run(some, beds))
    except KeyboardInterrupt:
        results.append(Result("(interrupted)", failed=1))
    finally:
        if trouble := beds.stop():
            results.append(Result("beds down", failed=1, note=trouble))
    if beds.seconds:
        results.append(Result("(beds up)", seconds=beds.seconds, note="beside the other parts"))
    print("\n" + table(results))
    print(f"{'all':24}{'':25}{time.monotonic() - started:9.1f}\n")
    # Here as well as above: where only the end of a long output is kept, it says what to mend.
    for each in results:
        for line in each.failures:
            print(f"FAILED {each.name}: {line}")
    passed, failed, skipped = (
        sum(getattr(each, kind) for each in results) for kind in ("passed", "failed", "skipped")
    )
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
