# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the summary gathers from results."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import pytest

from ansible_collections.tether.fleet.plugins.plugin_utils import summary_table
from ansible_collections.tether.fleet.plugins.plugin_utils.summary import (
    CONTROLLER,
    HIDDEN,
    Run,
    url,
)

FILE = {"action": "create", "kind": "file", "name": "/etc/tether/a"}
RESTART = {"action": "restart", "kind": "process", "name": "tether-ingress.service"}
SERVICE = {"action": "create", "kind": "Service", "name": "team-a/tiny"}
LEASE = {"action": "create", "kind": "Namespace", "name": "tether-fleet"}
PLAN = {
    "models": {
        "team-a/tiny": {"hosts": ["gpu1", "gpu2"], "port": 80},
        "team-b/lone": {"hosts": ["gpu2"], "port": 8080},
    },
    "hosts": {"gpu1": {}, "gpu2": {}},
}
RELAY = "tether.fleet.relay"
PROBE = "tether.fleet.relay_probe"
FILES = "tether.fleet.files"
DAEMON = "tether.fleet.daemon"


def relay(state: str = "served", reason: str = "", **hosts: str) -> Dict[str, Any]:
    return {
        "changes": [LEASE, SERVICE],
        "models": {
            "team-a/tiny": {"state": state, "reason": reason, "hosts": hosts, "changes": [SERVICE]}
        },
    }


def messages(row: Dict[str, Any]) -> List[str]:
    return [each["message"] for each in row["failures"]]


def run(plan: Optional[Dict[str, Any]] = PLAN) -> Run:
    one = Run("site.yml")
    if plan:
        one.ok("gpu1", "Check", "tether.fleet.validate", {"plan": plan})
    return one


def test_changes_are_gathered_by_host() -> None:
    one = run()
    one.ok("gpu1", "Write", FILES, {"changes": [FILE]})
    one.ok("gpu1", "Run", DAEMON, {"changes": [RESTART]})
    one.ok("gpu2", "Write", FILES, {"changes": []})
    one.ok("gpu2", "Other", "ansible.builtin.copy", {"changes": [FILE], "changed": True})
    document = one.finish(set())
    assert document["ok"]
    assert document["hosts"]["gpu1"]["changes"] == [FILE, RESTART]
    assert document["hosts"]["gpu2"]["changes"] == []
    assert document["models"] == {}
    assert document["inventory"] == {
        "models": 2,
        "hosts": ["gpu1", "gpu2"],
        "failures": [],
        "warnings": [],
    }


def test_doubts_of_the_inventory_are_kept() -> None:
    one = Run("site.yml")
    one.ok("gpu1", "Check", "tether.fleet.validate", {"plan": PLAN, "warnings": ["a placeholder"]})
    assert one.finish(set())["inventory"]["warnings"] == ["a placeholder"]


def test_a_step_that_was_looked_at_first_is_told_once() -> None:
    one = run()
    for _look in range(2):
        one.ok("gpu1", "Sign", FILES, {"changes": [FILE], "changed": True})
    assert one.finish(set())["hosts"]["gpu1"]["changes"] == [FILE]


def test_what_is_done_once_is_no_hosts() -> None:
    """It fails all hosts of the run, and is told once."""
    one = run()
    one.ok(CONTROLLER, "Token", "tether.fleet.token", {"changes": [LEASE]})
    one.failed(CONTROLLER, "Fetch", "tether.fleet.depot", {"failed": True, "msg": "no such file"})
    document = one.finish({"gpu1", "gpu2"})
    assert list(document["hosts"]) == [CONTROLLER]
    row = document["hosts"][CONTROLLER]
    assert (row["status"], row["changes"], messages(row)) == ("failed", [LEASE], ["no such file"])
    assert one.finish(set())["hosts"][CONTROLLER]["status"] == "ok"


def test_a_loops_items_count_each() -> None:
    one = run(None)
    hidden = {"_ansible_no_log": True, "changes": [SERVICE]}
    one.ok(
        "gpu1", "Write", FILES, {"results": [{"changes": [FILE]}, hidden, {"changes": [RESTART]}]}
    )
    assert one.finish(set())["hosts"]["gpu1"]["changes"] == [FILE, RESTART]


