# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The identity action with a host that is this machine: what check mode says, the run does."""

from __future__ import annotations

import grp
import json
import os
import pwd
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from ansible_collections.tether.fleet.plugins.action import fleet_ca, identity
from ansible_collections.tether.fleet.plugins.module_utils import host_key
from ansible_collections.tether.fleet.plugins.module_utils.cluster import certificates
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal
from ansible_collections.tether.fleet.plugins.plugin_utils import ca, signing

PASSPHRASE = "correct horse battery"


class Bed:
    """A CA folder and a host's folder; ``run`` is the action, its module called in this process."""

    def __init__(self, folder: Path) -> None:
        self.calls = 0
        self.options: Dict[str, Any] = {
            "host": "gpu1",
            "names": [],
            "addresses": ["10.0.0.7"],
            "ca_dir": str(folder / "ca"),
            "ca_passphrase": PASSPHRASE,
            "ca_passphrase_file": None,
            "ca_passphrase_env": None,
            "lifetime_days": 90.0,
            "renew_fraction": 0.3333,
            "rekey": False,
            "activate": True,
            "directory": str(folder / "identity"),
            "owner": pwd.getpwuid(os.getuid()).pw_name,
            "group": grp.getgrgid(os.getgid()).gr_name,
        }

    def once(self, check: bool, **changes: Any) -> Dict[str, Any]:
        self.calls = 0
        action: Any = identity.ActionModule.__new__(identity.ActionModule)
        action._task = SimpleNamespace(check_mode=check)
        action._vars, action._done = {}, {"changes": [], "diff": []}

        def execute(module_name: str, module_args: Dict[str, Any], **_more: Any) -> Dict[str, Any]:
            assert module_name == "tether.fleet.host_key"
            self.calls += 1
            # What travels to a host.
            assert PASSPHRASE not in json.dumps(module_args)
            wanted = {"rekey": False, "certificate": None, "activate": True, **module_args}
            plan = host_key.plan(wanted, host_key.observe(wanted))
            result = plan.result()
            if plan.changed and not check:
                result.update(host_key.apply(plan))
            return result

        action._execute_module = execute
        result: Dict[str, Any] = action._identity({**self.options, **changes})
        result.update(action._done)
        assert "PRIVATE" not in json.dumps(result)
        return result

    def run(self, **changes: Any) -> Dict[str, Any]:
        predicted = self.once(True, **changes)
        assert self.calls == 1
        result = self.once(False, **changes)
        assert result["changes"] == predicted["changes"]
        # The same twice, except that rekey asks anew each time.
        if not changes.get("rekey"):
            assert self.once(False, **changes)["changes"] == []
            assert self.calls == 1
        return result

    def ca(self) -> None:
        options = {**self.options, "fleet": "demo"}
        assert fleet_ca.ensure(options, check_mode=True)["changed"]
        assert fleet_ca.ensure(options, check_mode=False)["changed"]
        assert not fleet_ca.ensure(options, check_mode=False)["changed"]


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def brief(result: Dict[str, Any]) -> List[str]:
    return [
        "%s %s %s" % (c["action"], c["kind"], os.path.basename(c["name"]))
        for c in result["changes"]
    ]


ALL = [
    "create key host.key",
    "create request request.csr",
    "sign certificate gpu1",
    "create certificate host.crt",
]


def test_fresh_fleet(bed: Bed) -> None:
    # Before there is a CA, check mode says what the run after fleet_ca does.
    predicted = bed.once(True)
    assert brief(predicted) == ALL
    assert predicted["certificate"] is None
    assert predicted["ca_certificate"] is None
    with pytest.raises(Refusal, match=r"Run tether\.fleet\.fleet_ca first"):
        bed.once(False)
    assert not os.path.exists(bed.options["directory"])
    bed.ca()
    result = bed.run()
    assert brief(result) == ALL
    certificates.verify_leaf(result["certificate"], result["ca_certificate"], "10.0.0.7")
    leaf = signing.load_certificate(result["certificate"])
    assert result["fingerprint_sha256"] == signing.fingerprint_sha256(leaf)
    assert result["not_after"] == leaf.not_valid_after_utc.isoformat()
    assert result["certificates"] == [result["certificate"]]
    # An unchanged host needs no passphrase.
    assert bed.once(False, ca_passphrase=None)["reason"] is None


RENEWED = ["sign certificate gpu1", "update certificate host.crt"]
CHANGES = [
    ("address", {"addresses": ["10.0.0.8"]}, RENEWED),
    ("name", {"names": ["gpu1.example"]}, RENEWED),
    (
        "key",
        {"rekey": True},
        [
            "create key host.key.next",
            "update request request.csr",
            "sign certificate gpu1",
            "update certificate host.crt",
            "update key host.key",
        ],
    ),
]


@pytest.mark.parametrize(("_what", "change", "expected"), CHANGES)
def test_changes(bed: Bed, _what: str, change: Dict[str, Any], expected: List[str]) -> None:
    bed.ca()
    before = bed.run()
    result = bed.run(**change)
    assert brief(result) == expected
    assert result["certificate"] != before["certificate"]
    # An address that changed leaves nothing worth keeping, whatever activate says.
    assert result["certificates"] == [result["certificate"]]


