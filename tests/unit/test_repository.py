# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Promises that hold for the repository as a whole: its texts, documents and parts agree."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


def tracked() -> list[Path]:
    """Every file that is or would be committed."""
    done = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


FILES = tracked()
DOCUMENTS = [path for path in FILES if path.suffix == ".md"]
FRAGMENTS = sorted((ROOT / "changelogs" / "fragments").glob("*.y*ml"))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text_of(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return ""


def test_no_path_of_one_machine() -> None:
    """Nothing may work only where it was written: here is the folder that this checkout is in."""
    here = f"{ROOT.parent}/"
    if len(here) < 6:
        pytest.skip(f"{here} is too short a name to look for")
    found = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if here in line and not re.search(r"[\w.~-]" + re.escape(here), line)
    ]
    assert found == []


def test_no_large_file() -> None:
    """Binaries and models are fetched or made, never committed."""
    limit = 512 * 1024
    assert [name(path) for path in FILES if path.stat().st_size > limit] == []


def test_lists_keep_their_order() -> None:
    """Ansible's filters of sets give their result in an order that differs from run to run (they
    are Python's sets, mathstuff.py), so they may tell how many there are and no more."""
    filters = re.compile(
        r"\|\s*(?:ansible\.builtin\.)?(intersect|difference|symmetric_difference|union)\([^|}]*(?:\|\s*(\w+))?"
    )
    texts = {
        name(path): " ".join(text_of(path).split())
        for path in FILES
        if path.suffix in (".yml", ".j2") and path.parts[len(ROOT.parts)] in ("playbooks", "roles")
    }
    assert [
        f"{where}: {found[0]}"
        for where, text in texts.items()
        for found in filters.finditer(text)
        if found[2] not in ("length", "sort")
    ] == []


def test_python_headers() -> None:
    """Annotations that old Pythons can read in every file with code; the licence in what ships."""
    missing = []
    for path in FILES:
        text = text_of(path)
        if path.suffix != ".py" or not text.strip() or path.name == "__init__.py":
            continue
        licensed = "GNU General Public License v3.0+" in text
        if "from __future__ import annotations" not in text or not (
            licensed or not name(path).startswith("plugins/")
        ):
            missing.append(name(path))
    assert missing == []


@pytest.mark.parametrize("path", FRAGMENTS, ids=name)
def test_changelog_fragment(path: Path) -> None:
    sections = {
        row[0] for row in yaml.safe_load((ROOT / "changelogs/config.yaml").read_text())["sections"]
    }
    fragment = yaml.safe_load(path.read_text())
    assert fragment
    for section, entries in fragment.items():
        if section == "release_summary":
            assert isinstance(entries, str)
        else:
            assert section in sections | {"trivial"}
            assert isinstance(entries, list)
            assert all(isinstance(entry, str) and entry.strip() for entry in entries)


def test_collection_is_named_the_same() -> None:
    galaxy = yaml.safe_load((ROOT / "galaxy.yml").read_text())
    requirements = yaml.safe_load((ROOT / "requirements.yml").read_text())
    assert {row["name"]: row["version"] for row in requirements["collections"]} == galaxy[
        "dependencies"
    ]


def anchor(heading: str) -> str:
    """The fragment that code forges make of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_in_documents(path: Path) -> None:
    """Every link to a file or heading of this repository leads somewhere."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, fragment = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists():
            broken.append(target)
        elif fragment and there.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", there.read_text(), re.MULTILINE)
            if fragment not in map(anchor, headings):
                broken.append(target)
    assert broken == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_make_targets_in_documents(path: Path) -> None:
    """Every `make x` that a document tells people to type exists."""
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    told = set(re.findall(r"`(?:sudo )?make ([a-z][a-z-]*)", path.read_text()))
    assert told - targets == set()
