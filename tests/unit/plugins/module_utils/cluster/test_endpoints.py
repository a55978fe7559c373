# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a mark changes of live relays and direct services, without a cluster."""

from __future__ import annotations

import base64
import copy
import json
import pathlib
import sys
from typing import Any, Callable, Dict, List, Tuple

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    endpoints,
    labels,
    marking,
    registration,
    relay,
    service_objects,
    tokens,
)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from test_relay_plan import CA, TOKEN, desired, observed, record

ADDRESSES = {"gpu1": "10.0.0.1", "gpu2": "10.0.0.2", "gpu3": "gpu3.example.org"}
LEAVES = {host: CA.leaf(address).pem for host, address in ADDRESSES.items()}
RELAYED = {"name": "tiny", "namespace": "team-a", "hosts": ["gpu1", "gpu2"]}
NAMED = {"name": "tiny", "namespace": "team-a", "hosts": ["gpu1", "gpu3"]}
DIRECT = {
    "name": "art",
    "namespace": "team-a",
    "hosts": ["gpu1", "gpu2"],
    "kind": "service",
    "expose": "direct",
    "host_port": 8188,
    "port": 8000,
}
RESTART = "2026-01-01T00:00:00Z for a restart"
RELAYS = ["update ConfigMap team-a/tiny-relay", "update Secret team-a/tiny-relay"]
SLICES = ["update ConfigMap team-a/art-direct", "update EndpointSlice team-a/art-direct"]

Live = Dict[endpoints.Key, Dict[str, Any]]


def registered(host: str, since: str = "") -> Dict[str, Any]:
    known = record(
        host=host,
        address=ADDRESSES[host],
        certificates=[LEAVES[host]],
        engines=[
            {"namespace": place, "model": "tiny", "engine": "e"} for place in ("team-a", "team-b")
        ],
        services=[{"namespace": "team-a", "name": "art", "expose": "direct", "port": 8188}],
    )
    return registration.record_object(known, "demo", "f", since)


def wishes(models: Tuple[Dict[str, Any], ...]) -> Dict[str, Any]:
    where = {host: {"address": place, "port": 9443} for host, place in ADDRESSES.items()}
    return desired(models=list(models), hosts=where)


class World:
    """A cluster with hosts' records and what serves models."""

    def __init__(self, *models: Dict[str, Any]) -> None:
        self.models = models
        self.objects: Live = {}
        self.write(*(registered(host) for host in ADDRESSES))
        self.write(tokens.token_object("team-b", TOKEN, "demo", "f"))
        self.untold: Dict[str, str] = {}
        self.touched: List[Any] = []
        self.relay()

    def write(self, *items: Dict[str, Any]) -> None:
        for item in items:
            meta = item["metadata"]
            self.objects[(item["kind"], meta["namespace"], meta["name"])] = copy.deepcopy(item)

    def _write_all(self, steps: Any) -> List[str]:
        self.write(*(one.data["object"] for one in steps))
        self.touched = [one.data["touch"][0] for one in steps if one.data.get("touch")]
        return ["%s %s %s" % (one.action, one.kind, one.name) for one in steps]

    def all(self) -> Live:
        """What is there, to compare with."""
        found = copy.deepcopy(self.objects)
        for item in found.values():
            item["metadata"].pop("uid", None)
        return found

    def relay(self) -> List[str]:
        """A run of the module relay."""
        seen = observed(*self.objects.values(), namespaces={"team-a", "team-b", "f"})
        return self._write_all(relay.plan(wishes(self.models), seen).steps)

    def mark(self, state: str, *hosts: str) -> List[str]:
        """A run of the module registration; the records' own changes are left out."""
        records, live = {}, {}
        for key, item in self.objects.items():
            marks = item["metadata"]["labels"]
            if marks.get(labels.RECORD) == "host":
                records[key[2]] = item
            elif key[0] in ("ConfigMap", service_objects.SLICE) or (
                key[0] == "Secret" and marks.get(labels.COMPONENT) == labels.RELAY
            ):
                live[key] = item
        seen = {"records": records, "live": copy.deepcopy(live), "now": observed()["now"]}
        options = {"fleet": "demo", "fleet_namespace": "f", "state": state, "hosts": list(hosts)}
        plan = marking.plan(options, copy.deepcopy(seen))
        self.untold = plan.facts["untold"]
        changes = self._write_all(plan.steps)
        assert marking.plan(options, self._again(seen)).steps == []
        return [text for text in changes if "/host-" not in text]

    def _again(self, seen: Dict[str, Any]) -> Dict[str, Any]:
        """What the same question finds afterwards."""
        return dict(
            seen,
            records={name: self.objects[("ConfigMap", "f", name)] for name in seen["records"]},
            live={key: self.objects[key] for key in seen["live"]},
        )

    def text(self, kind: str, key: str, name: str = "tiny-relay", place: str = "team-a") -> Any:
        value = self.objects[(kind, place, name)]["data"][key]
        return json.loads(base64.b64decode(value) if kind == "Secret" else value)

    def clusters(self) -> Dict[str, Any]:
        return {item["name"]: item for item in self.text("Secret", "cds.json")["resources"]}

    def asked(self, place: str = "team-a") -> List[Tuple[str, str]]:
        """Where relays send requests."""
        return listed(self.text("ConfigMap", "eds.json", place=place)["resources"][0])

    def sliced(self) -> List[str]:
        found = self.objects[("EndpointSlice", "team-a", "art-direct")]["endpoints"]
        return [item["addresses"][0] for item in found]


