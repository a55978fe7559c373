# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checks of a host's certificate before a relay pins it.

A registration record carries certificates, and whoever can write a record must not be able to swap
a pin. So what a record holds is used only if the fleet's CA signed it under the fleet's policy.
"""

from __future__ import annotations

import datetime
import ipaddress
from typing import List, Optional

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID

    CRYPTOGRAPHY_ERROR: Optional[Exception] = None
except ImportError as error:
    CRYPTOGRAPHY_ERROR = error


class CertificateRefused(Exception):  # noqa: N818 - named like Refusal
    """Why a certificate is not accepted; the text is the reason."""


def verify_leaf(
    cert_pem: str, ca_pem: str, address: str, now: Optional[datetime.datetime] = None
) -> None:
    """Check one leaf against the CA and the policy.

    :param cert_pem: exactly one certificate
    :param ca_pem: one CA certificate, or several while a CA is being replaced
    :param address: the IP address or DNS name that the relay dials
    :param now: the time to check at, with a time zone; default: now
    :raises CertificateRefused: with the reason
    """
    try:
        _verify_leaf(cert_pem, ca_pem, address, now or datetime.datetime.now(datetime.timezone.utc))
    except CertificateRefused:
        raise
    # Parts are parsed on first use, and a hostile text makes the parser raise whatever it likes:
    # one host's record must not end the run for all.
    except Exception as error:
        text = "it is malformed (%s: %s)" % (type(error).__name__, error)
        raise CertificateRefused(text) from error


def _verify_leaf(cert_pem: str, ca_pem: str, address: str, now: datetime.datetime) -> None:
    leaf = _one(cert_pem)
    authorities = _several(ca_pem, "the CA")
    issuer = _issuer(leaf, authorities)
    if issuer is None:
        raise CertificateRefused(
            "it is not signed by the fleet's CA (its issuer says %s)" % leaf.issuer.rfc4514_string()
        )
    for name, cert in (("it", leaf), ("the fleet's CA", issuer)):
        start, end = _validity(cert)
        if now < start:
            raise CertificateRefused("%s is not valid before %s" % (name, start.isoformat()))
        if now > end:
            raise CertificateRefused("%s expired on %s" % (name, end.isoformat()))
    _check_use(leaf)
    _check_address(leaf, address)


def check_ca(ca_pem: str) -> None:
    """Refuse a text that holds no CA certificate.

    :raises Refusal: naming what it holds
    """
    remedy = "Give the fleet's CA certificate as PEM"
    try:
        found = _several(ca_pem, "it")
    except CertificateRefused as refused:
        raise Refusal("ca_certificate", str(refused), "PEM certificates", remedy) from refused
    for cert in found:
        constraints = _extension(cert, ExtensionOID.BASIC_CONSTRAINTS)
        if constraints is None or not constraints.ca:
            name = cert.subject.rfc4514_string()
            raise Refusal("ca_certificate", "%s, which is no CA" % name, "CA certificates", remedy)


def _one(pem: str) -> x509.Certificate:
    found = _several(pem, "it")
    if len(found) != 1:
        raise CertificateRefused("it holds %d certificates instead of one" % len(found))
    return found[0]


def _several(pem: str, name: str) -> List[x509.Certificate]:
    try:
        return list(x509.load_pem_x509_certificates(pem.encode("ascii")))
    except (ValueError, UnicodeEncodeError, x509.InvalidVersion) as error:
        raise CertificateRefused("%s is not a PEM certificate (%s)" % (name, error)) from error


def _issuer(
    leaf: x509.Certificate, authorities: List[x509.Certificate]
) -> Optional[x509.Certificate]:
    for authority in authorities:
        try:
            leaf.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        constraints = _extension(authority, ExtensionOID.BASIC_CONSTRAINTS)
        if constraints is not None and constraints.ca:
            return authority
    return None


def _validity(cert: x509.Certificate) -> tuple[datetime.datetime, datetime.datetime]:
    if hasattr(cert, "not_valid_after_utc"):
        return cert.not_valid_before_utc, cert.not_valid_after_utc
    zone = datetime.timezone.utc  # cryptography before 42 gives UTC without saying so
    return cert.not_valid_before.replace(tzinfo=zone), cert.not_valid_after.replace(tzinfo=zone)


def _extension(cert: x509.Certificate, oid: x509.ObjectIdentifier):  # type: ignore[no-untyped-def]
    try:
        return cert.extensions.get_extension_for_oid(oid).value
    except x509.ExtensionNotFound:
        return None


def _check_use(leaf: x509.Certificate) -> None:
    constraints = _extension(leaf, ExtensionOID.BASIC_CONSTRAINTS)
    if constraints is not None and constraints.ca:
        raise CertificateRefused("it is a CA certificate")
    usage = _extension(leaf, ExtensionOID.KEY_USAGE)
    if usage is not None and (usage.key_cert_sign or usage.crl_sign):
        raise CertificateRefused("its key usage allows it to sign certificates")
    purposes = _extension(leaf, ExtensionOID.EXTENDED_KEY_USAGE)
    names = [] if purposes is None else sorted(item.dotted_string for item in purposes)
    if names != [ExtendedKeyUsageOID.SERVER_AUTH.dotted_string]:
        raise CertificateRefused(
            "its extended key usage is %s instead of serverAuth alone" % (names or "missing")
        )


def _check_address(leaf: x509.Certificate, address: str) -> None:
    names = _extension(leaf, ExtensionOID.SUBJECT_ALTERNATIVE_NAME)
    addresses = [] if names is None else list(names.get_values_for_type(x509.IPAddress))
    hosts = [] if names is None else list(names.get_values_for_type(x509.DNSName))
    try:
        matched = ipaddress.ip_address(address) in addresses
    except ValueError:
        matched = address.lower() in [host.lower() for host in hosts]
    if not matched:
        raise CertificateRefused(
            "it is for %s and not for the address %s"
            % (", ".join([str(item) for item in addresses] + hosts) or "no address", address)
        )
