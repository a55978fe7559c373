# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Why there is no way to an API server, or why it does not know us, in words."""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import re
from typing import Any, List, Optional

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

try:
    from cryptography import x509

    HAS_CRYPTOGRAPHY = True
except ImportError:
    HAS_CRYPTOGRAPHY = False

# What is found in the innermost cause of a failed connection -> (in words, what to do).
_CAUSES = (
    (
        r"Name or service not known|Failed to resolve|nodename nor servname|No address associated"
        r"|name resolution",
        "its name is not known",
        "Check the server's name in the kubeconfig and this controller's name service",
    ),
    (
        r"Connection refused",
        "connection refused",
        "See whether the API server runs, and whether the kubeconfig has its address and port",
    ),
    (
        r"No route to host|Network is unreachable|timed out|TimeoutError",
        "no answer",
        "Check this controller's network, VPN and firewall towards the API server",
    ),
    # Before the general one: OpenSSL says "certificate verify failed: certificate has expired".
    (
        r"(?i)certificate has expired|certificate is not yet valid",
        "a certificate of the API server that has expired or is not yet valid",
        "Check this controller's clock; if it is right, renew the API server's certificate",
    ),
    (
        r"(?i)certificate verify failed|hostname .* doesn't match|CertificateError",
        "a certificate that the kubeconfig's certificate-authority does not vouch for",
        "Get a fresh kubeconfig from whoever runs the cluster; do not turn the verification off",
    ),
    (
        r"(?i)certificate.expired|CERTIFICATE_EXPIRED|expired certificate",
        "a client certificate that is no longer valid",
        "Renew the credentials in the kubeconfig",
    ),
)


def no_connection(server: str, error: BaseException) -> Refusal:
    """The refusal for an API server that does not answer."""
    inner = innermost(error)
    words, remedy = inner, "Check that the API server can be reached from this controller"
    for pattern, meaning, advice in _CAUSES:
        if re.search(pattern, inner):
            words, remedy = meaning, advice
            break
    return Refusal("the Kubernetes API at %s" % server, words, "an answer", remedy)


def no_configuration(error: BaseException, path: str) -> Refusal:
    """The refusal for credentials that cannot even be read.

    :param path: where they were to be read; empty where that is not known
    """
    text = " ".join(str(error).split()).removeprefix("Could not create API client: ")
    if isinstance(error, ValueError) and "header value" in text:
        text = "a credential that no header can hold"  # which http.client would quote
    if isinstance(error, (AttributeError, KeyError, TypeError)):
        text = "it has not the form of one: %s" % text  # what the library stumbled over
    return Refusal(
        "the way to the Kubernetes API",
        "no usable kubeconfig%s (%s)" % (" at %s" % path if path else "", text[:300]),
        "one that kubectl could use",
        "Check fleet_kubeconfig and fleet_kube_context",
    )


def innermost(error: BaseException) -> str:
    """What a client library's nested error comes down to: ``[Errno 111] Connection refused``."""
    seen: List[BaseException] = []
    while error not in seen:
        seen.append(error)
        reason = getattr(error, "reason", None)
        inner = reason if isinstance(reason, BaseException) else error.__cause__
        if inner is None:
            break
        error = inner
    text = " ".join(str(error).split())
    # urllib3: "HTTPSConnection(host=..., port=...): Failed to establish a new connection: ..."
    return text.rpartition("connection: ")[2] or type(error).__name__


def ended_credentials(configuration: Any, now: datetime.datetime) -> Optional[str]:
    """Which credential of a client configuration has ended, and when; None when none is seen to.

    :param configuration: the kubernetes library's, with ``cert_file`` and ``api_key``
    """
    ends = certificate_end(getattr(configuration, "cert_file", None))
    if ends is not None and ends < now:
        return "the client certificate, which ended at %s UTC" % _stamp(ends)
    for value in (getattr(configuration, "api_key", None) or {}).values():
        ends = token_end(str(value))
        if ends is not None and ends < now:
            return "the token, which ended at %s UTC" % _stamp(ends)
    return None


def certificate_end(path: Optional[str]) -> Optional[datetime.datetime]:
    """When a certificate's file ends to be valid; None when that cannot be read."""
    if not path or not HAS_CRYPTOGRAPHY:
        return None
    try:
        with open(path, "rb") as stream:
            leaf = x509.load_pem_x509_certificate(stream.read())
    except (OSError, ValueError):
        return None
    if hasattr(leaf, "not_valid_after_utc"):  # cryptography 42 and newer
        return leaf.not_valid_after_utc
    return leaf.not_valid_after.replace(tzinfo=datetime.timezone.utc)


def token_end(text: str) -> Optional[datetime.datetime]:
    """When a bearer token that is a JSON Web Token ends; None for other tokens."""
    parts = text.split()[-1].split(".") if text.split() else []
    if len(parts) != 3:
        return None
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        end = float(json.loads(base64.urlsafe_b64decode(padded))["exp"])
        return datetime.datetime.fromtimestamp(end, datetime.timezone.utc)
    except (binascii.Error, ValueError, KeyError, TypeError, OverflowError, OSError):
        return None


def _stamp(when: datetime.datetime) -> str:
    return when.strftime("%Y-%m-%d %H:%M:%S")