def test_renewal(bed: Bed) -> None:
    bed.ca()
    bed.run(lifetime_days=0.01)
    # 5 of the 19 minutes of such a life have gone.
    assert bed.once(True, renew_fraction=0.5)["changes"] == []
    result = bed.once(False, renew_fraction=0.9)
    assert brief(result) == RENEWED
    assert "remain" in result["reason"]


@pytest.mark.parametrize("rekey", [False, True])
def test_staged_renewal(bed: Bed, rekey: bool) -> None:
    bed.ca()
    first = bed.run(lifetime_days=0.01, activate=False)
    assert brief(first) == ALL
    old = first["certificate"]
    change = {"activate": False, "rekey": rekey, "renew_fraction": 0.9}
    assert brief(bed.once(True, **change))[-1] == "create certificate host.crt.next"
    staged = bed.once(False, **change)
    assert brief(staged)[-2:] == ["sign certificate gpu1", "create certificate host.crt.next"]
    assert staged["certificate"] == old
    assert staged["certificates"] == [old, staged["next_certificate"]]
    assert bed.once(False, **change)["changes"] == []
    active = bed.run(renew_fraction=0.9)
    promoted = ["update key host.key"] if rekey else []
    assert brief(active) == [
        "update certificate host.crt",
        *promoted,
        "remove certificate host.crt.next",
    ]
    assert active["certificates"] == [staged["next_certificate"]]
    assert len(ca.record(bed.options["ca_dir"])["gpu1"]) == 2


def test_what_is_put_in_use_is_what_relays_were_told_of(bed: Bed) -> None:
    """Also where it is due for renewal again: relays would not know the one after it."""
    bed.ca()
    bed.run(lifetime_days=0.01)
    due = {"lifetime_days": 0.01, "renew_fraction": 0.9}
    staged = bed.once(False, activate=False, **due)
    assert bed.once(False, **due)["certificate"] == staged["next_certificate"]
    # The next run renews it in its turn, and leaves it in use meanwhile.
    again = bed.once(False, activate=False, **due)
    assert again["certificate"] == staged["next_certificate"]
    assert again["staged"]


def test_staging_a_new_address_takes_effect_at_once(bed: Bed) -> None:
    bed.ca()
    bed.run()
    result = bed.run(activate=False, addresses=["10.0.0.8"])
    assert brief(result) == RENEWED


def test_lost_key(bed: Bed) -> None:
    bed.ca()
    bed.run()
    os.unlink(os.path.join(bed.options["directory"], "host.key"))
    result = bed.run(activate=False)
    assert brief(result) == [
        "create key host.key",
        "update request request.csr",
        "sign certificate gpu1",
        "update certificate host.crt",
    ]


def test_new_ca(bed: Bed, tmp_path: Path) -> None:
    bed.ca()
    bed.run()
    bed.options["ca_dir"] = str(tmp_path / "ca2")
    assert brief(bed.once(True)) == RENEWED
    bed.ca()
    assert brief(bed.run()) == RENEWED


def test_a_run_that_failed_to_sign_is_finished_by_the_next(bed: Bed) -> None:
    bed.ca()
    with pytest.raises(Refusal, match="does not open it"):
        bed.once(False, ca_passphrase="wrong passphrase")
    assert brief(bed.run()) == ALL[2:]


def test_a_cloned_host_is_refused_in_check_mode_too(bed: Bed) -> None:
    bed.ca()
    bed.run()
    for check in (True, False):
        with pytest.raises((Refusal, signing.PolicyError), match="certified for host gpu1"):
            bed.once(check, host="gpu2")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"addresses": []}, "no name and no address"),
        ({"addresses": ["x"]}, "plain IP address"),
        ({"host": "../x"}, "host name"),
        ({"renew_fraction": 1.0}, "renew_fraction"),
        ({"lifetime_days": 0.0}, "lifetime_days"),
        ({"lifetime_days": 1e9}, "lifetime_days"),
    ],
)
def test_bad_input_touches_nothing(bed: Bed, change: Dict[str, Any], match: str) -> None:
    bed.ca()
    with pytest.raises(signing.PolicyError, match=match):
        bed.once(False, **change)
    assert bed.calls == 0


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"ca_passphrase": None}, "no passphrase to make one"),
        ({"ca_passphrase": "short"}, "at least 12"),
        ({"ca_passphrase_file": "/x"}, "several"),
    ],
)
def test_fleet_ca_refuses(bed: Bed, change: Dict[str, Any], match: str) -> None:
    options = {**bed.options, "fleet": "demo", **change}
    for check in (True, False):
        with pytest.raises(Refusal, match=match):
            fleet_ca.ensure(options, check)
    assert not os.path.exists(options["ca_dir"])


def test_fleet_ca_tells_a_wrong_passphrase(bed: Bed) -> None:
    bed.ca()
    options = {**bed.options, "fleet": "demo", "ca_passphrase": "wrong passphrase"}
    with pytest.raises(Refusal, match="does not open it"):
        fleet_ca.ensure(options, True)
    options["ca_passphrase"] = None
    assert fleet_ca.ensure(options, False)["ca_certificate"].startswith("-----BEGIN CERT")
