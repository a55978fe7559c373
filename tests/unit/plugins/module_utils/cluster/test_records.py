# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The form of registration records and tokens."""

from __future__ import annotations

import base64
import datetime
import json
from typing import Any, Dict, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    diff,
    marking,
    registration,
    tokens,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def record(**more: Any) -> Dict[str, Any]:
    return {
        "schema": 1,
        "host": "gpu1",
        "address": "10.0.0.1",
        "port": 9443,
        "certificates": [PEM],
        "ingress": {"version": "2"},
        "engines": [{"namespace": "a", "model": "m", "engine": "e", "version": "1"}],
        **more,
    }


@pytest.mark.parametrize("address", ["10.0.0.1", "fd00::1", "gpu1.example.com", "gpu1"])
def test_right_records(address: str) -> None:
    assert registration.problems(record(address=address)) == []
    assert registration.problems(record(certificates=[PEM, PEM], engines=[])) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema", 2),
        ("schema", None),
        ("host", "GPU 1"),
        ("host", "../x"),
        ("host", None),
        ("address", "10.0.0.256"),
        ("address", "10.0.0.1:80"),
        ("address", "0.0.0.0"),
        ("address", "fe80::1%eth0"),
        ("address", "a b"),
        ("address", "%DOWNSTREAM%"),
        ("address", ""),
        ("port", 0),
        ("port", "9443"),
        ("port", True),
        ("certificates", []),
        ("certificates", PEM),
        ("certificates", [PEM, PEM, PEM]),
        ("certificates", [PEM + PEM]),
        ("certificates", [1]),
        ("ingress", None),
        ("engines", {}),
        ("engines", [{"namespace": "a"}]),
        ("engines", ["x"]),
    ],
)
def test_wrong_records_name_the_key(key: str, value: Any) -> None:
    found = registration.problems(record(**{key: value}))
    assert found
    assert all(key in text for text in found)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_anything_is_judged_and_nothing_crashes(value: Any) -> None:
    assert registration.problems(value)
    live = {
        "metadata": {"name": "host-x", "namespace": "f"},
        "data": {"record.json": json.dumps(value)},
    }
    with pytest.raises(Refusal):
        registration.parse(live)


def test_a_record_about_another_host_is_refused() -> None:
    live = registration.record_object(record(), "demo", "f")
    assert registration.parse(live) == record()
    live["metadata"]["name"] = "host-gpu2"
    with pytest.raises(Refusal, match="not about its own"):
        registration.parse(live)


def test_all_mistakes_are_said_at_once() -> None:
    good, refused = registration.sort_out([record(port=0, address="")])
    assert good == []
    for text in ("port", "address"):
        assert text in refused["gpu1"]


def test_a_host_that_lies_costs_no_other() -> None:
    other = record(host="gpu2")
    for lie in (record(certificates=["{{ x }}"]), record(engines=[["a"]]), record(schema=[1])):
        assert registration.sort_out([lie, other])[0] == [other]
    good, refused = registration.sort_out([record(), other, record()])
    assert good == [other]
    assert "given 2 times" in refused["gpu1"]


def test_a_predicted_record_may_lack_its_certificate() -> None:
    bare = record(certificates=[])
    assert registration.sort_out([bare], predicted=True) == ([bare], {})
    assert registration.sort_out([bare])[0] == []


def test_new_tokens_are_tokens_and_differ() -> None:
    made = {tokens.new_token() for _ in range(20)}
    assert len(made) == 20
    for token in made:
        assert tokens.read_token(tokens.token_object("a", token, "demo", "f")) == {
            "current": token,
            "generation": "1",
        }


@pytest.mark.parametrize("data", [{}, {"current": "short"}, {"current": "a b" * 15}])
def test_what_is_no_token_is_refused_without_being_shown(data: Dict[str, str]) -> None:
    live = tokens.token_object("a", tokens.new_token(), "demo", "f")
    live["data"] = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    with pytest.raises(Refusal) as caught:
        tokens.read_token(live)
    assert "short" not in str(caught.value)
    assert "Secret f/token-a" in str(caught.value)


def marks(state: str, *items: Dict[str, Any], hosts: Any = ("gpu1",)) -> Any:
    options = {"fleet": "demo", "fleet_namespace": "f", "state": state, "hosts": list(hosts)}
    live = {item["metadata"]["name"]: item for item in items}
    now = datetime.datetime(2026, 2, 2, tzinfo=datetime.UTC)
    return marking.plan(options, {"records": live, "live": {}, "now": now})


def test_a_mark_changes_nothing_else_and_is_kept() -> None:
    serving = registration.record_object(record(), "demo", "f")
    (step,) = marks("draining", serving).steps
    resting = step.data["object"]
    assert resting["data"] == serving["data"]
    assert registration.draining_since(resting) == "2026-02-02T00:00:00Z"
    earlier = registration.record_object(record(), "demo", "f", "2026-01-01T00:00:00Z")
    assert marks("draining", earlier).steps == []
    assert marks("serving", serving).steps == []
    (step,) = marks("serving", earlier).steps
    assert step.data["object"] == serving


