# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The signing policy: what the fleet CA puts into a host's certificate, and what it refuses.

Everything here is pure: bytes, names and a clock go in, a certificate or a reason comes out. Files,
locks and the record of what was issued are in ``ca.py``.

A request is only asked for one thing: its public key, with proof that its maker holds the private
one. Names, extensions and uses come from the inventory. Ansible's usual signer copies what the
request asks for, so a request with ``CA:TRUE`` becomes a CA; this one cannot.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import re
from dataclasses import dataclass
from typing import Iterable, List, Optional, Tuple, Type, TypeVar, Union

from ansible_collections.tether.fleet.plugins.module_utils.cluster import certificates
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    CRYPTOGRAPHY_ERROR: Optional[Exception] = None
except ImportError as error:
    CRYPTOGRAPHY_ERROR = error

# Both clocks (controller, relay) may be off by a little; a certificate that starts in the future is
# refused by every relay at once.
BACKDATE = datetime.timedelta(minutes=5)
DEFAULT_LIFETIME_DAYS = 90
DEFAULT_RENEW_FRACTION = 1 / 3
CA_LIFETIME_DAYS = 3650
# Of an RFC 5280 common name; inventory names are longer only by mistake.
MAX_NAME = 64
# A request is a few hundred bytes; RSA 8192 is below 3 KiB.
MAX_PEM = 64 * 1024

_Extension = TypeVar("_Extension", bound="x509.ExtensionType")
Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?\Z")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")


class PolicyError(Exception):
    """A request, certificate or name that the policy does not accept; the text says why."""


@dataclass(frozen=True)
class Subject:
    """Who a certificate is for, from the inventory alone.

    :ivar host: inventory name; becomes the common name
    :ivar names: DNS names, lower case, sorted
    :ivar addresses: IP addresses in canonical text, sorted
    """

    host: str
    names: Tuple[str, ...]
    addresses: Tuple[str, ...]


def need_library() -> None:
    """
    :raises Refusal: when the controller lacks ``cryptography``
    """
    if CRYPTOGRAPHY_ERROR is not None:
        raise Refusal(
            "the controller's Python",
            "no library cryptography (%s)" % CRYPTOGRAPHY_ERROR,
            "it beside ansible-core",
            "Run `pip install cryptography` in the environment that runs Ansible",
        )


def subject(host: str, names: Iterable[str], addresses: Iterable[str]) -> Subject:
    """Check and normalise what the inventory says of a host.

    :raises PolicyError: naming the value and the rule
    """
    if not isinstance(host, str) or not _HOST.match(host):
        raise PolicyError(
            "host name %r: expected 1 to %d letters, digits, '.', '_' or '-', with a letter or "
            "digit at both ends" % (host, MAX_NAME)
        )
    good_names = sorted({_dns_name(name) for name in names})
    good_addresses = sorted({_address(text) for text in addresses}, key=lambda a: (a.version, a))
    if not good_names and not good_addresses:
        raise PolicyError("host %s: no name and no address; a relay dials one of them" % host)
    return Subject(host, tuple(good_names), tuple(str(item) for item in good_addresses))


def public_key_sha256(key: object) -> str:
    """SHA-256 of the key's SubjectPublicKeyInfo (DER), lower-case hexadecimal."""
    return hashlib.sha256(_spki(key)).hexdigest()