def listed(assignment: Dict[str, Any]) -> List[Tuple[str, str]]:
    return [
        (
            one["endpoint"].get("hostname", ""),
            one["endpoint"]["address"]["socket_address"]["address"],
        )
        for one in assignment["endpoints"][0]["lb_endpoints"]
    ]


def rewrite(item: Dict[str, Any], change: Callable[[Any], Any]) -> None:
    """Change the list of all hosts."""
    notes = item["metadata"]["annotations"]
    notes[labels.HOSTS] = json.dumps(change(json.loads(notes[labels.HOSTS])))


BOTH = [("gpu1", "10.0.0.1"), ("gpu2", "10.0.0.2")]
NOBODY = [("nobody", "127.0.0.1")]


@pytest.mark.parametrize("state", ["draining", "restarting"])
def test_relays_leave_a_host_out_and_take_it_back(state: str) -> None:
    world = World(RELAYED)
    before = world.all()
    assert world.mark(state, "gpu1") == RELAYS
    assert world.asked() == BOTH[1:]
    assert len(world.touched) == 2
    # Nor is it asked for metrics; whom it trusts stays.
    metrics = world.clusters()["metrics-gpu1"]
    assert listed(metrics["load_assignment"]) == [("", "127.0.0.1")]
    # What the relays' own role would write is what is there.
    assert world.relay() == []
    assert world.mark("serving", "gpu1") == RELAYS
    assert world.all() == before


def test_nothing_else_is_mended() -> None:
    """What somebody changed beside the list is the role relay's to bring back."""
    world = World(RELAYED)
    config = world.objects[("ConfigMap", "team-a", "tiny-relay")]
    config["data"].update({"lds.json": "{}", "theirs": "1"})
    config["metadata"]["labels"]["theirs"] = "1"
    assert world.mark("serving") == []
    assert world.mark("draining", "gpu1") == RELAYS
    written = world.objects[("ConfigMap", "team-a", "tiny-relay")]
    assert written["data"]["lds.json"] == "{}"
    # An apply with the label in it would make it the fleet's.
    assert "theirs" not in written["metadata"]["labels"]


def test_of_a_direct_service_nothing_else_is_mended_either() -> None:
    world = World(DIRECT)
    slice_ = world.objects[("EndpointSlice", "team-a", "art-direct")]
    del slice_["ports"][0]["appProtocol"]
    assert world.mark("serving") == []


def test_a_direct_service_is_not_led_back_to_a_host_where_it_does_not_answer() -> None:
    """The host was registered anew meanwhile, and the service did not run there."""
    world = World(DIRECT)
    world.mark("draining", "gpu1")
    item = registered("gpu1", "2026-01-01T00:00:00Z")
    known = json.loads(item["data"]["record.json"])
    item["data"]["record.json"] = json.dumps(dict(known, services=[]))
    world.write(item)
    assert world.mark("serving", "gpu1") == []
    world.write(registered("gpu1"))
    assert world.mark("serving") == SLICES


