# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The host's key, made by the real openssl as the current account."""

from __future__ import annotations

import datetime
import grp
import os
import pwd
import stat
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ansible_collections.tether.fleet.plugins.module_utils import host_key
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal
from ansible_collections.tether.fleet.plugins.plugin_utils import signing

NOW = datetime.datetime.now(datetime.UTC)
CA_KEY = ec.generate_private_key(ec.SECP256R1())
CA = signing.make_ca("demo", CA_KEY, NOW)
WHO = signing.subject("gpu1", [], ["10.0.0.7"])


@pytest.fixture
def desired(tmp_path: Path) -> Dict[str, Any]:
    return {
        "host": "gpu1",
        "directory": str(tmp_path / "identity"),
        "owner": pwd.getpwuid(os.getuid()).pw_name,
        "group": grp.getgrgid(os.getgid()).gr_name,
        "rekey": False,
        "certificate": None,
        "activate": True,
    }


def run(desired: Dict[str, Any], **changes: Any) -> Dict[str, Any]:
    """What the module does outside check mode."""
    plan = planned(desired, **changes)
    return {**plan.result(), **(host_key.apply(plan) if plan.changed else {})}


def planned(desired: Dict[str, Any], **changes: Any) -> Plan:
    wanted = {**desired, **changes}
    return host_key.plan(wanted, host_key.observe(wanted))


def brief(result: Dict[str, Any]) -> List[str]:
    return [
        "%s %s %s" % (c["action"], c["kind"], os.path.basename(c["name"]))
        for c in result["changes"]
    ]


def sign(csr: str) -> str:
    certificate = signing.sign(csr, WHO, CA, CA_KEY, NOW)
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def names(desired: Dict[str, Any]) -> List[str]:
    return sorted(os.listdir(desired["directory"]))


def key_of(path: Path) -> str:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    return signing.public_key_sha256(key.public_key())


FIRST = ["create key host.key", "create request request.csr"]


def test_fresh_host(desired: Dict[str, Any]) -> None:
    predicted = planned(desired)
    assert predicted.facts["csr"] is None
    assert predicted.facts["public_key_sha256"] is None
    assert brief(predicted.result()) == FIRST
    assert not os.path.exists(desired["directory"])

    result = run(desired)
    assert brief(result) == FIRST
    path = Path(desired["directory"]) / "host.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.stat().st_gid == os.getgid()
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp256r1"
    assert result["public_key_sha256"] == key_of(path)
    request = signing.check_request(result["csr"])
    assert request.subject.rfc4514_string() == "CN=gpu1"
    assert signing.public_key_sha256(request.public_key()) == result["public_key_sha256"]
    assert names(desired) == ["host.key", "request.csr"]

    again = run(desired)
    assert again["changes"] == []
    assert again["csr"] == result["csr"]


def test_the_key_is_in_no_output(desired: Dict[str, Any]) -> None:
    results = [run(desired), run(desired), run(desired, rekey=True)]
    secret = "".join(
        (Path(desired["directory"]) / name).read_text().split("\n")[1]
        for name in ("host.key", "host.key.next")
    )
    for line in (secret[:64], secret[64:]):
        assert line not in repr(results)
    assert "PRIVATE" not in repr(results)


def test_install(desired: Dict[str, Any]) -> None:
    pem = sign(run(desired)["csr"])
    result = run(desired, certificate=pem)
    assert brief(result) == ["create certificate host.crt"]
    assert result["certificate"] == pem
    assert result["certificate_matches_key"]
    assert run(desired, certificate=pem)["changes"] == []
    assert run(desired)["changes"] == []
    newer = sign(result["csr"])
    assert brief(run(desired, certificate=newer)) == ["update certificate host.crt"]


def test_a_certificate_for_another_key_is_refused(desired: Dict[str, Any], tmp_path: Path) -> None:
    run(desired)
    other = run({**desired, "directory": str(tmp_path / "other")})
    for pem in (sign(other["csr"]), "garbage", sign(other["csr"]) + "trailing"):
        with pytest.raises(Refusal, match="none of this host's keys"):
            planned(desired, certificate=pem)


