# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import datetime
import multiprocessing
import stat
from pathlib import Path
from typing import Any, Dict, Optional

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal
from ansible_collections.tether.fleet.plugins.plugin_utils import ca, signing

NOW = datetime.datetime(2026, 11, 29, 12, 0, 0, tzinfo=datetime.UTC)
SECRET = b"correct horse battery"


def csr(key: Any = None) -> bytes:
    key = key or ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def who(host: str) -> signing.Subject:
    return signing.subject(host, [], ["10.0.0.7"])


@pytest.fixture
def folder(tmp_path: Path) -> str:
    path = str(tmp_path / "ca")
    assert ca.create(path, "demo", SECRET, NOW)
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_create_once(folder: str) -> None:
    before = ca.certificate(folder)
    assert not ca.create(folder, "demo", SECRET, NOW)
    assert ca.certificate(folder) == before
    base = Path(folder)
    assert mode(base) == 0o700
    assert mode(base / "ca.key") == 0o600
    assert b"ENCRYPTED PRIVATE KEY" in (base / "ca.key").read_bytes()
    assert sorted(item.name for item in base.iterdir()) == ["ca.crt", "ca.key", "issued"]
    assert [item.name for item in base.parent.iterdir()] == ["ca"]


def test_a_key_that_others_may_read_is_refused(folder: str) -> None:
    ca.check_key_file(folder)
    (Path(folder) / "ca.key").chmod(0o644)
    for look in (ca.check_key_file, lambda place: ca.open_key(place, SECRET)):
        with pytest.raises(Refusal, match=r"others may read it \(mode 0644\)"):
            look(folder)


def test_a_key_that_is_kept_elsewhere_is_not_looked_for(folder: str) -> None:
    (Path(folder) / "ca.key").unlink()
    ca.check_key_file(folder)


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "ca").mkdir()
    assert ca.create(str(tmp_path / "ca"), "demo", SECRET, NOW)


def _create(folder: str, queue: Any) -> None:
    queue.put(ca.create(folder, "demo", SECRET, NOW))


def test_many_processes_make_one(tmp_path: Path) -> None:
    queue: Any = multiprocessing.Queue()
    folder = str(tmp_path / "deep" / "ca")
    workers = [multiprocessing.Process(target=_create, args=(folder, queue)) for _ in range(6)]
    for worker in workers:
        worker.start()
    made = [queue.get(timeout=30) for _ in workers]
    for worker in workers:
        worker.join(30)
    assert sorted(made) == [False] * 5 + [True]
    ca.open_key(folder, SECRET)


def _issue(folder: str, host: str, queue: Any) -> None:
    try:
        queue.put(ca.issue(folder, SECRET, csr(), who(host), NOW).certificate)
    except Refusal as refusal:
        queue.put(str(refusal))


def test_many_processes_sign(folder: str) -> None:
    queue: Any = multiprocessing.Queue()
    hosts = ["gpu%d" % (number % 3) for number in range(6)]
    workers = [multiprocessing.Process(target=_issue, args=(folder, h, queue)) for h in hosts]
    for worker in workers:
        worker.start()
    found = [queue.get(timeout=30) for _ in workers]
    for worker in workers:
        worker.join(30)
    on_record = [c for items in ca.record(folder).values() for c in items]
    assert {signing.load_certificate(item).serial_number for item in found} == {
        item.serial_number for item in on_record
    }
    assert len(on_record) == 6


@pytest.mark.parametrize("missing", ["ca.key", "ca.crt"])
def test_half_a_ca_is_refused(folder: str, missing: str) -> None:
    (Path(folder) / missing).unlink()
    for call in (
        lambda: ca.exists(folder),
        lambda: ca.certificate(folder),
        lambda: ca.create(folder, "demo", SECRET, NOW),
        lambda: ca.issue(folder, SECRET, csr(), who("gpu1"), NOW),
    ):
        with pytest.raises(Refusal, match=r"Restore the other file"):
            call()


def test_lost_ca_with_a_record_is_refused(folder: str) -> None:
    for name in ("ca.key", "ca.crt"):
        (Path(folder) / name).unlink()
    with pytest.raises(Refusal, match="Restore both files"):
        ca.create(folder, "demo", SECRET, NOW)


