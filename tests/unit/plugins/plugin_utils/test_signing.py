# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import base64
import datetime
import ipaddress
from typing import Any, Dict, List, Optional, Tuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.tether.fleet.plugins.module_utils.cluster import certificates
from ansible_collections.tether.fleet.plugins.plugin_utils import signing
from ansible_collections.tether.fleet.plugins.plugin_utils.signing import PolicyError

NOW = datetime.datetime(2026, 11, 29, 12, 0, 0, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
CA_KEY = ec.generate_private_key(ec.SECP256R1())
CA = signing.make_ca("demo", CA_KEY, NOW)
KEY = ec.generate_private_key(ec.SECP256R1())
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())
WHO = signing.subject("gpu1", ["gpu1.example"], ["10.0.0.7"])
WANTED_EXTENSIONS = {
    x509.BasicConstraints: True,
    x509.KeyUsage: True,
    x509.ExtendedKeyUsage: False,
    x509.SubjectAlternativeName: False,
    x509.SubjectKeyIdentifier: False,
    x509.AuthorityKeyIdentifier: False,
}


def pem(item: Any) -> str:
    return item.public_bytes(serialization.Encoding.PEM).decode()


def csr(key: Any = KEY, name: str = "gpu1", extensions: Tuple[Any, ...] = ()) -> str:
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    no_hash = (ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey)
    return pem(builder.sign(key, None if isinstance(key, no_hash) else hashes.SHA256()))


def leaf(key: Any = KEY, who: signing.Subject = WHO, days: float = 90) -> x509.Certificate:
    return signing.sign(csr(key), who, CA, CA_KEY, NOW, days)


def check_shape(certificate: x509.Certificate, who: signing.Subject) -> None:
    """Exactly what the policy says, and nothing else."""
    assert certificate.version == x509.Version.v3
    assert certificate.subject == x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, who.host)])
    assert certificate.issuer == CA.subject
    assert {type(e.value): e.critical for e in certificate.extensions} == WANTED_EXTENSIONS
    get = certificate.extensions.get_extension_for_class
    assert get(x509.BasicConstraints).value == x509.BasicConstraints(False, None)
    usage = get(x509.KeyUsage).value
    assert usage.digital_signature
    assert not (usage.key_cert_sign or usage.crl_sign or usage.key_agreement)
    assert list(get(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    names = get(x509.SubjectAlternativeName).value
    assert tuple(names.get_values_for_type(x509.DNSName)) == who.names
    assert tuple(str(a) for a in names.get_values_for_type(x509.IPAddress)) == who.addresses
    assert len(list(names)) == len(who.names) + len(who.addresses)
    assert certificate.serial_number.bit_length() <= 159
    certificate.verify_directly_issued_by(CA)


def test_ca() -> None:
    get = CA.extensions.get_extension_for_class
    assert get(x509.BasicConstraints).critical
    assert get(x509.BasicConstraints).value == x509.BasicConstraints(True, 0)
    usage = get(x509.KeyUsage).value
    assert usage.key_cert_sign
    assert usage.crl_sign
    assert not usage.digital_signature
    assert CA.not_valid_before_utc < NOW
    assert CA.not_valid_after_utc - NOW > 3649 * DAY
    CA.verify_directly_issued_by(CA)


def test_leaf() -> None:
    certificate = leaf()
    check_shape(certificate, WHO)
    assert certificate.not_valid_before_utc == NOW - signing.BACKDATE
    assert certificate.not_valid_after_utc == NOW + 90 * DAY
    assert certificate.public_key() == KEY.public_key()
    serials = {leaf().serial_number for _ in range(20)}
    assert len(serials) == 20
    assert max(serials).bit_length() > 140


def test_never_outlives_the_ca_and_never_starts_before_it() -> None:
    certificate = signing.sign(csr(), WHO, CA, CA_KEY, NOW, 36500)
    assert certificate.not_valid_after_utc == CA.not_valid_after_utc
    assert leaf().not_valid_before_utc >= CA.not_valid_before_utc


@pytest.mark.parametrize("now", [NOW - DAY, NOW + 3651 * DAY])
def test_ca_out_of_time_signs_nothing(now: datetime.datetime) -> None:
    with pytest.raises(PolicyError, match=r"CA certificate: (not valid before|expired)"):
        signing.sign(csr(), WHO, CA, CA_KEY, now)


def test_key_and_certificate_of_the_ca_must_belong_together() -> None:
    with pytest.raises(PolicyError, match="does not belong"):
        signing.sign(csr(), WHO, CA, OTHER_KEY, NOW)
    with pytest.raises(PolicyError, match="not a CA"):
        signing.sign(csr(), WHO, leaf(), KEY, NOW)


GREEDY: List[Tuple[str, Tuple[Any, ...]]] = [
    ("a CA", ((x509.BasicConstraints(True, None), True),)),
    (
        "other names",
        (
            (
                x509.SubjectAlternativeName(
                    [
                        x509.DNSName("kubernetes.default.svc"),
                        x509.DNSName("*"),
                        x509.IPAddress(ipaddress.ip_address("10.0.0.8")),
                        x509.UniformResourceIdentifier("spiffe://x/y"),
                        x509.RFC822Name("a@b.example"),
                    ]
                ),
                True,
            ),
        ),
    ),
    (
        "other uses",
        (
            (
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE]
                ),
                True,
            ),
        ),
    ),
    (
        "unknown critical",
        ((x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"x"), True),),
    ),
]


