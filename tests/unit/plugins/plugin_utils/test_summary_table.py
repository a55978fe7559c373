# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How the summary looks."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.tether.fleet.plugins.plugin_utils.summary_table import (
    clamp,
    draw,
    excerpt,
    fold,
    printable,
)


def step(action: str, kind: str, name: str) -> Dict[str, str]:
    return {"action": action, "kind": kind, "name": name}


def host(*changes: Dict[str, str], **more: Any) -> Dict[str, Any]:
    failures = [{"task": "T", "message": text} for text in more.pop("failures", [])]
    row = {"status": "failed" if failures else "ok", "changes": list(changes), "attempted": []}
    return {**row, "failures": failures, **more}


def model(url: str, *changes: Dict[str, str], **more: Any) -> Dict[str, Any]:
    failures = [{"message": text} for text in more.pop("failures", [])]
    row = {"state": "served", "answers": True, "url": url, "changes": list(changes)}
    return {**row, "failures": failures, **more}


def document(
    hosts: Dict[str, Any], models: Dict[str, Any], check: bool = False, mistakes: Any = ()
) -> Dict[str, Any]:
    rows = [*hosts.values(), *models.values()]
    return {
        "check_mode": check,
        "ok": not (mistakes or any(row["failures"] for row in rows)),
        "inventory": {
            "models": None if mistakes else len(models),
            "hosts": [name for name in hosts if name != "cluster"],
            "failures": [{"task": "T", "message": text} for text in mistakes],
        },
        "hosts": hosts,
        "models": models,
    }


FILES = [step("create", "file", "/etc/%d" % number) for number in range(3)]
RESTART = step("restart", "process", "tether-ingress.service")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([], ""),
        ([RESTART, *FILES], "3 files, restarted tether-ingress"),
        ([FILES[0], FILES[0]], "1 file"),
        ([FILES[0], step("remove", "file", "/etc/x")], "1 file, removed 1 file"),
        ([step("install", "artifact", "caddy 2.11.7")], "artifact caddy 2.11.7"),
        ([step("create", "model", "/var/lib/m/tiny.gguf")], "model tiny.gguf"),
        ([step("create", "model", "/a/t.gguf"), step("create", "model", "/b/t.gguf")], "2 models"),
        (
            [step("create", "artifact", name) for name in ("caddy 2", "llama 1")],
            "artifacts caddy 2 and llama 1",
        ),
        (
            [step("start", "process", "tether-%d.service" % number) for number in range(3)],
            "started 3 processes",
        ),
        ([step("create", "directory", "/a"), step("create", "directory", "/b")], "2 directories"),
        ([step("revoke", "certificate", "gpu1")], "revoke 1 certificate"),
    ],
)
def test_fold(changes: List[Dict[str, str]], words: str) -> None:
    assert fold(changes) == words


def test_the_table() -> None:
    lines = draw(
        document(
            {"gpu1": host(*FILES, RESTART), "gpu2": host(*FILES, RESTART), "cluster": host()},
            {
                "team-a/tiny": model("http://tiny.team-a.svc", step("create", "Service", "a/t")),
                "team-b/lone": model(
                    "http://lone.team-b.svc:8080",
                    state="waiting",
                    answers=None,
                    failures=["no relay is ready. Look at its pods."],
                ),
            },
        ),
        90,
    )
    assert [line.text for line in lines] == [
        "host or model  changed                                              answers at",
        "gpu1, gpu2     3 files, restarted tether-ingress",
        "cluster        nothing",
        "team-a/tiny    1 Service                                            http://tiny.team-a.svc",
        "team-b/lone    nothing                                              -",
        "    no relay is ready. Look at its pods.",
        "2 hosts, 2 models: 9 things changed; 1 row above needs attention.",
    ]
    assert [line.style for line in lines] == [
        "head", "changed", "plain", "changed", "failed", "failed", "failed",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "answers", "shown"),
    [
        ("served", None, True),
        ("served", True, True),
        ("served", False, False),
        ("planned", None, True),
        # `--tags probe` asks the models and not the relays.
        ("unknown", True, True),
        ("unknown", False, False),
        ("unknown", None, False),
        # What was refused may be served as it was before.
        ("refused", True, True),
        ("refused", None, False),
    ],
)
def test_when_a_models_address_is_shown(state: str, answers: Any, shown: bool) -> None:
    row = model("http://m.n.svc", state=state, answers=answers)
    assert draw(document({}, {"n/m": row}), 80)[1].text.endswith(
        "http://m.n.svc" if shown else " -"
    )


