# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.plan import (
    MASK,
    Plan,
    Refusal,
    Step,
    run_module,
)


class Ending(BaseException):
    """A module ended; its result."""

    def __init__(self, failed: bool, result: dict) -> None:
        super().__init__(result)
        self.failed, self.result = failed, result


class Module:
    """What run_module needs of AnsibleModule, with endings that a test can look at."""

    def __init__(self, check_mode: bool) -> None:
        self.check_mode = check_mode

    def exit_json(self, **result: object) -> None:
        raise Ending(False, result)

    def fail_json(self, **result: object) -> None:
        raise Ending(True, result)


class Component:
    def __init__(self, steps: list[Step], apply_raises: bool = False) -> None:
        self.steps, self.apply_raises, self.calls = steps, apply_raises, []

    def observe(self, desired: dict) -> dict:
        self.calls.append("observe")
        return {}

    def plan(self, desired: dict, observed: dict) -> Plan:
        return Plan(self.steps, {"fact": 1})

    def apply(self, plan: Plan) -> dict:
        self.calls.append("apply")
        if self.apply_raises:
            raise Refusal("thing", "a", "b", "Do c", {"extra": 2})
        return {"fact": 3}

    def verify(self, plan: Plan) -> dict:
        self.calls.append("verify")
        return {"seen": True}


def run(component: Component, check_mode: bool) -> Ending:
    with pytest.raises(Ending) as ended:
        run_module(Module(check_mode), component, {})
    return ended.value


@pytest.mark.parametrize(
    ("steps", "check_mode", "calls", "fact"),
    [
        ([], False, ["observe", "verify"], 1),
        ([], True, ["observe"], 1),
        ([Step("create", "file", "/x")], True, ["observe"], 1),
        ([Step("create", "file", "/x")], False, ["observe", "apply", "verify"], 3),
    ],
)
def test_what_is_called(steps, check_mode, calls, fact):
    component = Component(steps)
    ended = run(component, check_mode)
    assert component.calls == calls
    assert not ended.failed
    assert ended.result["fact"] == fact
    assert ended.result["changed"] is bool(steps)


def test_a_refusal_keeps_what_was_planned():
    ended = run(Component([Step("create", "file", "/x")], apply_raises=True), False)
    assert ended.failed
    assert ended.result["msg"] == "thing: found a; expected b. Do c."
    assert ended.result["extra"] == 2
    assert ended.result["changes"] == [{"action": "create", "kind": "file", "name": "/x"}]


def test_secrets_are_masked_in_the_diff():
    diff = Step("update", "file", "/x", before="old", after="new", secret=True).diff()
    assert diff["before"] == MASK + "\n"
    assert diff["after"] == MASK + " changed\n"


def test_a_step_without_texts_still_shows():
    assert Step("restart", "process", "x").diff() == {"prepared": "restart process x\n"}