@pytest.mark.parametrize(("_what", "extensions"), GREEDY)
def test_whatever_a_request_asks_for_is_ignored(_what: str, extensions: Tuple[Any, ...]) -> None:
    text = csr(name="other-host", extensions=extensions)
    check_shape(signing.sign(text, WHO, CA, CA_KEY, NOW), WHO)


KEYS: List[Tuple[str, Any, Optional[str]]] = [
    ("P-256", KEY, None),
    ("P-384", ec.generate_private_key(ec.SECP384R1()), None),
    ("Ed25519", ed25519.Ed25519PrivateKey.generate(), None),
    ("RSA 3072", rsa.generate_private_key(65537, 3072), None),
    ("RSA 2048", rsa.generate_private_key(65537, 2048), "2048 bits"),
    ("RSA exponent 3", rsa.generate_private_key(3, 3072), "exponent"),
    ("P-224", ec.generate_private_key(ec.SECP224R1()), "secp224r1"),
    ("P-521", ec.generate_private_key(ec.SECP521R1()), "secp521r1"),
    ("secp256k1", ec.generate_private_key(ec.SECP256K1()), "secp256k1"),
    ("Ed448", ed448.Ed448PrivateKey.generate(), "Ed448"),
    ("DSA", dsa.generate_private_key(1024), "DSA"),  # noqa: S505 (made to be refused)
    ("the CA's own", CA_KEY, "the CA's own"),
]


@pytest.mark.parametrize(("_what", "key", "reason"), KEYS)
def test_keys(_what: str, key: Any, reason: Optional[str]) -> None:
    if reason is None:
        check_shape(leaf(key), WHO)
    else:
        with pytest.raises(PolicyError, match=reason):
            leaf(key)


def test_signature_of_another_key() -> None:
    mine = x509.load_pem_x509_csr(csr().encode()).public_bytes(serialization.Encoding.DER)
    point = KEY.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    )
    other = OTHER_KEY.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    )
    stolen = x509.load_der_x509_csr(mine.replace(point, other))
    with pytest.raises(PolicyError, match="does not match its public key"):
        signing.sign(pem(stolen), WHO, CA, CA_KEY, NOW)


@pytest.mark.parametrize(
    "text", ["", "x", "-----BEGIN CERTIFICATE REQUEST-----", "\udcff", "a" * 70000]
)
def test_not_a_request(text: str) -> None:
    with pytest.raises(PolicyError):
        signing.sign(text, WHO, CA, CA_KEY, NOW)