@pytest.mark.parametrize(
    ("state", "other", "alone"),
    [
        ("draining", "", []),
        # That one was drained by an earlier call.
        ("draining", "2026-01-01T00:00:00Z", ["a/m"]),
        ("serving", "2026-01-01T00:00:00Z", []),
        ("restarting", "2026-01-01T00:00:00Z", []),
    ],
)
def test_models_that_no_host_is_left_to_serve(state: str, other: str, alone: List[str]) -> None:
    both = [
        registration.record_object(record(), "demo", "f"),
        registration.record_object(record(host="gpu2"), "demo", "f", other),
    ]
    plan = marks(state, *both)
    assert plan.facts["alone"] == alone
    assert plan.facts["marked"] == ({"gpu1": "draining"} if state == "draining" else {})


def test_a_new_registration_keeps_the_mark() -> None:
    earlier = registration.record_object(record(), "demo", "f", "2026-01-01T00:00:00Z")
    options = {"fleet": "demo", "fleet_namespace": "f", "state": "present", "hosts": []}
    for port in (9443, 9444):
        plan = registration.plan(
            {**options, "records": [record(port=port)]},
            {"records": {"host-gpu1": earlier}, "foreign": {}},
        )
        assert len(plan.steps) == (port == 9444)
        for step in plan.steps:
            assert registration.draining_since(step.data["object"]) == "2026-01-01T00:00:00Z"


NOW = "2026-02-02T00:00:00Z"
BY_HAND, RESTART = "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z for a restart"


@pytest.mark.parametrize(
    ("state", "before", "after"),
    [
        ("restarting", "", NOW + " for a restart"),
        # An interrupted run is gone on with.
        ("restarting", RESTART, RESTART),
        # What a user drained is the user's to bring back, whatever is restarted.
        ("restarting", BY_HAND, BY_HAND),
        # A user's word goes further than the run's that marked it first.
        ("draining", RESTART, NOW),
        ("serving", RESTART, ""),
    ],
)
def test_a_mark_for_a_restart(state: str, before: str, after: str) -> None:
    live = registration.record_object(record(), "demo", "f", before)
    steps = marks(state, live).steps
    assert [registration.draining_since(step.data["object"]) for step in steps] == (
        [] if before == after else [after]
    )


def test_exactly_the_hosts_named_are_marked_for_a_restart() -> None:
    live = [
        registration.record_object(record(host=host), "demo", "f", since)
        for host, since in (("gpu1", RESTART), ("gpu2", ""), ("gpu3", BY_HAND))
    ]
    for hosts, wanted in (
        (["gpu2"], {"gpu1": "", "gpu2": NOW + " for a restart"}),
        ([], {"gpu1": ""}),
    ):
        found = {
            step.data["object"]["metadata"]["name"][len("host-") :]: registration.draining_since(
                step.data["object"]
            )
            for step in marks("restarting", *live, hosts=hosts).steps
        }
        assert found == wanted


def test_a_new_registration_ends_a_drain_for_a_restart() -> None:
    """So a run that was killed between the two leaves nobody out for good."""
    left = registration.record_object(record(), "demo", "f", RESTART)
    options = {"fleet": "demo", "fleet_namespace": "f", "state": "present", "hosts": []}
    (step,) = registration.plan(
        {**options, "records": [record()]},
        {"records": {"host-gpu1": left}, "foreign": {}},
    ).steps
    assert registration.draining_since(step.data["object"]) == ""


def test_somebody_elses_mark_is_taken_away_too() -> None:
    """kubectl annotate: an apply would leave it."""
    noted = registration.record_object(record(), "demo", "f", "by hand")
    noted["metadata"]["managedFields"] = [{"manager": "kubectl-annotate", "operation": "Update"}]
    wanted = registration.record_object(record(), "demo", "f")
    assert diff.differs(wanted, noted)
    assert diff.surplus(wanted, noted) == {
        "metadata": {"annotations": {"tether.fleet/draining": None}}
    }


def test_hosts_that_nobody_knows_cannot_drain_and_nothing_is_marked() -> None:
    serving = registration.record_object(record(), "demo", "f")
    with pytest.raises(Refusal, match=r"no registration record of gpu2, gpu3 in namespace f"):
        marks("draining", serving, hosts=("gpu1", "gpu3", "gpu2"))
    # What never drained need not be known to serve.
    resting = registration.record_object(record(), "demo", "f", "2026-01-01T00:00:00Z")
    assert len(marks("serving", resting, hosts=("gpu1", "gpu3")).steps) == 1


def test_a_broken_record_can_be_marked() -> None:
    broken = registration.record_object(record(port=0), "demo", "f")
    (step,) = marks("draining", broken).steps
    assert step.data["object"]["data"] == broken["data"]


def test_a_mark_without_a_time_is_one() -> None:
    noted = registration.record_object(record(), "demo", "f", "x")
    noted["metadata"]["annotations"]["tether.fleet/draining"] = ""
    assert registration.draining_since(noted) == "an unknown time"
