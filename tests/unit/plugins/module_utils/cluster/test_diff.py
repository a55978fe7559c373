# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What differs, and how it is shown."""

from __future__ import annotations

import base64
import copy
from typing import Any, Dict

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    diff,
    envoy,
    envoy_data,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import MASK

SERVICE: Dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "tiny", "namespace": "a", "labels": {"x": "1"}},
    "spec": {"selector": {"m": "tiny"}, "ports": [{"port": 80, "targetPort": "http"}]},
}


def live(change: Any = None) -> Dict[str, Any]:
    item = copy.deepcopy(SERVICE)
    item["metadata"].update(uid="u", resourceVersion="1", managedFields=[])
    item["spec"].update(clusterIP="10.1.1.1", sessionAffinity="None")
    item["spec"]["ports"][0]["nodePort"] = 0
    item["status"] = {}
    if change:
        change(item)
    return item


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (None, False),
        (lambda item: item["metadata"]["labels"].update(theirs="1"), False),
        (lambda item: item["metadata"]["labels"].update(x="2"), True),
        (lambda item: item["metadata"]["labels"].pop("x"), True),
        (lambda item: item["spec"]["ports"].append({"port": 81}), True),
        (lambda item: item["spec"]["ports"][0].update(port=81), True),
        (lambda item: item["spec"]["selector"].update(theirs="1"), True),
        (lambda item: item["spec"].update(ports=[]), True),
    ],
)
def test_differs(change: Any, differs: bool) -> None:
    assert diff.differs(SERVICE, live(change)) is differs


def test_a_field_that_we_own_and_no_longer_want_differs() -> None:
    item = live()
    fields = {"f:metadata": {"f:labels": {"f:x": {}, "f:gone": {}}}}
    entry = {"manager": "tether.fleet", "operation": "Apply", "fieldsV1": fields}
    item["metadata"]["managedFields"] = [entry]
    assert diff.differs(SERVICE, item)
    # A creating request owns the server's defaults too and so proves nothing.
    entry["operation"] = "Update"
    assert not diff.differs(SERVICE, item)
    assert diff.needs_upgrade(item) == 0
    entry["manager"] = "somebody"
    assert diff.needs_upgrade(item) is None


def test_surplus_keys_are_removed_by_a_patch() -> None:
    item = live(lambda one: one["spec"]["selector"].update(theirs="1"))
    assert diff.surplus(SERVICE, item) == {"spec": {"selector": {"theirs": None}}}
    assert diff.surplus(SERVICE, live()) == {}
    wanted = {"kind": "ConfigMap", "metadata": {}, "data": {"a": "1"}}
    found = {"kind": "ConfigMap", "metadata": {}, "data": {"a": "1", "b": "2"}}
    assert diff.surplus(wanted, found) == {"data": {"b": None}}


def ported(*ports: Dict[str, Any], manager: str = "tether.fleet") -> Dict[str, Any]:
    owned = {'k:{"port":%d,"protocol":"TCP"}' % ports[0]["port"]: {}}
    entry = {"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {"f:ports": owned}}}
    item = live()
    item["metadata"]["managedFields"] = [entry]
    item["spec"]["ports"] = [{"protocol": "TCP", **port} for port in ports]
    return item


def test_a_port_of_others_is_taken_from_our_service() -> None:
    wanted = copy.deepcopy(SERVICE)
    wanted["spec"]["ports"] = [{"name": "http", "port": 80, "protocol": "TCP"}]
    mend = {"spec": {"ports": wanted["spec"]["ports"]}}
    mine, theirs = {"name": "http", "port": 80}, {"name": "http", "port": 81}
    assert diff.surplus(wanted, ported(mine)) == {}
    # One more, and ours changed into another: its name would clash with the one that is wanted.
    assert diff.surplus(wanted, ported(mine, {"name": "more", "port": 9000})) == mend
    assert diff.surplus(wanted, ported(theirs, manager="kubectl-edit")) == mend
    # A former port of our own goes by the apply itself.
    assert diff.surplus(wanted, ported({"name": "http", "port": 8080})) == {}


def secret(**data: str) -> Dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "a"},
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
    }


def test_secrets_are_masked_with_a_hint() -> None:
    old, new = secret(one="first", two="same"), secret(one="second", two="same")
    before, after = diff.text(old, new, new), diff.text(new, None, old)
    assert before is not None
    assert after is not None
    for text in (before, after):
        for value in ("first", "second", "same", "Zmlyc3Q", "c2Vjb25k"):
            assert value not in text
    assert "one: %s (it changes)" % MASK in after
    assert "two: %s\n" % MASK in after


def test_envoys_files_show_all_but_the_token() -> None:
    host = envoy_data.Host("gpu1", "10.0.0.1", 9443)
    old = secret(**envoy.render("a", "m", [host], "old-token", "k").secret)
    new = secret(**envoy.render("a", "m", [host], "new-token", "k").secret)
    text = (diff.text(old, new, new) or "") + (diff.text(new, None, old) or "")
    assert "old-token" not in text
    assert "new-token" not in text
    assert "it changes" in text
    assert "LEAST_REQUEST" in text


def test_defaults_of_the_server_are_not_shown() -> None:
    text = diff.text(live(), SERVICE)
    assert text is not None
    assert "clusterIP" not in text
    assert "resourceVersion" not in text
    assert text == diff.text(SERVICE)
