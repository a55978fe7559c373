# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a run did, gathered result by result into one document.

Knows nothing of Ansible's classes: it takes names and plain results. The document is what the
callback writes as JSON and what ``summary_table`` draws, so that the two can never disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Mapping, Optional, Set, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import labels

COLLECTION = "tether.fleet."
# Raised when a key of the document changes its meaning or goes away.
SCHEMA = 1
# The kind of a change that says whether a machine drains or serves.
MARK = "mark"
_REBOOT = "ansible.builtin.reboot"
# The row of what is done once for all hosts. No host can have this name.
CONTROLLER = "(controller)"
HIDDEN = (
    "it failed, and its output is withheld because it may hold secrets (no_log). Look at what the "
    "task does, and at the logs of what it talks to."
)
_REACH = "See whether it is up and whether ssh reaches it, then run again."
_NO_REASON = "it failed without a message. Run again with -vvv."


@dataclass
class _Host:
    changes: List[Dict[str, str]] = field(default_factory=list)
    attempted: List[Dict[str, str]] = field(default_factory=list)
    failures: List[Dict[str, Any]] = field(default_factory=list)
    unreachable: bool = False


@dataclass
class _Model:
    """``relay`` and ``probe`` are the newest answers; a later look outdates an earlier one, and a
    later change outdates ``probe``.
    """

    changes: List[Dict[str, str]] = field(default_factory=list)
    relay: Dict[str, Any] = field(default_factory=dict)
    probe: Dict[str, Any] = field(default_factory=dict)
    port: Optional[int] = None