def fingerprint_sha256(certificate: x509.Certificate) -> str:
    """SHA-256 of the whole certificate (DER), lower-case hexadecimal: what a relay pins."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def load_certificate(pem: Union[str, bytes], what: str = "certificate") -> x509.Certificate:
    """The first certificate of a PEM text.

    :raises PolicyError: when there is none that can be read
    """
    data = _pem_bytes(pem, what)
    try:
        certificate = x509.load_pem_x509_certificate(data)
        # Parts are parsed on first use; do it here so that no later line meets a surprise.
        certificate.public_key()
        _parts = (certificate.subject, certificate.issuer, list(certificate.extensions))
        return certificate
    # Whatever a hostile text makes the parser raise, the caller hears of one kind of error.
    except Exception as error:
        raise PolicyError(
            "%s: not a readable PEM certificate (%s)" % (what, _short(error))
        ) from error


def check_request(csr_pem: Union[str, bytes]) -> x509.CertificateSigningRequest:
    """The request, if its signature holds and its key is strong enough.

    :raises PolicyError: saying what is wrong; nothing else leaves this function, whatever the bytes
    """
    data = _pem_bytes(csr_pem, "request")
    try:
        request = x509.load_pem_x509_csr(data)
        key = request.public_key()
    except Exception as error:  # see above
        raise PolicyError("request: not a readable PEM request (%s)" % _short(error)) from error
    _check_key(key)
    try:
        valid = request.is_signature_valid
        algorithm = request.signature_hash_algorithm
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError) as error:
        raise PolicyError(
            "request: its signature cannot be checked (%s)" % _short(error)
        ) from error
    if not valid:
        raise PolicyError("request: its signature does not match its public key")
    if isinstance(algorithm, (hashes.MD5, hashes.SHA1)):
        raise PolicyError("request: signed with %s, which can be forged" % algorithm.name)
    return request


def make_ca(name: str, key: ec.EllipticCurvePrivateKey, now: datetime.datetime) -> x509.Certificate:
    """A self-signed fleet CA: signs leaves and revocation lists only, no further CA below it.

    :param name: the fleet's name, for people
    """
    title = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, ("tether.fleet %s" % name)[:64])])
    start = _whole(now) - BACKDATE
    public = key.public_key()
    identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    return (
        x509.CertificateBuilder()
        .subject_name(title)
        .issuer_name(title)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=CA_LIFETIME_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(sign=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )


def sign(
    csr_pem: Union[str, bytes],
    who: Subject,
    ca_certificate: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
    lifetime_days: float = DEFAULT_LIFETIME_DAYS,
) -> x509.Certificate:
    """Sign the request's public key for ``who``; nothing else of the request is used.

    :param now: aware, UTC
    :param lifetime_days: cut where it would outlive the CA
    :raises PolicyError: a bad request, or a CA that has expired or is not one
    """
    request = check_request(csr_pem)
    _check_ca(ca_certificate, now)
    if public_key_sha256(ca_key.public_key()) != public_key_sha256(ca_certificate.public_key()):
        raise PolicyError("CA: its key does not belong to its certificate")
    if public_key_sha256(request.public_key()) == public_key_sha256(ca_certificate.public_key()):
        raise PolicyError("request: its key is the CA's own")
    if lifetime_days <= 0:
        raise PolicyError("lifetime of %s days: expected more than 0" % lifetime_days)
    start = max(_whole(now) - BACKDATE, ca_certificate.not_valid_before_utc)
    end = min(
        _whole(now) + datetime.timedelta(days=lifetime_days), ca_certificate.not_valid_after_utc
    )
    public = request.public_key()
    ca_identifier = ca_certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, who.host)]))
        .issuer_name(ca_certificate.subject)
        .public_key(public)
        # 159 random bits.
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(sign=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_general_names(who)), critical=False)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(public),
            critical=False,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_identifier.value),
            critical=False,
        )
        .sign(ca_key, hashes.SHA256())
    )


def reason_to_sign(
    certificate_pem: Optional[str],
    public_key: Optional[str],
    ca_pem: Optional[str],
    who: Subject,
    now: datetime.datetime,
    renew_fraction: float = DEFAULT_RENEW_FRACTION,
) -> Optional[str]:
    """Why the host needs a new certificate now, or None.

    :param public_key: ``public_key_sha256`` of the host's key, None when it is still to be made
    :param renew_fraction: renew when less than this part of the certificate's life remains
    """
    if not certificate_pem:
        return "there is none"
    if public_key is None:
        return "its key is new"
    if not ca_pem:
        return "the fleet has no CA yet"
    try:
        leaf = load_certificate(certificate_pem)
    except PolicyError as error:
        return str(error)
    if public_key_sha256(leaf.public_key()) != public_key:
        return "it belongs to another key"
    try:
        # The very check that decides on the cluster's side whether relays pin it.
        certificates.verify_leaf(certificate_pem, ca_pem, [*who.addresses, *who.names][0], now)
    except certificates.CertificateRefused as error:
        return str(error)
    if _common_name(leaf) != who.host:
        return "it is for %s" % _common_name(leaf)
    found = _sans(leaf)
    wanted = sorted([*who.names, *who.addresses])
    if found != wanted:
        return "it names %s, the inventory says %s" % (", ".join(found), ", ".join(wanted))
    life = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    left = leaf.not_valid_after_utc - now
    if left < life * renew_fraction:
        return "%d of its %d days remain" % (left.days, life.days)
    return None


def refuse(what: str, error: PolicyError, remedy: str) -> Refusal:
    """The policy's reason in the form in which modules and actions report it."""
    return Refusal(what, str(error), "what the fleet's signing policy accepts", remedy)


