# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What `make test` runs: one row a part, in the order in which a person wants to hear of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import beds
from paths import PYTHON, ROOT


@dataclass(frozen=True)
class Part:
    """One row.

    :ivar argv: the program, run from the repository root; its exit status is the result
    :ivar needs: a glob; while nothing matches it there is nothing to check, and the row says so
    :ivar bed: ``must``: fails without the test bed; ``may``: some of its tests need it, and are
        skipped without it
    :ivar claims: what it needs for itself, a bed or the making of beds: no other part with the same
        claim runs meanwhile
    :ivar company: it may run beside others: it reads the repository and changes nothing there
    :ivar limit: seconds after which the part has failed (nothing may hang a run)
    """

    name: str
    what: str
    argv: tuple[str, ...]
    needs: str = ""
    bed: str = ""
    claims: str = ""
    company: bool = False
    limit: int = 600


# Folder -> what in it is a part of its own.
_APART = {
    "tests/unit": ("tests/unit/plugins/action",),
    "tests/package": ("tests/package/test_installed.py",),
}


def _pytest(name: str, what: str, path: str, **more: Any) -> Part:
    argv: tuple[str, ...] = (PYTHON, "-m", "pytest", "-q", path)
    # The slow half is a part of its own, so that the two can run side by side.
    argv += tuple(f"--ignore={each}" for each in _APART.get(path, ()))
    needs = path if path.endswith(".py") else f"{path}/**/test_*.py"
    return Part(name, what, argv, needs=needs, **more)


BEFORE = (
    Part("ruff", "style and likely bugs of Python", ("ruff", "check", "--quiet", ".")),
    Part("format", "formatting of Python", ("ruff", "format", "--quiet", "--check", ".")),
    Part("yamllint", "style of YAML", ("yamllint", "--strict", ".")),
    Part("changelog", "changelog fragments", ("antsibull-changelog", "lint")),
    Part("programs", "the pinned Caddy, Envoy and engines", (PYTHON, "tests/run/binaries.py")),
    # Builds in the checkout itself, which nothing may change meanwhile.
    _pytest("archive", "what ships: built, installed, documented", "tests/package"),
    # The long ones, the longest first.
    Part("sanity", "ansible-test on the archive", (PYTHON, "tests/run/sanity.py"),
         company=True, limit=1800),
    _pytest("action", "action plugins, run by ansible-playbook", "tests/unit/plugins/action",
            company=True, limit=1200),
    _pytest("unit", "pure functions, specifications, documents", "tests/unit", company=True),
    Part("ansible-lint", "roles and playbooks, production profile", ("ansible-lint", "--strict"),
         company=True),
    Part("docs", "documentation of plugins and roles", (PYTHON, "tests/docs", "lint"),
         company=True),
    Part("mypy", "types", (PYTHON, "tests/run/typecheck.py"), company=True),
)  # fmt: skip
OLDEST = Part(
    "oldest",
    "unit and action tests with the oldest versions claimed",
    (PYTHON, "tests/run/oldest.py"),
    company=True,
    limit=1800,
)
# It has a bed of its own, and waits more than it works: so it runs beside the scenarios.
INTEGRATION = _pytest(
    "integration", "against real parts", "tests/integration",
    bed="may", claims=beds.SECOND, company=True, limit=2400,
)  # fmt: skip
# Those that make and remove beds go one by one: the bed's own tests look for what one leaves on the
# machine, where another's would be in the way.
_MAKES_BEDS = "machine"
OWN_BEDS = (
    _pytest("testbed", "the test bed's own tests", "tests/testbed/tests",
            bed="must", claims=_MAKES_BEDS, company=True, limit=1800),
    _pytest("installed", "the archive alone provisions a fleet: oldest and newest versions",
            "tests/package/test_installed.py",
            claims=_MAKES_BEDS, company=True, limit=1800),
)  # fmt: skip
# These scenarios leave no bed as others need it.
_SCENARIOS_WITH_OWN_BED = ("bad_days", "mac")


def _scenarios() -> list[str]:
    return sorted(path.parent.name for path in ROOT.glob("molecule/*/molecule.yml"))


def molecule(name: str = "") -> list[Part]:
    """The molecule scenarios, or the one named."""
    names = _scenarios()
    if name and name not in names:
        raise SystemExit(f"no molecule scenario {name}; there are: {', '.join(names)}")
    return [
        Part(
            f"molecule {scenario}",
            "the whole path on the test bed",
            ("molecule", "test", "--scenario-name", scenario),
            bed="must",
            claims=_MAKES_BEDS if scenario in _SCENARIOS_WITH_OWN_BED else beds.FIRST,
            company=True,
            limit=2400,
        )
        for scenario in ([name] if name else names)
    ]


def programs(folder: str, name: str = "") -> list[Part]:
    """Benchmarks or drills: each file ``tests/<folder>/<name>.py`` is one program."""
    found = sorted((ROOT / "tests" / folder).glob("[a-z]*.py"))
    names = [path.stem.replace("_", "-") for path in found]
    if name and name not in names:
        raise SystemExit(f"no {folder} program {name}; there are: {', '.join(names) or 'none'}")
    return [
        Part(
            f"{folder} {stem}",
            "figures on a test bed",
            (PYTHON, str(path.relative_to(ROOT))),
            # A benchmark brings its own bed up, and needs the machine for itself.
            bed="" if folder == "bench" else "must",
            claims="" if folder == "bench" else beds.FIRST,
            # The longest, killed, takes some 40 minutes on a quiet machine with two cores.
            limit=7200,
        )
        for stem, path in zip(names, found, strict=True)
        if name in ("", stem)
    ]


def short_drills() -> list[Part]:
    """The drills in their short forms, each a part of its own: nothing else may use the bed
    meanwhile. The last one takes the fleet away."""
    parts = [
        replace(
            part,
            name=part.name.removeprefix("drills "),
            what="a drill in its short form",
            argv=(*part.argv, "--short"),
            limit=1800,
        )
        for part in programs("drills")
    ]
    return sorted(parts, key=lambda part: part.name == "killed")


def _together() -> list[Part]:
    """What needs a bed and bears company, in an order in which two lanes end at about one time."""
    return [*molecule(), INTEGRATION, *OWN_BEDS]


def choose(words: list[str]) -> list[Part]:
    """The parts that ``words`` name; those of ``make test`` when there are none."""
    name = os.environ.get("NAME", "")
    if not words:
        return [*BEFORE, *_together(), *short_drills()]
    if words == ["all"]:
        return [*BEFORE, OLDEST, *_together(), *short_drills()]
    chosen: list[Part] = []
    for word in words:
        if word == "molecule":
            chosen += molecule(name)
        elif word in ("bench", "drills"):
            chosen += programs(word, name)
        else:
            known = [*BEFORE, OLDEST, *short_drills(), INTEGRATION, *OWN_BEDS]
            match = [part for part in known if part.name == word]
            if not match:
                names = [part.name for part in known] + ["molecule", "bench", "drills", "all"]
                raise SystemExit(f"no part {word}; there are: {', '.join(names)}")
            chosen += match
    return chosen