class Run:
    """One run of ansible-playbook.

    :ivar ours: whether any task of this collection ran; without, there is nothing to say
    """

    def __init__(self, playbook: str = "", check_mode: bool = False) -> None:
        self.playbook, self.check_mode = playbook, check_mode
        self.ours = False
        self._hosts: Dict[str, _Host] = {}
        self._models: Dict[str, _Model] = {}
        self._inventory: List[Dict[str, Any]] = []
        self._doubts: List[str] = []
        # Model -> its entry in the validated plan; None until the inventory was found to be sound.
        self._plan: Optional[Dict[str, Dict[str, Any]]] = None
        self._machines: Set[str] = set()
        # Messages that the models' own rows say already: a later task that ends the run for them
        # repeats them.
        self._told: Set[str] = set()

    def ok(self, host: str, task: str, action: str, result: Mapping[str, Any]) -> None:
        """A task's success, or a failure that the playbook keeps for later."""
        if action == _REBOOT and result.get("rebooted"):
            step = {"action": "restart", "kind": "machine", "name": host}
            self._host(host).changes.append(step)
        if not _is_ours(action):
            return
        for part in parts(result):
            self._note(host, action, part, "changes")
            # A failure that `failed_when` let pass: whoever set it ends the run for it later.
            if part.get("failed_when_result") is False and part.get("msg"):
                self._fail(host, task, action, part)

    def failed(self, host: str, task: str, action: str, result: Mapping[str, Any]) -> None:
        """A failure that nothing ignores; of any collection, since it ends the host's run."""
        if is_hidden(result):
            self._add(self._host(host).failures, task, HIDDEN)
            return
        bad = [part for part in parts(result) if part.get("failed", part is result)]
        for part in bad or [result]:
            if _is_ours(action):
                self._note(host, action, part, "attempted")
            self._fail(host, task, action, part)

    def unreachable(self, host: str, task: str, result: Mapping[str, Any]) -> None:
        row = self._host(host)
        row.unreachable = True
        self._add(row.failures, task, HIDDEN if is_hidden(result) else _no_way(result))

    def finish(self, ended_badly: Set[str]) -> Dict[str, Any]:
        """The document.

        :param ended_badly: hosts that Ansible counts as failed or unreachable at the end. A failure
            of another one was rescued, unless it is one that was kept for later.
        """
        hosts = {
            # What is done once, and fails, ends the run of all hosts.
            name: self._host_row(
                row, name in ended_badly or (name == CONTROLLER and bool(ended_badly))
            )
            for name, row in self._hosts.items()
        }
        lost = {name for name, row in hosts.items() if row["status"] == "unreachable"}
        for key in self._plan or {}:
            if self._is_lost(key, lost):
                self._models.setdefault(key, _Model())
        models = {key: self._model_row(key, lost) for key in sorted(self._models)}
        return {
            "schema": SCHEMA,
            "playbook": self.playbook,
            "check_mode": self.check_mode,
            "ok": not (
                ended_badly
                or self._inventory
                or any(row["failures"] for row in (*hosts.values(), *models.values()))
            ),
            "inventory": {
                "models": None if self._plan is None else len(self._plan),
                "hosts": sorted(self._machines),
                "failures": self._inventory,
                "warnings": self._doubts,
            },
            "hosts": hosts,
            "models": models,
        }

    def _host(self, name: str) -> _Host:
        return self._hosts.setdefault(name, _Host())

    def _note(self, host: str, action: str, result: Mapping[str, Any], where: str) -> None:
        """Changes, and what a result says of models."""
        noun = action[len(COLLECTION) :]
        changes = _steps(result.get("changes"))
        if changes and not self.check_mode:
            self._outdate_answers()
        if noun == "validate" and isinstance(result.get("plan"), Mapping):
            self._read_plan(result["plan"])
            self._doubts = [str(text) for text in result.get("warnings") or []]
        elif noun == "relay" and isinstance(result.get("models"), Mapping):
            changes = self._read_relay(result, changes)
        elif noun == "cluster_survey" and result.get("differs") == "":
            # Nothing differs and every model that was asked answered: nobody asks them again in
            # this run.
            asked = result.get("asked") or []
            for key, said in (result.get("models") or {}).items():
                model = self._model(key, result)
                model.relay, model.probe = dict(said), {"ok": True} if key in asked else {}
        elif noun == "registration" and isinstance(result.get("endpoints"), Mapping):
            for key, said in result["endpoints"].items():
                changes = self._read_changes(self._model(key, result), said, changes)
            for machine, mark in (result.get("marked") or {}).items():
                changes = self._read_mark(str(machine), str(mark), changes)
        elif noun == "relay_probe" and isinstance(result.get("models"), Mapping):
            for key, answer in result["models"].items():
                self._model(key, result).probe = dict(answer)
        if noun != "validate":
            row = getattr(self._host(host), where)
            # A step that was looked at first and then taken is one.
            row.extend(step for step in changes if step not in row)

    def _read_plan(self, plan: Mapping[str, Any]) -> None:
        self._plan = {
            key: dict(entry)
            for kind in ("models", "services")
            for key, entry in plan.get(kind, {}).items()
        }
        self._machines = set(plan.get("hosts", {}))

    def _outdate_answers(self) -> None:
        """Of all models: what is done once for all hosts is told of the first one alone."""
        for model in self._models.values():
            model.probe = {}

    def _read_relay(
        self, result: Mapping[str, Any], changes: List[Dict[str, str]]
    ) -> List[Dict[str, str]]:
        """Models' states and changes; returns the changes that belong to no model."""
        rest = list(changes)
        for key, said in result["models"].items():
            model = self._model(key, result)
            # What answered was wired as an earlier look found it.
            model.relay, model.probe = dict(said), {}
            rest = self._read_changes(model, said, rest)
        return rest

    @staticmethod
    def _read_changes(
        model: _Model, said: Mapping[str, Any], changes: List[Dict[str, str]]
    ) -> List[Dict[str, str]]:
        """Notes a model's own changes; returns the others."""
        rest = list(changes)
        own = _steps(said.get("changes"))
        model.changes += [step for step in own if step not in model.changes]
        for step in own:
            if step in rest:
                rest.remove(step)
        return rest

    def _read_mark(
        self, machine: str, mark: str, changes: List[Dict[str, str]]
    ) -> List[Dict[str, str]]:
        """Notes at the machine what its record says; returns the changes of other things."""
        self._host(machine).changes.append({"action": "update", "kind": MARK, "name": mark})
        record = labels.record_name(machine)
        return [step for step in changes if step["name"].rpartition("/")[2] != record]

    def _model(self, key: str, result: Mapping[str, Any]) -> _Model:
        model = self._models.setdefault(key, _Model())
        if model.port is None:
            model.port = _asked_port(key, result)
        return model

    def _is_lost(self, key: str, lost: Set[str]) -> bool:
        """Whether all hosts of a model are unreachable."""
        homes = self._entry(key).get("hosts") or []
        return bool(homes) and lost.issuperset(homes)

    def _entry(self, key: str) -> Dict[str, Any]:
        return (self._plan or {}).get(key, {})

    def _fail(self, host: str, task: str, action: str, result: Mapping[str, Any]) -> None:
        text = str(result.get("msg") or result.get("stderr") or _NO_REASON)
        noun = action[len(COLLECTION) :] if _is_ours(action) else ""
        if noun == "validate":
            # It runs once, on whichever host is first: what it finds is no fault of that host.
            self._add(self._inventory, task, text)
            return
        row = self._host(host)
        if noun in ("relay", "relay_probe") and isinstance(result.get("models"), Mapping):
            self._told.add(_squeezed(text))
        if _squeezed(text) in self._told:
            return
        kept = result.get("failed_when_result") is False
        self._add(row.failures, task, text, kept)

    @staticmethod
    def _add(failures: List[Dict[str, Any]], task: str, text: str, kept: bool = False) -> None:
        """A failure, unless the same words stand there: what is kept for later comes twice."""
        if _squeezed(text) not in [_squeezed(each["message"]) for each in failures]:
            failures.append({"task": task, "message": text, "kept": kept})

    @staticmethod
    def _host_row(row: _Host, ended_badly: bool) -> Dict[str, Any]:
        shown = [each for each in row.failures if ended_badly or row.unreachable or each["kept"]]
        bad = ended_badly or bool(shown)
        return {
            "status": "unreachable" if row.unreachable else "failed" if bad else "ok",
            "changes": row.changes,
            "attempted": row.attempted,
            "failures": [{"task": each["task"], "message": each["message"]} for each in shown],
        }

    def _model_row(self, key: str, lost: Set[str]) -> Dict[str, Any]:
        model = self._models[key]
        plan = self._entry(key)
        state = model.relay.get("state") or "unknown"
        messages = []
        if self._is_lost(key, lost):
            homes = plan["hosts"]
            messages.append(
                "its only host %s is unreachable" % homes[0]
                if len(homes) == 1
                else "all of its hosts (%s) are unreachable" % ", ".join(homes)
            )
        if state in ("refused", "waiting"):
            messages.append(str(model.relay.get("reason") or state))
        messages += [
            "served without %s: %s" % item
            for item in sorted((model.relay.get("hosts") or {}).items())
            if state not in ("refused", "waiting") and item[1] != "accepted"
        ]
        answers = model.probe.get("ok")
        if answers is False:
            messages.append("it does not answer: %s" % (model.probe.get("reason") or "no word"))
        return {
            "state": state,
            "answers": answers,
            "url": url(key, model.port or plan.get("port")),
            "changes": model.changes,
            "failures": [{"message": text} for text in dict.fromkeys(messages)],
        }