def test_what_hosts_serve_is_told_first() -> None:
    """Whatever else carries the labels waits, and is not so much that it keeps anybody waiting."""
    world = World(RELAYED)
    for number in range(3):
        for kind in ("ConfigMap", "Secret"):
            item = copy.deepcopy(world.objects[(kind, "team-a", "tiny-relay")])
            item["metadata"].update(namespace="evil", name="a%d-relay" % number)
            item["metadata"]["labels"][labels.MODEL] = "a%d" % number
            world.write(item)
    told = world.mark("draining", "gpu1")
    assert told[:2] == RELAYS
    assert len(told) == 8


def test_a_record_by_another_name_marks_nobody() -> None:
    world = World(RELAYED)
    item = registered("gpu1", "2026-01-01T00:00:00Z")
    item["metadata"]["name"] = "zzzz-gpu1"
    world.write(item)
    assert world.mark("serving") == []


def test_one_restart_follows_another_in_one_step() -> None:
    world = World(RELAYED)
    world.mark("restarting", "gpu1")
    assert world.mark("restarting", "gpu2") == RELAYS
    assert world.asked() == BOTH[:1]
    assert world.mark("restarting") == RELAYS
    assert world.asked() == BOTH


def test_when_all_hosts_drain_requests_wait_and_nobody_is_asked() -> None:
    world = World(RELAYED)
    world.mark("draining", "gpu1", "gpu2")
    assert world.asked() == NOBODY
    assert world.relay() == []


def test_hosts_by_name_are_left_out_of_the_secret() -> None:
    world = World(NAMED)
    before = world.all()
    assert world.mark("draining", "gpu3") == RELAYS[1:]
    clusters = world.clusters()
    assert listed(clusters["hosts"]["load_assignment"]) == BOTH[:1]
    # It looks up names as before, when they come back.
    assert "cluster_type" in clusters["hosts"]
    assert clusters["metrics-gpu3"]["type"] == "STATIC"
    assert world.relay() == []
    assert world.mark("draining", "gpu1", "gpu3") == RELAYS[1:]
    assert listed(world.clusters()["hosts"]["load_assignment"]) == NOBODY
    assert world.mark("serving", "gpu1", "gpu3") == RELAYS[1:]
    assert world.all() == before


def test_a_direct_service_is_left_by_a_user_s_drain_alone() -> None:
    world = World(DIRECT)
    before = world.all()
    assert world.mark("restarting", "gpu1") == []
    assert world.mark("draining", "gpu1") == SLICES
    assert world.sliced() == ["10.0.0.2"]
    published = world.objects[("ConfigMap", "team-a", "art-direct")]["data"]
    assert published == {"address": "10.0.0.2:8188", "addresses": "10.0.0.2:8188"}
    assert world.touched == []
    assert world.relay() == []
    world.mark("draining", "gpu1", "gpu2")
    assert world.sliced() == []
    assert world.mark("serving", "gpu1", "gpu2") == SLICES
    assert world.all() == before


def test_a_service_with_an_ingress_keeps_the_mark_of_it() -> None:
    world = World(dict(DIRECT, ingress={"host": "art.example.org"}))
    world.mark("draining", "gpu1")
    assert world.relay() == []


def test_a_model_that_is_refused_is_told_as_any_other() -> None:
    """Its relays run and have requests, whatever is wrong with its hosts, or with its entry."""
    world = World(RELAYED)
    world.models = (dict(RELAYED, hosts=["gpu9"]),)
    assert world.relay() == []
    assert world.mark("draining", "gpu1") == RELAYS
    assert world.asked() == BOTH[1:]
    # Nor does it take an address from a record, whoever wrote that.
    moved = registered("gpu1")
    text = moved["data"]["record.json"].replace("10.0.0.1", "10.6.6.6")
    moved["data"]["record.json"] = text
    moved["metadata"]["annotations"] = {labels.DRAINING: "today"}
    world.write(moved)
    world.mark("serving", "gpu1")
    assert world.asked() == BOTH


