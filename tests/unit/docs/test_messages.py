# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The collector of messages finds each form in which the code words one."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import message_tables
import messages
import pytest
from message_tables import Area, GapError

PLAN = """
    class Refusal(Exception):
        def __init__(self, what, found, expected, remedy, facts=None):
            super().__init__(what)
"""


def collect(folder: Path, source: str) -> list[str]:
    """What is found in one file beside the class of refusals."""
    (folder / "plan.py").write_text(dedent(PLAN))
    (folder / "part.py").write_text(dedent(source))
    return [each.text for each in messages.collect(folder)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(
            """
            def check(path):
                raise Refusal("file %s" % path, "no file", "one", "Make it")
            """,
            ["file …: found no file; expected one. Make it."],
            id="a refusal",
        ),
        pytest.param(
            """
            def check(left):
                found = "two" if left else "three"
                raise Refusal("key", found, f"at most {left}", "Remove one.")
            """,
            [
                "key: found three; expected at most …. Remove one.",
                "key: found two; expected at most …. Remove one.",
            ],
            id="each choice of a text",
        ),
        pytest.param(
            """
            def check(name):
                raise _unsafe(name, "a link")

            def _unsafe(what, found, expected=""):
                return Refusal(what, found, expected or "a file", "Look at it")
            """,
            ["…: found a link; expected a file. Look at it."],
            id="a helper is followed to its caller",
        ),
        pytest.param(
            """
            def check(findings, size):
                _add(findings, "disk", "%d bytes" % size, "more", "Make room")

            def _add(findings, check, found, expected, remedy):
                findings.append((check, found, expected, remedy))
            """,
            ["disk: found … bytes; expected more. Make room."],
            id="a helper of a refusal's shape",
        ),
        pytest.param(
            """
            def check(status):
                expected, remedy = {
                    401: ("valid credentials", "Renew them"),
                    404: ("it to exist", "Create it"),
                }.get(status, ("success", "Look at the log"))
                raise Refusal("get", "status %d" % status, expected, remedy)
            """,
            [
                "get: found status …; expected it to exist. Create it.",
                "get: found status …; expected success. Look at the log.",
                "get: found status …; expected valid credentials. Renew them.",
            ],
            id="what is chosen together stays together",
        ),
        pytest.param(
            """
            Advice = Tuple[str, str]

            def advise(name) -> Advice:
                return ("room in it", "Raise the quota %s" % name)
            """,
            ["expected room in it. Raise the quota …."],
            id="advice that a refusal is made of elsewhere",
        ),
        pytest.param(
            """
            class PolicyError(Exception):
                pass

            def check(days):
                raise PolicyError("lifetime of %s days: expected more" % days)
            """,
            ["lifetime of … days: expected more"],
            id="an error of another class",
        ),
        pytest.param(
            """
            @dataclass
            class Mistake:
                model: str
                key: str
                message: str

            def check(where):
                return [Mistake(where, "port", "is taken; give another")]
            """,
            ["is taken; give another"],
            id="a mistake",
        ),
        pytest.param(
            """
            def why(value) -> Optional[str]:
                if value == "x":
                    return "is %s, which nobody knows" % value
                return None
            """,
            ["is …, which nobody knows"],
            id="a text that says why",
        ),
        pytest.param(
            """
            def check(names):
                wrong = []
                wrong.append("name is not plain")
                wrong += ["%s: is listed twice" % name for name in names]
            """,
            ["name is not plain", "…: is listed twice"],
            id="texts that are collected",
        ),
        pytest.param(
            """
            def run(module, verdict, items):
                verdict.reason = "; ".join("%s is somebody else's" % item for item in items)
                module.fail_json(msg="it does not work", changed=False)
            """,
            ["it does not work", "… is somebody else's"],
            id="verdicts and failures of a module",
        ),
        pytest.param(
            """
            def name(value) -> Optional[str]:
                return value or "tether"

            def label() -> str:
                return "this is no message at all"
            """,
            [],
            id="what is no message",
        ),
    ],
)
def test_forms(tmp_path: Path, source: str, expected: list[str]) -> None:
    assert sorted(collect(tmp_path, source)) == sorted(expected)


AREA = Area("Files", "About files.", ["part.py"])


@pytest.mark.parametrize(
    ("areas", "said"),
    [
        ([], "part.py makes messages (the first in line 3) and is in no area"),
        (
            [Area("Files", "", ["part.py", "gone.py"])],
            "gone.py is in an area of areas.yml and makes",
        ),
        ([AREA, AREA], "part.py is in several areas"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path: Path, areas: list[Area], said: str) -> None:
    collect(tmp_path, '\ndef check():\n    raise Refusal("a", "b", "c", "Do it")\n')
    with pytest.raises(GapError) as caught:
        message_tables.check(areas, messages.collect(tmp_path), "areas.yml")
    assert said in str(caught.value)


def test_a_message_without_a_remedy_needs_one(tmp_path: Path) -> None:
    collect(tmp_path, "def why() -> Optional[str]:\n    return 'it is not well at all'\n")
    found = messages.collect(tmp_path)
    with pytest.raises(GapError) as caught:
        message_tables.check([AREA], found, "areas.yml")
    assert "give it one in the code, or write `remedy` for the area 'Files'" in str(caught.value)
    message_tables.check([Area("Files", "", ["part.py"], "Mend it.")], found, "areas.yml")


def test_every_refusal_of_the_collection_is_found() -> None:
    """Counted another way: by the lines on which one is raised or made."""
    plugins = Path(__file__).resolve().parents[3] / "plugins"
    found = messages.collect(plugins)
    files = {message.file for message in found}
    silent = [
        str(path.relative_to(plugins))
        for path in plugins.rglob("*.py")
        if "raise Refusal(" in path.read_text() and str(path.relative_to(plugins)) not in files
    ]
    assert silent == []
    # No message is nothing but gaps: nobody could look for such a one.
    assert [message for message in found if not message.text.strip("… :;,.\n")] == []