DER = x509.load_pem_x509_csr(
    csr(extensions=tuple(e for _w, es in GREEDY for e in es)).encode()
).public_bytes(serialization.Encoding.DER)


@settings(max_examples=300, deadline=None)
@given(
    flips=st.lists(
        st.tuples(st.integers(0, len(DER) - 1), st.integers(0, 255)), min_size=1, max_size=8
    ),
    cut=st.integers(0, len(DER)),
)
def test_a_damaged_request_is_refused_or_signed_as_the_policy_says(
    flips: List[Tuple[int, int]], cut: int
) -> None:
    data = bytearray(DER)
    for place, value in flips:
        data[place] = value
    body = base64.encodebytes(bytes(data[:cut] if cut % 7 == 0 else data)).decode()
    text = "-----BEGIN CERTIFICATE REQUEST-----\n%s-----END CERTIFICATE REQUEST-----\n" % body
    try:
        certificate = signing.sign(text, WHO, CA, CA_KEY, NOW)
    except PolicyError:
        return
    check_shape(certificate, WHO)


LEAF_DER = leaf().public_bytes(serialization.Encoding.DER)


@settings(max_examples=300, deadline=None)
@given(
    flips=st.lists(
        st.tuples(st.integers(0, len(LEAF_DER) - 1), st.integers(0, 255)), min_size=1, max_size=6
    )
)
@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
def test_a_damaged_certificate_is_replaced(flips: List[Tuple[int, int]]) -> None:
    data = bytearray(LEAF_DER)
    for place, value in flips:
        data[place] = value
    text = "-----BEGIN CERTIFICATE-----\n%s-----END CERTIFICATE-----\n" % (
        base64.encodebytes(bytes(data)).decode()
    )
    key = signing.public_key_sha256(KEY.public_key())
    reason = signing.reason_to_sign(text, key, pem(CA), WHO, NOW)
    assert (reason is None) == (bytes(data) == LEAF_DER)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(), st.binary()))
def test_any_bytes(data: Any) -> None:
    for function in (signing.check_request, signing.load_certificate):
        with pytest.raises(PolicyError):
            function(data)


SUBJECTS: List[Tuple[str, List[str], List[str], Optional[str]]] = [
    ("gpu1", [], ["10.0.0.7"], None),
    ("gpu_1.example", ["GPU1.Example", "gpu1.example"], [], None),
    ("gpu1", [], ["fd00:0::1", "10.0.0.7"], None),
    ("gpu1", [], [], "no name and no address"),
    ("", [], ["10.0.0.7"], "host name"),
    ("../ca", [], ["10.0.0.7"], "host name"),
    (".hidden", [], ["10.0.0.7"], "host name"),
    ("a/b", [], ["10.0.0.7"], "host name"),
    ("a\nb", [], ["10.0.0.7"], "host name"),
    ("gpu1\n", [], ["10.0.0.7"], "host name"),
    ("x" * 65, [], ["10.0.0.7"], "host name"),
    ("gpu1", ["*.example"], [], "wildcard"),
    ("gpu1", ["a_b"], [], "underscore"),
    ("gpu1", ["10.0.0.7"], [], "as an address"),
    ("gpu1", ["a..b"], [], "plain DNS name"),
    ("gpu1", ["a.b."], [], "plain DNS name"),
    ("gpu1", ["gpu1\n"], [], "plain DNS name"),
    ("gpu1", [""], [], "plain DNS name"),
    ("gpu1", [], ["gpu1"], "plain IP address"),
    ("gpu1", [], ["10.0.0.0/24"], "plain IP address"),
    ("gpu1", [], ["fe80::1%eth0"], "plain IP address"),
    ("gpu1", [], ["0.0.0.0"], "nobody can be dialled"),
    ("gpu1", [], ["224.0.0.1"], "nobody can be dialled"),
    ("gpu1", [], ["::ffff:10.0.0.7"], "IPv4 address itself"),
    ("gpu1", [], ["010.0.0.7"], "plain IP address"),
]