def test_a_host_whose_record_is_gone_stays_as_it_is() -> None:
    world = World(RELAYED)
    world.mark("draining", "gpu1")
    del world.objects[("ConfigMap", "f", "host-gpu1")]
    assert world.mark("serving", "gpu1") == []
    assert world.mark("draining", "gpu2") == RELAYS
    assert world.asked() == NOBODY
    world.mark("serving", "gpu2")
    assert world.asked() == BOTH[1:]


def without_list(item: Dict[str, Any]) -> None:
    del item["metadata"]["annotations"]


def listing(value: Any) -> Callable[[Dict[str, Any]], None]:
    def change(item: Dict[str, Any]) -> None:
        text = value if isinstance(value, str) else json.dumps(value)
        item["metadata"]["annotations"][labels.HOSTS] = text

    return change


def entry(**more: Any) -> Dict[str, Any]:
    return {"schema": 1, "hosts": [{"name": "gpu1", "address": "10.0.0.1", "port": 1, **more}]}


HOSTILE = [
    without_list,
    listing("{"),
    listing("[" * 100_000),
    listing("[]"),
    listing({"schema": 2, "hosts": []}),
    listing({"schema": 1, "hosts": {"gpu1": {}}}),
    listing({"schema": 1, "hosts": ["gpu1"]}),
    listing({"schema": 1, "hosts": [{"name": "gpu%d" % n} for n in range(2000)]}),
    listing({"schema": 1, "hosts": entry()["hosts"] * 2}),
    listing(entry(port=0)),
    listing(entry(port=True)),
    listing(entry(port="1")),
    listing(entry(address="0.0.0.0")),
    listing(entry(address="a b")),
    listing(entry(address=["10.0.0.1"])),
    listing(entry(name="..")),
    listing(entry(name=None)),
]


@pytest.mark.parametrize("spoil", HOSTILE)
@pytest.mark.parametrize(
    ("model", "key"),
    [
        (RELAYED, ("Secret", "team-a", "tiny-relay")),
        (DIRECT, ("EndpointSlice", "team-a", "art-direct")),
    ],
)
def test_a_list_that_is_none_stops_nobody_else(
    spoil: Callable[[Dict[str, Any]], None], model: Dict[str, Any], key: endpoints.Key
) -> None:
    other = dict(RELAYED, namespace="team-b")
    world = World(model, other)
    spoil(world.objects[key])
    before = world.all()
    told = [text.replace("team-a", "team-b") for text in RELAYS]
    assert world.mark("draining", "gpu1") == told
    assert list(world.untold) == ["team-a/%s" % model["name"]]
    (reason,) = world.untold.values()
    assert labels.HOSTS in reason
    assert "tether.fleet.site --tags relay" in reason
    for place, kind in (("team-a", "ConfigMap"), ("team-a", "Secret"), ("team-a", "EndpointSlice")):
        for one, item in before.items():
            if one[:2] == (kind, place):
                assert world.all()[one] == item
    # What the role writes is a list again.
    world.relay()
    assert world.mark("draining", "gpu1") == []
    assert world.untold == {}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "[" * 100_000, '{"resources": {}}', '{"resources": [1]}', "\ud800"]
)
@pytest.mark.parametrize("model", [RELAYED, NAMED])
def test_a_secret_that_holds_no_clusters_stops_nobody_else(
    text: str, model: Dict[str, Any]
) -> None:
    world = World(model, dict(RELAYED, namespace="team-b"))
    secret = world.objects[("Secret", "team-a", "tiny-relay")]
    value = base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()
    secret["data"]["cds.json"] = value
    assert len(world.mark("draining", "gpu1")) == 2
    assert list(world.untold) == ["team-a/tiny"]
    # Nor does a text that is read only to be shown.
    world.relay()
    world.objects[("Secret", "team-a", "tiny-relay")]["data"]["sds.json"] = encoded("[" * 100_000)
    assert world.mark("draining", "gpu2") != []
    assert world.untold == {}