def test_a_models_changes_are_its_own_and_not_the_clusters() -> None:
    one = run()
    one.ok("cluster", "Serve", RELAY, relay(gpu1="accepted", gpu2="accepted"))
    one.ok("cluster", "Ask", PROBE, {"models": {"team-a/tiny": {"ok": True}}})
    document = one.finish(set())
    assert document["hosts"]["cluster"]["changes"] == [LEASE]
    assert document["models"]["team-a/tiny"] == {
        "state": "served",
        "answers": True,
        "url": "http://tiny.team-a.svc",
        "changes": [SERVICE],
        "failures": [],
    }


def test_a_mark_is_the_hosts_record_s_and_what_follows_the_models() -> None:
    """Of a model that only drain.yml touched nobody knows whether it is served."""
    one = run()
    record, config = (
        {"action": "update", "kind": "ConfigMap", "name": name}
        for name in ("tether-fleet/host-gpu1", "team-a/tiny-relay")
    )
    said = {"changes": [record, config], "endpoints": {"team-a/tiny": {"changes": [config]}}}
    one.ok("cluster", "Mark", "tether.fleet.registration", said)
    document = one.finish(set())
    assert document["ok"]
    assert document["hosts"]["cluster"]["changes"] == [record]
    model = document["models"]["team-a/tiny"]
    assert (model["state"], model["changes"], model["failures"]) == ("unknown", [config], [])


@pytest.mark.parametrize("mark", ["draining", "serving"])
def test_a_mark_by_hand_is_the_machines(mark: str) -> None:
    one = run()
    record = {"action": "update", "kind": "ConfigMap", "name": "tether-fleet/host-gpu1"}
    said = {"changes": [record], "endpoints": {}, "marked": {"gpu1": mark}}
    one.ok("cluster", "Mark", "tether.fleet.registration", said)
    document = one.finish(set())
    assert document["hosts"]["cluster"]["changes"] == []
    changes = document["hosts"]["gpu1"]["changes"]
    assert changes == [{"action": "update", "kind": "mark", "name": mark}]
    assert summary_table.fold(changes) == mark


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (relay("waiting", "no relay is ready", gpu1="accepted"), ["no relay is ready"]),
        (relay("refused", "Service is theirs"), ["Service is theirs"]),
        # Its reason tells of the hosts already.
        (relay("refused", "no host", gpu1="no record"), ["no host"]),
        (
            relay("served", "", gpu1="accepted", gpu2="no record"),
            ["served without gpu2: no record"],
        ),
    ],
)
def test_what_the_relay_role_says_of_a_model(said: Dict[str, Any], told: List[str]) -> None:
    message = "1 of 1 model needs attention.\nteam-a/tiny: ..."
    one = run()
    one.ok("cluster", "Serve", RELAY, {**said, "msg": message, "failed_when_result": False})
    one.failed("cluster", "End", "ansible.builtin.fail", {"msg": message + "\n"})
    document = one.finish({"cluster"})
    assert messages(document["models"]["team-a/tiny"]) == told
    # Said once, at the model: neither the deferred failure nor the play's end repeats it.
    assert messages(document["hosts"]["cluster"]) == []
    assert document["hosts"]["cluster"]["status"] == "failed"
    assert not document["ok"]


def test_a_survey_that_finds_no_difference_has_asked_the_models() -> None:
    survey = "tether.fleet.cluster_survey"
    said = {"team-a/tiny": {"state": "served", "reason": "", "hosts": {}, "changes": []}}
    one = run()
    one.ok("cluster", "Ask", survey, {"differs": "", "models": said, "asked": list(said)})
    model = one.finish(set())["models"]["team-a/tiny"]
    assert (model["state"], model["answers"]) == ("served", True)
    # As of a service that is exposed directly.
    one = run()
    one.ok("cluster", "Ask", survey, {"differs": "", "models": said, "asked": []})
    model = one.finish(set())["models"]["team-a/tiny"]
    assert (model["state"], model["answers"]) == ("served", None)
    # What differs is only planned there: the relay role says what became of it.
    one = run()
    one.ok("cluster", "Ask", survey, {"differs": "create Service", "models": said})
    assert one.finish(set())["models"] == {}


