# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plan, then apply: the shape that every host module shares.

A component (``artifact``, ``daemon``, ``files``...) is three functions in one module of
``module_utils``:

* ``observe(desired) -> observed`` reads the host and changes nothing;
* ``plan(desired, observed) -> Plan`` is pure, so a unit test reaches it without a host;
* ``apply(plan) -> dict`` carries the plan out and returns the facts that hold afterwards.

A component may have a fourth, ``verify(plan) -> dict``: called in every run outside check mode,
after ``apply`` and also when there was nothing to apply, because an earlier run may have been
killed between a change and the look at its outcome. It waits until what runs is right.

Check mode and ``--diff`` show the plan; the run applies the same plan. So what a check predicts is
what the run does, by construction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union

from ansible_collections.tether.fleet.plugins.module_utils import os_trouble

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

MASK = "(secret, not shown)"


def printable(text: str) -> str:
    """Without what could move a terminal's cursor or hide text; lines stay lines.

    Messages quote what programs, hosts and tenants wrote.
    """
    return "".join(each if each.isprintable() or each == "\n" else " " for each in text)


class Refusal(Exception):  # noqa: N818 - what it is, not that it is an error
    """Something that the collection will not do, said so that a tired person can act on it.

    :param what: the thing at hand, for example ``file /etc/tether/x``
    :param found: what was found
    :param expected: what was expected
    :param remedy: what to do, as an imperative sentence
    :param facts: more fields for the module's result (JSON-able)
    """

    def __init__(
        self,
        what: str,
        found: str,
        expected: str,
        remedy: str,
        facts: Optional[Dict[str, Any]] = None,
    ) -> None:
        self.what, self.found, self.expected, self.remedy = what, found, expected, remedy
        self.facts = dict(facts or {})
        text = "%s: found %s; expected %s. %s" % (what, found, expected, remedy.rstrip(".") + ".")
        super().__init__(printable(text))


@dataclass
class Step:
    """One change to one thing.

    :ivar action: verb: create, update, remove, start, restart, reload, enable, sign, upload...
    :ivar kind: noun: file, directory, link, account, unit, process, artifact, model, certificate...
    :ivar name: which one (a path, a unit name, ``caddy 2.11.7``)
    :ivar before: text for the diff's left side, None when there is nothing before
    :ivar after: text for the diff's right side, None when there is nothing after
    :ivar secret: the texts are secret: the diff shows a mask that says only whether they change
    :ivar data: what ``apply`` needs to carry the step out; never shown
    """

    action: str
    kind: str
    name: str
    before: Optional[str] = None
    after: Optional[str] = None
    secret: bool = False
    data: Dict[str, Any] = field(default_factory=dict)

    def summary(self) -> Dict[str, str]:
        """The step as ``{"action", "kind", "name"}``: equal in check mode and in the run."""
        return {"action": self.action, "kind": self.kind, "name": self.name}

    def words(self) -> str:
        """The same as a person would say it: ``restart process tether-ingress.service``."""
        return "%s %s %s" % (self.action, self.kind, self.name)

    def diff(self) -> Dict[str, str]:
        """The step as an entry of Ansible's ``diff`` result; secrets are masked."""
        before, after = self.before, self.after
        if self.secret:
            before = None if before is None else MASK
            after = None if after is None else MASK + " changed"
        header = "%s %s" % (self.kind, self.name)
        if before is None and after is None:
            return {"prepared": "%s %s\n" % (self.action, header)}
        return {
            "before_header": header,
            "after_header": "%s (%s)" % (header, self.action),
            "before": _lines(before),
            "after": _lines(after),
        }


@dataclass
class Plan:
    """What is to be done (``steps``, in order) and what can already be said (``facts``).

    :ivar data: what ``apply`` and ``verify`` need beside the steps; never shown
    """

    steps: List[Step] = field(default_factory=list)
    facts: Dict[str, Any] = field(default_factory=dict)
    data: Dict[str, Any] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        return bool(self.steps)

    def result(self) -> Dict[str, Any]:
        """The plan as a module result: ``changed``, ``changes``, ``diff`` and the facts."""
        result = dict(self.facts)
        result.update(
            changed=self.changed,
            changes=[step.summary() for step in self.steps],
            diff=[step.diff() for step in self.steps],
        )
        return result


def run_module(module: AnsibleModule, component: Any, desired: Dict[str, Any]) -> None:
    """Observe, plan and (outside check mode) apply and verify; exits the module.

    :param component: a module or object with ``observe``, ``plan``, ``apply``, perhaps ``verify``
    :param desired: what the component's ``observe`` and ``plan`` take
    """
    result: Dict[str, Any] = {}
    plan = Plan()
    try:
        plan = component.plan(desired, component.observe(desired))
        result = plan.result()
        if plan.changed and not module.check_mode:
            result.update(component.apply(plan) or {})
        if not module.check_mode and hasattr(component, "verify"):
            result.update(component.verify(plan) or {})
    except (Refusal, OSError) as error:
        refusal = as_refusal(error)
        # The steps stay in the failure, since some may have been carried out; what would have held
        # after all of them is not said.
        for key in plan.facts:
            result.pop(key, None)
        result.update(refusal.facts)
        module.fail_json(msg=str(refusal), **result)
    module.exit_json(**result)


def as_refusal(error: Union[Refusal, OSError]) -> Refusal:
    """A refusal as it is, and an error of the operating system (a full disk) in words."""
    return error if isinstance(error, Refusal) else Refusal(*os_trouble.words(error))


def _lines(text: Optional[str]) -> str:
    if not text:
        return ""
    return text if text.endswith("\n") else text + "\n"