def _check_key(key: object) -> None:
    if isinstance(key, ec.EllipticCurvePublicKey):
        if not isinstance(key.curve, (ec.SECP256R1, ec.SECP384R1)):
            raise PolicyError("request: curve %s; expected P-256 or P-384" % key.curve.name)
    elif isinstance(key, rsa.RSAPublicKey):
        if not 3072 <= key.key_size <= 8192:
            raise PolicyError("request: RSA %d bits; expected 3072 to 8192" % key.key_size)
        if key.public_numbers().e < 65537:
            raise PolicyError("request: RSA exponent below 65537")
    elif not isinstance(key, ed25519.Ed25519PublicKey):
        raise PolicyError(
            "request: a %s; expected EC P-256, EC P-384, RSA of 3072 bits or more, or Ed25519"
            % type(key).__name__.lstrip("_")
        )


def _check_ca(certificate: x509.Certificate, now: datetime.datetime) -> None:
    what = "CA certificate"
    basic = _extension(certificate, x509.BasicConstraints, what)
    if not basic.ca or not _extension(certificate, x509.KeyUsage, what).key_cert_sign:
        raise PolicyError("%s: not a CA" % what)
    _check_time(certificate, now, what)


def _extension(certificate: x509.Certificate, kind: Type[_Extension], what: str) -> _Extension:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        raise PolicyError("%s: it has no %s" % (what, kind.__name__)) from None


def _check_time(certificate: x509.Certificate, now: datetime.datetime, what: str) -> None:
    if now < certificate.not_valid_before_utc:
        raise PolicyError("%s: not valid before %s" % (what, certificate.not_valid_before_utc))
    if now >= certificate.not_valid_after_utc:
        raise PolicyError("%s: expired on %s" % (what, certificate.not_valid_after_utc))


def _sans(certificate: x509.Certificate) -> List[str]:
    """Names and addresses of a certificate, sorted; other kinds show as ``Kind:...``."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return []
    found = []
    for item in extension.value:
        if isinstance(item, (x509.DNSName, x509.IPAddress)):
            found.append(str(item.value))
        else:
            found.append("%s:%s" % (type(item).__name__, item.value))
    return sorted(found)


def _common_name(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def _general_names(who: Subject) -> List[x509.GeneralName]:
    names: List[x509.GeneralName] = [x509.DNSName(name) for name in who.names]
    return names + [x509.IPAddress(ipaddress.ip_address(text)) for text in who.addresses]


def _dns_name(name: str) -> str:
    lower = name.lower() if isinstance(name, str) else ""
    labels = lower.split(".")
    if len(lower) > 253 or not all(_LABEL.match(label) for label in labels):
        raise PolicyError("name %r: not a plain DNS name (no wildcard, no underscore)" % (name,))
    if labels[-1].isdigit():
        raise PolicyError("name %r: looks like an address; give it as an address" % (name,))
    return lower


def _address(text: str) -> Address:
    try:
        if not isinstance(text, str) or "%" in text or "/" in text:
            raise ValueError
        address = ipaddress.ip_address(text)
    except ValueError:
        raise PolicyError("address %r: not a plain IP address" % (text,)) from None
    if address.is_unspecified or address.is_multicast:
        raise PolicyError("address %s: nobody can be dialled there" % address)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise PolicyError("address %s: give the IPv4 address itself" % address)
    return address


def _key_usage(sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign,
        crl_sign=sign,
        encipher_only=False,
        decipher_only=False,
    )


def _spki(key: object) -> bytes:
    data: bytes = key.public_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return data


def _pem_bytes(pem: Union[str, bytes], what: str) -> bytes:
    data = pem.encode("utf-8", "surrogatepass") if isinstance(pem, str) else bytes(pem)
    if len(data) > MAX_PEM:
        raise PolicyError("%s: %d bytes; expected at most %d" % (what, len(data), MAX_PEM))
    return data


def _whole(moment: datetime.datetime) -> datetime.datetime:
    return moment.astimezone(datetime.timezone.utc).replace(microsecond=0)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
