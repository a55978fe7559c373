# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The runner of the tests is what says that all is well: so it is tested that it says otherwise."""

from __future__ import annotations

import importlib.util
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

RUN = Path(__file__).resolve().parents[1] / "run"
PYTHON = sys.executable


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(RUN))
    spec = importlib.util.spec_from_file_location("tether_runner", RUN / "__main__.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "tether_runner", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "BUILD", tmp_path)
    monkeypatch.setattr(module.lanes, "ROOT", tmp_path)
    # The outer pytest's report is not the inner one's.
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return module


def part(runner: ModuleType, name: str, code: str, **options: object) -> object:
    return runner.Part(name, "", (PYTHON, "-c", code), **options)


def ended(pid: str) -> bool:
    """Whether a killed process goes, or is dead and only waits for whoever inherited it."""
    stat = Path(f"/proc/{int(pid)}/stat")
    for _look in range(100):
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.1)
    return False


def say(runner: ModuleType, monkeypatch: pytest.MonkeyPatch, parts: list[object]) -> int:
    monkeypatch.setattr(runner, "choose", lambda words: parts)
    return runner.main([])


@pytest.mark.parametrize(
    ("report", "status", "counts"),
    [
        (None, 0, (1, 0, 0)),
        (None, 3, (0, 1, 0)),
        ((5, 1, 1, 1), 1, (2, 2, 1)),
        ((4, 0, 0, 0), 0, (4, 0, 0)),
        # pytest's 5: it found no test. And a crash after the last test.
        ((0, 0, 0, 0), 5, (0, 1, 0)),
        ((4, 0, 0, 0), 139, (4, 1, 0)),
    ],
)
def test_counts(
    runner: ModuleType,
    tmp_path: Path,
    report: str | None,
    status: int,
    counts: tuple[int, int, int],
) -> None:
    path = tmp_path / "report.xml"
    if report:
        attributes = zip(("tests", "failures", "errors", "skipped"), report, strict=True)
        text = " ".join(f'{name}="{number}"' for name, number in attributes)
        path.write_text(f"<testsuites><testsuite {text}/></testsuites>")
    result = runner.count(path, status)
    assert (result.passed, result.failed, result.skipped) == counts


def test_a_failure_keeps_nothing_from_running(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [
        part(runner, "good", ""),
        part(runner, "bad", "raise SystemExit(3)"),
        runner.Part("gone", "", ("no-such-program-anywhere",)),
        part(runner, "empty", "", needs="no/such/file/*.py"),
        part(runner, "later", ""),
    ]
    assert say(runner, monkeypatch, parts) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "2 passed, 2 failed"
    rows = {line.split()[0]: line for line in lines if line and not line.startswith("==")}
    assert "exit status 3" in rows["bad"]
    assert "no-such-program" in rows["gone"]
    assert "nothing to check" in rows["empty"]


def test_success(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert say(runner, monkeypatch, [part(runner, "good", "")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed"


def test_failed_tests_are_named_at_the_end(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = (
        "<testsuites><testsuite tests='3' failures='1' errors='1' skipped='0'>"
        "<testcase classname='a.b' name='good'/>"
        "<testcase classname='a.b' name='bad'><failure message='assert 1 == 2&#10;x'/></testcase>"
        "<testcase classname='a.b' name='worse'><error message=''/></testcase>"
        "</testsuite></testsuites>"
    )
    code = f"import pathlib, sys; pathlib.Path('suite.xml').write_text({suite!r}); sys.exit(1)"
    assert say(runner, monkeypatch, [part(runner, "suite", code)]) == 1
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "FAILED suite: a.b::bad: assert 1 == 2",
        "FAILED suite: a.b::worse: ",
        "1 passed, 2 failed",
    ]


def test_nothing_run_is_no_success(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert say(runner, monkeypatch, [part(runner, "empty", "", needs="no/such/*.py")]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 0 failed"


def test_time_limit_ends_children_too(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What hangs is often a child of the program; left alive it would hold the bed."""
    child = tmp_path / "child"
    code = f"sleep 300 & echo $! > {child}; wait"
    hangs = runner.Part("hangs", "", ("sh", "-c", code), limit=5)
    assert say(runner, monkeypatch, [hangs]) == 1
    assert ended(child.read_text())


def test_a_part_that_needs_the_bed_fails_without_it(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner.Beds, "start", lambda self: setattr(self, "refusal", "no root"))
    parts = [part(runner, "needs", "", bed="must"), part(runner, "likes", "", bed="may")]
    assert say(runner, monkeypatch, parts) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "1 passed, 1 failed"
    assert out.count("no root") == 2


def test_unknown_words_are_named(runner: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"no part nonsense; there are: .*ruff"):
        runner.choose(["nonsense"])


def test_every_part_is_in_the_documentation(runner: ModuleType) -> None:
    page = (RUN.parents[1] / "docs" / "testing.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| ")]
    told = {name.strip() for row in rows[1:] for name in row.split(",")}
    # Each scenario is a part; the page tells of all of them in one row.
    assert told == {part.name.partition(" ")[0] for part in runner.choose(["all"])}


def test_company(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Parts that bear company run at the same time, and the output of each stays in one piece."""
    # Each waits for the other: one after the other they would never end.
    code = (
        "import pathlib, time; print('{0} begins', flush=True); pathlib.Path('{0}').touch()\n"
        "while not pathlib.Path('{1}').exists(): time.sleep(0.01)\n"
        "print('{0} ends')"
    )
    parts = [
        part(runner, name, code.format(name, other), company=True, limit=60)
        for name, other in (("one", "two"), ("two", "one"))
    ]
    assert say(runner, monkeypatch, parts) == 0
    out = capsys.readouterr().out
    assert "one begins\none ends\n" in out
    assert "two begins\ntwo ends\n" in out
    assert out.splitlines()[-1] == "2 passed, 0 failed"


def test_a_claim_is_one_parts_alone(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A part with a claim waits for the one that has it; one without passes it by."""
    # The second finds what the first left, the third lets the first end.
    first = "import pathlib, time\nwhile not pathlib.Path('third').exists(): time.sleep(0.01)\n"
    parts = [
        part(runner, "first", first + "pathlib.Path('first').touch()", claims="bed"),
        part(runner, "second", "open('first')", claims="bed"),
        part(runner, "third", "open('third', 'w')"),
    ]
    parts = [replace(each, company=True, limit=60) for each in parts]
    assert say(runner, monkeypatch, parts) == 0


def test_interrupt_ends_what_runs(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mark = tmp_path / "pid"
    code = f"echo $$ > {mark}; exec sleep 300"

    def interrupt(each: object) -> None:
        for _look in range(3000):
            if mark.exists() and mark.read_text():
                raise KeyboardInterrupt
            time.sleep(0.01)

    monkeypatch.setattr(runner.lanes, "_look", interrupt)
    assert say(runner, monkeypatch, [runner.Part("long", "", ("sh", "-c", code))]) == 1
    assert ended(mark.read_text())
