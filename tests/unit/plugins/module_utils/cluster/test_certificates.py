# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which certificates a relay may pin."""

from __future__ import annotations

import base64
import datetime
import pathlib
import ssl
import sys
from typing import Any, Dict

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.tether.fleet.plugins.module_utils.cluster import certificates
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "integration"))
from cluster_ingress import Authority

CA = Authority()
LEAF = CA.leaf("10.0.0.1")
OTHER = Authority()  # the same name, another key


@pytest.mark.parametrize("address", ["10.0.0.1", "fd00::1", "gpu1.example"])
def test_a_right_leaf_is_accepted(address: str) -> None:
    certificates.verify_leaf(CA.leaf(address).pem, CA.pem, address)
    certificates.verify_leaf(CA.leaf(address).pem, OTHER.pem + CA.pem, address)


@pytest.mark.parametrize(
    ("leaf", "address", "reason"),
    [
        ({}, "10.0.0.2", "not for the address"),
        ({"address": "gpu1.example"}, "gpu1.exam", "not for the address"),
        ({"address": "10.0.0.1"}, "gpu1.example", "not for the address"),
        ({"days": -1, "since": 2}, "10.0.0.1", "it expired on"),
        ({"since": -1}, "10.0.0.1", "not valid before"),
        ({"ca": True}, "10.0.0.1", "CA certificate"),
        ({"usages": []}, "10.0.0.1", "missing instead of serverAuth"),
        ({"usages": [ExtendedKeyUsageOID.CLIENT_AUTH]}, "10.0.0.1", "serverAuth alone"),
        (
            {"usages": [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]},
            "10.0.0.1",
            "serverAuth alone",
        ),
    ],
)
def test_a_wrong_leaf_is_refused(leaf: Dict[str, Any], address: str, reason: str) -> None:
    pem = CA.leaf(**{"address": "10.0.0.1", **leaf}).pem
    with pytest.raises(certificates.CertificateRefused, match=reason):
        certificates.verify_leaf(pem, CA.pem, address)


def test_another_ca_of_the_same_name_is_refused() -> None:
    with pytest.raises(certificates.CertificateRefused, match="not signed by the fleet's CA"):
        certificates.verify_leaf(OTHER.leaf("10.0.0.1").pem, CA.pem, "10.0.0.1")


def test_a_leaf_is_no_authority() -> None:
    leaf = CA.leaf("10.0.0.1")
    with pytest.raises(certificates.CertificateRefused):
        certificates.verify_leaf(leaf.pem, leaf.pem, "10.0.0.1")
    with pytest.raises(Refusal, match="no CA"):
        certificates.check_ca(leaf.pem)


def test_expired_ca() -> None:
    leaf = CA.leaf("10.0.0.1", days=100)
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=50)
    with pytest.raises(certificates.CertificateRefused, match="the fleet's CA expired"):
        certificates.verify_leaf(leaf.pem, CA.pem, "10.0.0.1", later)


@pytest.mark.parametrize("pem", ["", "x", "ü", "-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_what_is_no_certificate_is_refused(pem: str) -> None:
    with pytest.raises(certificates.CertificateRefused):
        certificates.verify_leaf(pem, CA.pem, "10.0.0.1")
    with pytest.raises(Refusal):
        certificates.check_ca(pem)


def test_two_certificates_are_not_one() -> None:
    pem = CA.leaf("10.0.0.1").pem
    with pytest.raises(certificates.CertificateRefused, match="2 certificates"):
        certificates.verify_leaf(pem + pem, CA.pem, "10.0.0.1")


@given(st.data())
def test_a_damaged_certificate_is_refused_and_nothing_else(data: st.DataObject) -> None:
    """Whatever one byte makes of it: accepted as before (where it says nothing) or refused."""
    der = bytearray(ssl.PEM_cert_to_DER_cert(LEAF.pem))
    der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    body = base64.encodebytes(bytes(der)).decode()
    pem = f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"
    try:
        certificates.verify_leaf(pem, CA.pem, "10.0.0.1")
    except certificates.CertificateRefused:
        return
    assert bytes(der) == ssl.PEM_cert_to_DER_cert(LEAF.pem)
