# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The site: antsibull-docs' pages of plugins and roles, and docs/*.md, as HTML."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml
from places import ANTSIBULL, HERE, PAGES, ROOT, environment

COLLECTION = "tether.fleet"
# The first pages, in the order in which they are read; the others follow by name.
FIRST = ["quickstart", "concepts", "inventory", "troubleshooting", "security"]
LINK = re.compile(r"(\]\()(\.\./[^)\s#]*)([^)\s]*\))")


def build(folder: Path) -> int:
    """Build into ``folder``/html; an exit status."""
    source = folder / "source"
    if source.exists():
        shutil.rmtree(source)
    # antsibull-docs takes no folder into which others may write.
    source.mkdir(parents=True, mode=0o755)
    _call(
        *ANTSIBULL, "collection", "--use-current", "--fail-on-error",
        "--no-add-antsibull-docs-version", "--dest-dir", source, COLLECTION,
    )  # fmt: skip
    copy_pages(source)
    _call(
        sys.executable, "-m", "sphinx", "--builder", "html", "--fail-on-warning", "--nitpicky",
        "--keep-going", "--quiet", "--conf-dir", HERE, source, folder / "html",
    )  # fmt: skip
    print(f"The site is built; open its first page: {folder / 'html' / 'index.html'}")
    return 0


def copy_pages(source: Path) -> None:
    """docs/*.md and what they show; links out of docs/ lead to the repository."""
    repository = yaml.safe_load((ROOT / "galaxy.yml").read_text())["repository"]
    for path in sorted(PAGES.iterdir()):
        if path.suffix == ".md":
            (source / path.name).write_text(absolute(path.read_text(), repository))
        elif path.suffix in (".yml", ".svg"):
            shutil.copy(path, source)
    shutil.copytree(PAGES / "pictures", source / "pictures")
    with (source / "index.md").open("a") as index:
        index.write(contents(source))


def absolute(text: str, repository: str) -> str:
    def one(match: re.Match[str]) -> str:
        target = match[2].removeprefix("../")
        kind = "tree" if (ROOT / target).is_dir() else "blob"
        return f"{match[1]}{repository}/{kind}/main/{target}{match[3]}"

    return LINK.sub(one, text)


def contents(source: Path) -> str:
    """The site's menu, for the end of its first page."""
    names = [path.stem for path in sorted(source.glob("*.md")) if path.stem != "index"]
    ordered = FIRST + [name for name in names if name not in FIRST]
    menu = f"collections/{COLLECTION.replace('.', '/')}/index"
    rest = "collections/environment_variables"
    return "\n".join(
        ["", "```{toctree}", ":hidden:", ":maxdepth: 1", "", *ordered, menu, rest, "```", ""]
    )


def _call(*argv: object) -> None:
    done = subprocess.run([str(word) for word in argv], cwd=ROOT, env=environment(), check=False)
    if done.returncode:
        raise SystemExit(f"{argv[0]} failed (exit status {done.returncode}); its lines are above")