def answered(check_mode: bool = False) -> Run:
    """A run whose survey found every model as declared, and answering."""
    said = {"state": "served", "reason": "", "hosts": {}, "changes": []}
    one = Run("site.yml", check_mode)
    one.ok("gpu1", "Check", "tether.fleet.validate", {"plan": PLAN})
    models = {"team-a/tiny": said, "team-b/lone": said}
    found = {"differs": "", "models": models, "asked": list(models)}
    one.ok("cluster", "Ask", "tether.fleet.cluster_survey", found)
    return one


def answers(one: Run) -> List[Optional[bool]]:
    return [row["answers"] for row in one.finish(set())["models"].values()]


def test_a_relay_that_is_refused_after_its_answer() -> None:
    one = answered()
    one.ok("cluster", "Serve", RELAY, {**relay("refused", "Service is theirs"), "changes": []})
    models = one.finish(set())["models"]
    assert (models["team-a/tiny"]["state"], models["team-a/tiny"]["answers"]) == ("refused", None)
    assert models["team-b/lone"]["answers"] is True


def test_a_change_outdates_answers_and_a_prediction_does_not() -> None:
    one = answered()
    one.ok("gpu1", "Run", DAEMON, {"changes": []})
    one.ok("gpu1", "Run", "ansible.builtin.copy", {"changed": True})
    assert answers(one) == [True, True]
    one.ok("gpu1", "Run", DAEMON, {"changes": [RESTART]})
    assert answers(one) == [None, None]
    one.ok("cluster", "Ask", PROBE, {"models": {"team-a/tiny": {"ok": True}}})
    assert answers(one) == [True, None]

    one = answered()
    one.failed("gpu1", "Run", DAEMON, {"msg": "it died", "changes": [RESTART]})
    assert answers(one) == [None, None]

    one = answered(check_mode=True)
    one.ok("gpu1", "Run", DAEMON, {"changes": [RESTART]})
    assert answers(one) == [True, True]


def test_a_later_look_outdates_an_earlier_one() -> None:
    one = run()
    one.ok("cluster", "Serve", RELAY, relay("waiting", "not ready"))
    one.ok("cluster", "Pin", RELAY, relay("served"))
    document = one.finish(set())
    assert document["models"]["team-a/tiny"]["state"] == "served"
    assert document["ok"]


def test_a_model_that_does_not_answer() -> None:
    one = run()
    answers = {"team-a/tiny": {"ok": False, "reason": "/v1/models: status 503 from Envoy"}}
    one.ok("cluster", "Serve", RELAY, relay())
    one.failed("cluster", "Ask", PROBE, {"msg": "1 of 1 models", "models": answers})
    document = one.finish({"cluster"})
    assert messages(document["models"]["team-a/tiny"]) == [
        "it does not answer: /v1/models: status 503 from Envoy"
    ]
    assert messages(document["hosts"]["cluster"]) == []


def test_a_failure_that_is_kept_for_later_is_told_once() -> None:
    text = "1 of 2 daemons: found tether-x: died;\n  its last lines; expected health. Mend it."
    one = run()
    kept = {"msg": text, "failed_when_result": False, "changes": [RESTART], "daemons": {}}
    one.ok("gpu1", "Run the engines", DAEMON, kept)
    one.failed("gpu1", "End the run", "ansible.builtin.fail", {"msg": text.replace("\n", " ")})
    row = one.finish({"gpu1"})["hosts"]["gpu1"]
    assert row["failures"] == [{"task": "Run the engines", "message": text}]
    assert row["changes"] == [RESTART]


def test_a_failure_that_is_kept_for_later_is_told_when_the_run_ends_early() -> None:
    one = run()
    one.ok("gpu1", "Run", DAEMON, {"msg": "it died", "failed_when_result": False, "daemons": {}})
    document = one.finish(set())
    assert document["hosts"]["gpu1"]["status"] == "failed"
    assert not document["ok"]