def test_check_mode_says_would() -> None:
    planned = model("http://m.n.svc", state="planned", answers=None)
    text = "\n".join(
        line.text for line in draw(document({"gpu1": host(FILES[0])}, {"n/m": planned}, True), 80)
    )
    assert "would change" in text.splitlines()[0]
    assert "http://m.n.svc" in text
    assert "1 host, 1 model: 1 thing would change, nothing failed." in text


def test_hosts_that_say_the_same_share_a_row() -> None:
    hosts = {"gpu%d" % number: host() for number in range(100)}
    hosts["gpu7"] = host(failures=["disk full"])
    lines = [line.text for line in draw(document(hosts, {}), 80)]
    assert len(lines) == 5
    assert lines[1].startswith("gpu0, gpu1 and 97 more")
    assert lines[3] == "    disk full"


def test_what_a_failed_task_began() -> None:
    row = host(RESTART, attempted=[FILES[0]], failures=["disk full"])
    assert "restarted tether-ingress; begun: 1 file" in draw(document({"g": row}, {}), 80)[1].text


def test_mistakes_of_the_inventory_come_first() -> None:
    lines = draw(document({}, {}, mistakes=["The inventory has 2 mistakes.\n  - a\n  - b"]), 80)
    assert [line.text for line in lines][1:5] == [
        "inventory      nothing", "    The inventory has 2 mistakes.", "      - a", "      - b",
    ]  # fmt: skip


def test_a_run_that_goes_to_no_host() -> None:
    empty = document({}, {})
    empty["inventory"]["models"] = 2
    assert [line.text for line in draw(empty, 80)] == [
        "No host was looked at. The inventory is sound: 2 models."
    ]
    empty["inventory"]["warnings"] = ["placeholders are left"]
    assert [line.text for line in draw(empty, 80)] == [
        "No host was looked at. The inventory's form is right (2 models); see the warnings."
    ]


def test_a_url_is_never_broken() -> None:
    url = "http://%s.team-a.svc:8080" % ("m" * 63)
    lines = [line.text for line in draw(document({}, {"team-a/" + "m" * 63: model(url)}), 80)]
    assert any(line.endswith(url) for line in lines) or any(url in line for line in lines)


def test_no_mistake_of_an_inventory_is_left_out() -> None:
    mistakes = "The inventory has 30 mistakes.\n" + "\n".join("  - %d" % n for n in range(30))
    lines = [line.text.strip() for line in draw(document({}, {}, mistakes=[mistakes]), 80)]
    assert [line for line in lines if line.startswith("- ")] == ["- %d" % n for n in range(30)]
    assert lines[-1] == "Nothing changed; 1 row above needs attention."


def test_of_a_long_message_the_beginning_and_the_end_are_shown() -> None:
    text = "found this;\n" + "\n".join("  line %d" % number for number in range(50)) + "\nMend it."
    lines = excerpt(text, 76)
    assert lines[0] == "found this;"
    assert lines[-1] == "Mend it."
    assert "[44 more lines above]" in lines
    assert len(lines) == 9


def test_nothing_in_a_message_moves_the_cursor() -> None:
    assert "\x1b" not in "".join(excerpt("its last line: \x1b[2Jgone\r\x07", 76))
    assert printable("a\x1bb\tc") == "a b c"


@pytest.mark.parametrize(("columns", "width"), [(20, 80), (100, 100), (400, 120)])
def test_clamp(columns: int, width: int) -> None:
    assert clamp(columns) == width


NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=40)


@given(
    st.dictionaries(NAMES, st.lists(st.text(max_size=200), max_size=2), max_size=5),
    st.dictionaries(NAMES, st.lists(st.text(max_size=200), max_size=2), max_size=5),
    st.integers(80, 120),
)
def test_no_line_is_wider_than_the_table(
    hosts: Dict[str, List[str]], models: Dict[str, List[str]], width: int
) -> None:
    steps = [step("start", "process", "tether-engine-team-a.%d" % number) for number in range(2)]
    drawn = draw(
        document(
            {name: host(*FILES, *steps, failures=texts) for name, texts in hosts.items()},
            {
                "ns/" + name: model("http://%s.ns.svc" % name, *FILES, failures=texts)
                for name, texts in models.items()
            },
        ),
        width,
    )
    assert all(len(line.text) <= width for line in drawn), [line.text for line in drawn]