@pytest.mark.parametrize(("host", "names", "addresses", "reason"), SUBJECTS)
def test_subject(host: str, names: List[str], addresses: List[str], reason: Optional[str]) -> None:
    if reason is None:
        who = signing.subject(host, names, addresses)
        check_shape(leaf(who=who), who)
    else:
        with pytest.raises(PolicyError, match=reason):
            signing.subject(host, names, addresses)


def test_subject_is_normal() -> None:
    who = signing.subject("h", ["B.example", "a.example", "b.example"], ["fd00:0:0::1", "10.0.0.7"])
    assert who.names == ("a.example", "b.example")
    assert who.addresses == ("10.0.0.7", "fd00::1")


RENEW: List[Tuple[str, Dict[str, Any], Optional[str]]] = [
    ("fresh", {}, None),
    ("no certificate", {"certificate": None}, "none"),
    ("empty certificate", {"certificate": ""}, "none"),
    ("garbage", {"certificate": "x"}, "not a readable"),
    ("no key yet", {"key": None}, "key is new"),
    ("other key", {"key": OTHER_KEY}, "another key"),
    ("no CA yet", {"ca": None}, "no CA yet"),
    ("other CA", {"ca": signing.make_ca("demo", OTHER_KEY, NOW)}, "not signed by"),
    ("other CA's name", {"ca": signing.make_ca("x", OTHER_KEY, NOW)}, "not signed by"),
    (
        "other address",
        {"who": signing.subject("gpu1", ["gpu1.example"], ["10.0.0.8"])},
        "not for the address 10.0.0.8",
    ),
    ("more", {"who": signing.subject("gpu1", ["gpu1.example", "b.c"], ["10.0.0.7"])}, "names"),
    ("less", {"who": signing.subject("gpu1", [], ["10.0.0.7"])}, "names"),
    ("renamed", {"who": signing.subject("gpu2", ["gpu1.example"], ["10.0.0.7"])}, "for gpu1"),
    ("a day before a third", {"now": NOW + 59 * DAY}, None),
    ("a day after", {"now": NOW + 61 * DAY}, "of its 90 days remain"),
    ("half", {"now": NOW + 46 * DAY, "fraction": 0.5}, "remain"),
    ("expired", {"now": NOW + 91 * DAY}, "expired"),
    ("not yet valid", {"now": NOW - DAY}, "not valid before"),
]


@pytest.mark.parametrize(("_what", "change", "reason"), RENEW)
def test_reason_to_sign(_what: str, change: Dict[str, Any], reason: Optional[str]) -> None:
    case = {
        "certificate": pem(leaf()),
        "key": KEY,
        "ca": CA,
        "who": WHO,
        "now": NOW,
        "fraction": signing.DEFAULT_RENEW_FRACTION,
        **change,
    }
    found = signing.reason_to_sign(
        case["certificate"],
        signing.public_key_sha256(case["key"].public_key()) if case["key"] else None,
        pem(case["ca"]) if case["ca"] else None,
        case["who"],
        case["now"],
        case["fraction"],
    )
    if reason is None:
        assert found is None
    else:
        assert found is not None
        assert reason in found


@pytest.mark.parametrize("address", ["10.0.0.7", "fd00:0:0:0::0001", "GPU1.example"])
def test_what_is_signed_here_is_accepted_for_relays(address: str) -> None:
    who = signing.subject("gpu1", ["gpu1.example"], ["10.0.0.7", "fd00::1"])
    certificates.verify_leaf(pem(leaf(who=who)), pem(CA), address, NOW)
    with pytest.raises(certificates.CertificateRefused):
        certificates.verify_leaf(pem(leaf(who=who)), pem(CA), "10.0.0.8", NOW)