def test_what_a_failed_task_began_is_told_apart() -> None:
    one = run()
    one.failed("gpu1", "Write", FILES, {"msg": "disk full", "changes": [FILE]})
    row = one.finish({"gpu1"})["hosts"]["gpu1"]
    assert row["attempted"] == [FILE]
    assert row["changes"] == []
    assert messages(row) == ["disk full"]


def test_a_rescued_failure_is_none() -> None:
    one = run()
    one.failed("gpu1", "Try", FILES, {"msg": "not yet"})
    one.failed("gpu2", "Try", FILES, {"msg": "not at all"})
    document = one.finish({"gpu2"})
    assert document["hosts"]["gpu1"]["status"] == "ok"
    assert messages(document["hosts"]["gpu1"]) == []
    assert messages(document["hosts"]["gpu2"]) == ["not at all"]


def test_of_a_failed_loop_the_failed_items_are_told() -> None:
    one = run()
    items = [{"msg": "fine"}, {"failed": True, "msg": "no space"}]
    one.failed("gpu1", "Write", FILES, {"msg": "One or more items failed", "results": items})
    assert messages(one.finish({"gpu1"})["hosts"]["gpu1"]) == ["no space"]


def test_the_inventorys_mistakes_are_no_hosts() -> None:
    one = run(None)
    one.failed("gpu1", "Check", "tether.fleet.validate", {"msg": "The inventory has 2 mistakes"})
    document = one.finish({"gpu1"})
    assert messages(document["inventory"]) == ["The inventory has 2 mistakes"]
    assert "gpu1" not in document["hosts"]


def test_hosts_out_of_reach_and_the_models_that_only_live_there() -> None:
    one = run()
    one.unreachable("gpu2", "Look", {"msg": "Task failed: no route to host."})
    document = one.finish({"gpu2"})
    assert document["hosts"]["gpu2"]["status"] == "unreachable"
    assert messages(document["hosts"]["gpu2"]) == [
        "unreachable: no route to host. See whether it is up and whether ssh reaches it, then run "
        "again."
    ]
    assert list(document["models"]) == ["team-b/lone"]
    lone = document["models"]["team-b/lone"]
    assert messages(lone) == ["its only host gpu2 is unreachable"]
    assert (lone["state"], lone["answers"]) == ("unknown", None)
    assert lone["url"] == "http://lone.team-b.svc:8080"

    one.unreachable("gpu1", "Look", {"msg": "no route to host"})
    both = one.finish({"gpu1", "gpu2"})["models"]["team-a/tiny"]
    assert messages(both) == ["all of its hosts (gpu1, gpu2) are unreachable"]


@pytest.mark.parametrize(
    "result",
    [
        {"censored": "hidden", "changes": [FILE], "msg": "s3cret"},
        {"_ansible_no_log": True, "changes": [FILE], "msg": "s3cret", "failed_when_result": False},
    ],
)
def test_what_is_hidden_is_not_read(result: Dict[str, Any]) -> None:
    one = run(None)
    one.ok("gpu1", "Token", FILES, result)
    assert one.finish(set())["hosts"] == {}
    one.failed("gpu1", "Token", FILES, result)
    one.unreachable("gpu2", "Token", result)
    document = one.finish({"gpu1", "gpu2"})
    assert messages(document["hosts"]["gpu1"]) == [HIDDEN]
    assert messages(document["hosts"]["gpu2"]) == [HIDDEN]
    assert "s3cret" not in str(document)
    assert str(FILE["name"]) not in str(document)


def test_the_port_comes_from_the_module_where_there_is_no_plan() -> None:
    one = run(None)
    asked = {"module_args": {"models": [{"name": "tiny", "namespace": "team-a", "port": 81}]}}
    one.ok("cluster", "Serve", RELAY, {**relay(), "invocation": asked})
    assert one.finish(set())["models"]["team-a/tiny"]["url"] == "http://tiny.team-a.svc:81"


@pytest.mark.parametrize(
    ("port", "text"), [(None, "http://m.n.svc"), (80, "http://m.n.svc"), (81, "http://m.n.svc:81")]
)
def test_url(port: Optional[int], text: str) -> None:
    assert url("n/m", port) == text