def url(key: str, port: Optional[int]) -> str:
    """Where the model ``namespace/name`` answers in the cluster."""
    namespace, name = key.split("/", 1)
    return "http://%s.%s.svc%s" % (name, namespace, ":%d" % port if port and port != 80 else "")


def is_hidden(result: Mapping[str, Any]) -> bool:
    """Whether a result must not be read (``no_log``)."""
    return "censored" in result or bool(result.get("_ansible_no_log"))


def parts(result: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The result, or those of a loop's items; what is hidden is left out."""
    if is_hidden(result):
        return
    items = result.get("results")
    if isinstance(items, list) and items and all(isinstance(item, Mapping) for item in items):
        yield from (item for item in items if not is_hidden(item))
    else:
        yield result


def _is_ours(action: str) -> bool:
    return action.startswith(COLLECTION)


def _no_way(result: Mapping[str, Any]) -> str:
    """Ansible's message says what was tried, not what to do."""
    said = str(result.get("msg") or "no word why").strip().removeprefix("Task failed: ")
    return "unreachable: %s. %s" % (said.rstrip("."), _REACH)


def _steps(value: Any) -> List[Dict[str, str]]:
    """The ``changes`` of a result; anything else under that name is somebody else's."""
    keys = ("action", "kind", "name")
    if not isinstance(value, (list, tuple)):
        return []
    return [
        {key: str(item[key]) for key in keys}
        for item in value
        if isinstance(item, Mapping) and all(key in item for key in keys)
    ]


def _asked_port(key: str, result: Mapping[str, Any]) -> Optional[int]:
    """The port in the module's arguments, for those who use the module without the plan."""
    arguments = (result.get("invocation") or {}).get("module_args") or {}
    for entry in arguments.get("models") or []:
        if "%s/%s" % (entry.get("namespace"), entry.get("name")) == key:
            return int(entry.get("port") or 80)
    return None


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def totals(document: Mapping[str, Any]) -> Tuple[int, int]:
    """How many changes the document tells of, and how many rows with a failure."""
    rows = [*document["hosts"].values(), *document["models"].values()]
    changes = sum(len(row["changes"]) for row in rows)
    return changes, sum(bool(row["failures"]) for row in (*rows, document["inventory"]))
