# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A strict reader of Prometheus' text format (version 0.0.4), for tests."""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\n"])*"'
_SAMPLE = re.compile(r"(%s)(?:\{((?:%s,?)*)\})? (\S+)(?: -?\d+)?" % (_NAME, _LABEL))
_COMMENT = re.compile(
    r"# (?:HELP (%s)(?: .*)?|TYPE (%s) (counter|gauge|histogram|summary|untyped))" % (_NAME, _NAME)
)


class Sample(NamedTuple):
    name: str
    labels: Dict[str, str]
    value: float


def parse(text: str) -> List[Sample]:
    """All samples of a page; fails at the first line that is none."""
    assert not text or text.endswith("\n")
    found = []
    for line in text.splitlines():
        if not line.strip():
            continue
        if line.startswith("#") and line.split()[1:2] not in (["HELP"], ["TYPE"]):
            continue  # for people
        if line.startswith("#"):
            assert _COMMENT.fullmatch(line), line
            continue
        match = _SAMPLE.fullmatch(line)
        assert match, line
        pairs = [part.split("=", 1) for part in re.findall(_LABEL, match[2] or "")]
        labels = {key: value[1:-1] for key, value in pairs}
        found.append(Sample(match[1], labels, float(match[3])))
    return found