def test_rekey_takes_over_with_its_certificate(desired: Dict[str, Any]) -> None:
    first = run(desired)
    run(desired, certificate=sign(first["csr"]))
    folder = Path(desired["directory"])
    old = key_of(folder / "host.key")

    second = run(desired, rekey=True)
    assert brief(second) == ["create key host.key.next", "update request request.csr"]
    assert second["pending_key"]
    assert not second["certificate_matches_key"]
    assert key_of(folder / "host.key") == old
    # A key that waits is kept: a run that was killed here is finished, not started again.
    assert run(desired, rekey=True)["changes"] == []
    assert run(desired)["csr"] == second["csr"]

    third = run(desired, certificate=sign(second["csr"]))
    assert brief(third) == ["update certificate host.crt", "update key host.key"]
    assert key_of(folder / "host.key") == second["public_key_sha256"] != old
    assert third["certificate_matches_key"]
    assert names(desired) == ["host.crt", "host.key", "request.csr"]
    assert run(desired)["changes"] == []


@pytest.mark.parametrize("rekey", [False, True])
def test_staged_certificate(desired: Dict[str, Any], rekey: bool) -> None:
    current = sign(run(desired)["csr"])
    run(desired, certificate=current)
    pem = sign(run(desired, rekey=rekey)["csr"])
    result = run(desired, certificate=pem, activate=False)
    assert brief(result) == ["create certificate host.crt.next"]
    assert (result["certificate"], result["next_certificate"]) == (current, pem)
    assert run(desired, certificate=pem, activate=False)["changes"] == []
    result = run(desired, certificate=pem)
    promoted = ["update key host.key"] if rekey else []
    assert brief(result) == [
        "update certificate host.crt",
        *promoted,
        "remove certificate host.crt.next",
    ]
    assert (result["certificate"], result["next_certificate"]) == (pem, None)
    assert run(desired)["changes"] == []


def test_killed_between_certificate_and_key(desired: Dict[str, Any]) -> None:
    run(desired, certificate=sign(run(desired)["csr"]))
    second = run(desired, rekey=True)
    folder = Path(desired["directory"])
    (folder / "host.crt").write_text(sign(second["csr"]))
    result = run(desired)
    assert brief(result) == ["update key host.key"]
    assert result["certificate_matches_key"]
    assert not result["pending_key"]
    assert run(desired)["changes"] == []


def test_drift_is_mended(desired: Dict[str, Any]) -> None:
    run(desired)
    folder = Path(desired["directory"])
    (folder / "host.key").chmod(0o644)
    assert brief(run(desired)) == ["update key host.key"]
    assert stat.S_IMODE((folder / "host.key").stat().st_mode) == 0o640
    (folder / "request.csr").write_text("x")
    assert brief(run(desired)) == ["update request request.csr"]
    assert brief(run(desired, host="gpu2")) == ["update request request.csr"]
    (folder / "host.key").unlink()
    assert brief(run(desired)) == ["create key host.key", "update request request.csr"]


def test_a_key_that_came_another_way_is_kept(desired: Dict[str, Any]) -> None:
    folder = Path(desired["directory"])
    folder.mkdir()
    subprocess.run(
        ["openssl", "genrsa", "-out", str(folder / "host.key"), "3072"],
        check=True,
        capture_output=True,
    )
    result = run(desired)
    assert brief(result) == ["update key host.key", "create request request.csr"]
    signing.check_request(result["csr"])


def test_refusals(desired: Dict[str, Any]) -> None:
    folder = Path(desired["directory"])
    folder.mkdir()
    (folder / "host.key").write_text("x")
    with pytest.raises(Refusal, match="rekey: true"):
        planned(desired)
    assert brief(planned(desired, rekey=True).result())[0] == "create key host.key.next"
    (folder / "host.key").unlink()
    (folder / "host.key").symlink_to("/etc/shadow")
    with pytest.raises(Refusal, match="a link"):
        planned(desired)
    with pytest.raises(Refusal, match="host name"):
        planned(desired, host="a\nb")


def test_missing_group_is_predicted_and_then_refused(desired: Dict[str, Any]) -> None:
    desired["group"] = "tether-no-such-group"
    plan = planned(desired)
    assert brief(plan.result()) == FIRST
    with pytest.raises(Refusal, match="no group tether-no-such-group"):
        host_key.apply(plan)
    assert not os.path.exists(os.path.join(desired["directory"], "host.key"))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("subject=CN = gpu1\n", "gpu1"),
        ("subject=CN=gpu1\n", "gpu1"),
        ("subject=/CN=gpu1\n", "gpu1"),
        ("subject= /CN=gpu1.example\n-----BEGIN PUBLIC KEY-----\n", "gpu1.example"),
        ("-----END PUBLIC KEY-----\nsubject=CN = gpu1\n", "gpu1"),
    ],
)
def test_subject_lines_of_openssl_and_libressl(text: str, name: str) -> None:
    found = host_key._SUBJECT.search(text)
    assert found is not None
    assert found.group(1) == name