def test_a_list_in_a_cluster_that_asks_elsewhere_is_missed() -> None:
    world = World(NAMED)
    secret = world.objects[("Secret", "team-a", "tiny-relay")]
    found = world.text("Secret", "cds.json")
    for item in found["resources"]:
        item.pop("load_assignment")
    secret["data"]["cds.json"] = encoded(json.dumps(found))
    assert world.mark("draining", "gpu1") == []
    assert list(world.untold) == ["team-a/tiny"]


def test_whoever_lists_another_address_still_meets_the_pins() -> None:
    """It can be written by those alone who may write the pins; a mark leaves these as they are."""
    world = World(RELAYED)
    pins = copy.deepcopy(world.clusters())

    def lead_astray(data: Any) -> Any:
        data["hosts"][0]["address"] = "10.6.6.6"
        data["hosts"].append({"name": "gpu6", "address": "10.6.6.7", "port": 9443})
        return data

    rewrite(world.objects[("Secret", "team-a", "tiny-relay")], lead_astray)
    world.mark("draining", "gpu2")
    assert world.asked() == [("gpu1", "10.6.6.6"), ("gpu6", "10.6.6.7")]
    after = world.clusters()
    for key in ("transport_socket_matches", "transport_socket"):
        assert after["hosts"][key] == pins["hosts"][key]
    assert after["metrics-gpu1"]["transport_socket"] == pins["metrics-gpu1"]["transport_socket"]
    assert set(after) == set(pins)


def test_a_config_map_of_a_tenant_s_is_no_source_of_addresses() -> None:
    """Who may write ConfigMaps may mostly write neither Secrets nor EndpointSlices."""
    world = World(RELAYED, DIRECT)
    before = world.all()
    for name in ("tiny-relay", "art-direct"):
        data = world.objects[("ConfigMap", "team-a", name)]["data"]
        for key, text in data.items():
            data[key] = text.replace("10.0.0.", "10.6.6.")
    world.mark("draining", "gpu1")
    world.mark("serving", "gpu1")
    assert world.all() == before


def test_labels_alone_make_no_relay() -> None:
    world = World(RELAYED)
    forged = copy.deepcopy(world.objects[("Secret", "team-a", "tiny-relay")])
    forged["metadata"]["name"] = "tiny"
    world.write(forged)
    assert world.mark("draining", "gpu1") == RELAYS


def test_relays_that_lost_their_config_map_are_told_of() -> None:
    for kind in ("ConfigMap", "Secret"):
        world = World(RELAYED)
        del world.objects[(kind, "team-a", "tiny-relay")]
        assert world.mark("draining", "gpu1") == []
        assert list(world.untold) == ["team-a/tiny"]


def test_a_slice_of_another_family_is_left_to_the_role() -> None:
    world = World(DIRECT)
    world.objects[("EndpointSlice", "team-a", "art-direct")]["addressType"] = "IPv6"
    assert world.mark("draining", "gpu1") == []
    assert "IPv4 or IPv6 alone" in world.untold["team-a/art"]


def test_a_slice_without_its_port_or_with_names_is_left_to_the_role() -> None:
    for change in (
        lambda item: item.update(ports=[]),
        lambda item: rewrite(
            item, lambda data: {**data, "hosts": [{**data["hosts"][0], "address": "a.b"}]}
        ),
    ):
        world = World(DIRECT)
        change(world.objects[("EndpointSlice", "team-a", "art-direct")])
        assert world.mark("draining", "gpu1") == []
        assert list(world.untold) == ["team-a/art"]


def test_a_run_that_was_killed_between_is_gone_on_with() -> None:
    """The record says it, the relays do not know it yet."""
    world = World(RELAYED)
    world.write(registered("gpu1", RESTART))
    assert world.mark("restarting", "gpu1") == RELAYS
    assert world.asked() == BOTH[1:]


def test_a_diff_shows_no_token() -> None:
    world = World(RELAYED)
    live = {key: item for key, item in world.objects.items() if key[1] == "team-a"}
    steps, _untold = endpoints.plan(
        "demo", live, {"gpu1": endpoints.Mark("today")}, observed()["now"]
    )
    assert len(steps) == 2
    for step in steps:
        assert TOKEN not in json.dumps(step.diff())
        assert "10.0.0.1" in json.dumps(step.diff())