@pytest.mark.parametrize(
    ("secret", "match"), [(b"wrong wrong wrong", "does not open it"), (None, "no passphrase")]
)
def test_wrong_passphrase(folder: str, secret: Optional[bytes], match: str) -> None:
    with pytest.raises(Refusal, match=match) as caught:
        ca.issue(folder, secret, csr(), who("gpu1"), NOW)
    assert "wrong wrong" not in str(caught.value)
    assert ca.record(folder) == {}


def test_key_without_encryption_is_refused(folder: str) -> None:
    plain = ca.open_key(folder, SECRET).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (Path(folder) / "ca.key").write_bytes(plain)
    with pytest.raises(Refusal, match="not encrypted"):
        ca.open_key(folder, SECRET)


def test_halves_of_two_cas_are_refused(folder: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    ca.create(str(other), "demo", SECRET, NOW)
    (Path(folder) / "ca.crt").write_bytes((other / "ca.crt").read_bytes())
    with pytest.raises(Refusal, match=r"not the key of ca\.crt"):
        ca.open_key(folder, SECRET)


def test_no_ca(tmp_path: Path) -> None:
    assert ca.certificate(str(tmp_path / "ca")) is None
    with pytest.raises(Refusal, match="fleet_ca"):
        ca.issue(str(tmp_path / "ca"), SECRET, csr(), who("gpu1"), NOW)


def test_one_key_serves_one_host(folder: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    ca.issue(folder, SECRET, csr(key), who("gpu1"), NOW, 10)
    ca.issue(folder, SECRET, csr(key), who("gpu1"), NOW, 10)
    assert len(ca.record(folder)["gpu1"]) == 2
    with pytest.raises(Refusal, match=r"certified for host gpu1.*gpu1\.pem"):
        ca.issue(folder, SECRET, csr(key), who("gpu2"), NOW)
    assert "gpu2" not in ca.record(folder)
    # After the last of them has expired nobody can stand in for anybody.
    later = NOW + datetime.timedelta(days=11)
    ca.issue(folder, SECRET, csr(key), who("gpu2"), later)
    # Also an older key of the host that has changed its key since.
    ca.issue(folder, SECRET, csr(), who("gpu2"), later)
    with pytest.raises(Refusal, match="certified for host gpu2"):
        ca.issue(folder, SECRET, csr(key), who("gpu1"), later)


def test_record_forgets_what_expired(folder: str) -> None:
    ca.issue(folder, SECRET, csr(), who("gpu1"), NOW, 1)
    later = NOW + datetime.timedelta(days=2)
    ca.issue(folder, SECRET, csr(), who("gpu1"), later, 1)
    assert len(ca.record(folder)["gpu1"]) == 1


def test_unreadable_record_is_refused(folder: str) -> None:
    (Path(folder) / "issued" / "gpu9.pem").write_text("x")
    with pytest.raises(Refusal, match=r"gpu9\.pem"):
        ca.issue(folder, SECRET, csr(), who("gpu1"), NOW)


def test_policy_speaks_through_issue(folder: str) -> None:
    with pytest.raises(Refusal, match="not a readable PEM request"):
        ca.issue(folder, SECRET, b"x", who("gpu1"), NOW)


@pytest.mark.parametrize(
    ("sources", "outcome"),
    [
        ({}, None),
        ({"value": "correct horse battery"}, SECRET),
        ({"file": "pass"}, SECRET),
        ({"environment": "TETHER_TEST_PASS"}, SECRET),
        ({"value": "x" * 20, "file": "pass"}, "several"),
        ({"value": "short"}, "5 characters"),
        ({"file": "absent"}, "No such file"),
        ({"environment": "TETHER_TEST_UNSET"}, "nothing"),
    ],
)
def test_passphrase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sources: Dict[str, str], outcome: Any
) -> None:
    (tmp_path / "pass").write_text("correct horse battery\nsecond line\n")
    monkeypatch.setenv("TETHER_TEST_PASS", "correct horse battery")
    if "file" in sources:
        sources = {**sources, "file": str(tmp_path / sources["file"])}
    if isinstance(outcome, str):
        with pytest.raises(Refusal, match=outcome):
            ca.passphrase(**sources)
    else:
        assert ca.passphrase(**sources) == outcome
