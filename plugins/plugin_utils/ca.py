# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The fleet CA on the controller's disk: made once, locked while it signs, and its record.

Layout of the folder (0700)::

    ca.crt              the CA's certificate
    ca.key              its key, PKCS #8, encrypted with the passphrase (0600)
    issued/<host>.pem   what was signed for a host and has not expired, newest first

The folder appears by one rename with both halves in it, so a kill never leaves half a CA; half of
one was lost or tampered with, and is refused. Hosts are worked on in parallel processes: they wait
for each other on a lock of the folder itself.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional, Union

from ansible_collections.tether.fleet.plugins.module_utils.files import write_file
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal
from ansible_collections.tether.fleet.plugins.plugin_utils import signing

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
except ImportError:
    # signing.need_library says so before anything here is used.
    pass

# PKCS #8 as written by `cryptography` stretches the passphrase only a little, so it must be long.
MIN_PASSPHRASE = 12


@dataclass
class Issued:
    """A new certificate: PEM text and when it ends."""

    certificate: str
    not_after: datetime.datetime


def passphrase(
    value: Optional[str] = None,
    file: Optional[str] = None,
    environment: Optional[str] = None,
) -> Optional[bytes]:
    """The passphrase from exactly one place, or None when none was named.

    :param value: the passphrase itself (from a vault)
    :param file: a file whose first line it is
    :param environment: the *name* of an environment variable
    :raises Refusal: several places, an unreadable file, an unset variable, a short passphrase
    """
    given = [item for item in (value, file, environment) if item]
    if len(given) > 1:
        raise Refusal(
            "CA passphrase",
            "several sources",
            "one of ca_passphrase, ca_passphrase_file and ca_passphrase_env",
            "Remove the others",
        )
    if not given:
        return None
    text = value or ""
    if file:
        try:
            with open(os.path.expanduser(file), encoding="utf-8") as stream:
                text = stream.readline().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise Refusal(
                "CA passphrase file %s" % file,
                getattr(error, "strerror", None) or "no text",
                "a file whose first line is the passphrase",
                "Create it, readable by you alone, or name another",
            ) from error
    elif environment:
        text = os.environ.get(environment, "")
    if len(text) < MIN_PASSPHRASE:
        raise Refusal(
            "CA passphrase",
            "%d characters" % len(text) if text else "nothing",
            "at least %d characters" % MIN_PASSPHRASE,
            "Set it, for example to the output of `openssl rand -base64 24`",
        )
    return text.encode("utf-8")


def exists(folder: str) -> bool:
    """Whether there is a CA.

    :raises Refusal: when there is half of one
    """
    halves = {name: os.path.isfile(os.path.join(folder, name)) for name in ("ca.crt", "ca.key")}
    if all(halves.values()):
        return True
    if not any(halves.values()):
        if os.path.isdir(folder) and os.listdir(folder):
            raise Refusal(
                "fleet CA in %s" % folder,
                "a folder with other things in it, and no ca.crt and ca.key",
                "a CA, or an empty or missing folder",
                "Restore both files from your backup, or name another folder as ca_dir",
            )
        return False
    have = next(name for name, there in halves.items() if there)
    raise Refusal(
        "fleet CA in %s" % folder,
        "only %s" % have,
        "both ca.crt and ca.key",
        "Restore the other file from your backup; to start anew with a new CA (every relay's pins "
        "then change), move the folder away",
    )


def certificate(folder: str) -> Optional[str]:
    """The CA's certificate as PEM, or None when there is no CA."""
    if not exists(folder):
        return None
    with open(os.path.join(folder, "ca.crt"), encoding="ascii") as stream:
        return stream.read()


def create(folder: str, name: str, secret: bytes, now: datetime.datetime) -> bool:
    """Make the CA if there is none; another process that is at it is waited for.

    :return: whether this call made it
    """
    parent = os.path.dirname(os.path.abspath(folder))
    os.makedirs(parent, mode=0o700, exist_ok=True)
    with _locked(parent):
        if exists(folder):
            return False
        key = ec.generate_private_key(ec.SECP256R1())
        cert = signing.make_ca(name, key, now)
        new = tempfile.mkdtemp(prefix=".%s-" % os.path.basename(folder), dir=parent)
        try:
            pem = key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(secret),
            )
            os.mkdir(os.path.join(new, "issued"), 0o700)
            write_file(os.path.join(new, "ca.key"), pem, 0o600)
            write_file(
                os.path.join(new, "ca.crt"), cert.public_bytes(serialization.Encoding.PEM), 0o644
            )
            # Replaces an empty folder of that name too.
            os.rename(new, folder)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
    return True


def open_key(folder: str, secret: Optional[bytes]) -> ec.EllipticCurvePrivateKey:
    """The CA's private key.

    :raises Refusal: no passphrase, a wrong one, or a key that is not this CA's
    """
    path = os.path.join(folder, "ca.key")
    if secret is None:
        raise Refusal(
            "fleet CA in %s" % folder,
            "no passphrase",
            "the passphrase of its key",
            "Set ca_passphrase, ca_passphrase_file or ca_passphrase_env",
        )
    check_key_file(folder)
    with open(path, "rb") as stream:
        data = stream.read()
    try:
        key = serialization.load_pem_private_key(data, secret)
    except ValueError:
        raise Refusal(
            "CA key %s" % path,
            "the passphrase does not open it",
            "the passphrase that it was made with",
            "Give the right passphrase; it is not needed while no certificate has to be signed",
        ) from None
    cert = signing.load_certificate(certificate(folder) or "", "CA certificate")
    public = signing.public_key_sha256(key.public_key())
    if not isinstance(key, ec.EllipticCurvePrivateKey) or public != signing.public_key_sha256(
        cert.public_key()
    ):
        raise Refusal(
            "fleet CA in %s" % folder,
            "ca.key is not the key of ca.crt",
            "the two to belong together",
            "Restore both files from the same backup",
        )
    return key


def check_key_file(folder: str) -> None:
    """Look at the key without opening it: it is encrypted, and nobody else's to read.

    :raises Refusal: when it is not; a CA whose key is elsewhere is fine
    """
    path = os.path.join(folder, "ca.key")
    try:
        with open(path, "rb") as stream:
            first = stream.readline(200).strip()
            mode = os.fstat(stream.fileno()).st_mode & 0o777
    except FileNotFoundError:
        return
    if first != b"-----BEGIN ENCRYPTED PRIVATE KEY-----":
        raise Refusal(
            "CA key %s" % path,
            "it is not encrypted",
            "a key encrypted with the passphrase",
            "Encrypt it with `openssl pkcs8 -topk8`",
        )
    if mode & 0o077:
        raise Refusal(
            "CA key %s" % path,
            "that others may read it (mode %04o)" % mode,
            "mode 0600",
            "chmod 600 %s, and ask who has read it: a passphrase can be guessed" % path,
        )


def issue(
    folder: str,
    secret: Optional[bytes],
    csr_pem: Union[str, bytes],
    who: signing.Subject,
    now: datetime.datetime,
    lifetime_days: float = signing.DEFAULT_LIFETIME_DAYS,
) -> Issued:
    """Sign a request and put the certificate on record.

    :raises Refusal: what the policy or the record is against
    """
    if not exists(folder):
        raise Refusal(
            "fleet CA in %s" % folder,
            "none",
            "a CA that was made before hosts ask for certificates",
            "Run the fleet_ca task first",
        )
    key = open_key(folder, secret)
    with _locked(folder):
        ca_certificate = signing.load_certificate(certificate(folder) or "", "CA certificate")
        try:
            public = signing.check_request(csr_pem).public_key()
            check_record(folder, signing.public_key_sha256(public), who, now)
            leaf = signing.sign(csr_pem, who, ca_certificate, key, now, lifetime_days)
        except signing.PolicyError as error:
            raise signing.refuse(
                "certificate for %s" % who.host, error, "Mend what it says, then run again"
            ) from error
        pem = leaf.public_bytes(serialization.Encoding.PEM).decode("ascii")
        _remember(folder, who.host, pem, now)
    return Issued(pem, leaf.not_valid_after_utc)


def check_record(folder: str, public: str, who: signing.Subject, now: datetime.datetime) -> None:
    """Refuse a key that already serves under another host's name.

    Two hosts with one key (a cloned disk) could each stand in for the other.

    :param public: ``signing.public_key_sha256`` of the key
    :raises signing.PolicyError: naming the other host
    """
    for host, certificates in record(folder).items():
        for item in certificates:
            if (
                host != who.host
                and item.not_valid_after_utc > now
                and signing.public_key_sha256(item.public_key()) == public
            ):
                raise signing.PolicyError(
                    "its key is already certified for host %s; if that host was renamed, remove "
                    "%s, else make a new key with rekey" % (host, _record_path(folder, host))
                )


def record(folder: str) -> Dict[str, List[x509.Certificate]]:
    """What was issued, by host, newest first; a host's name is the file's name."""
    found: Dict[str, List[x509.Certificate]] = {}
    base = os.path.join(folder, "issued")
    for name in sorted(os.listdir(base)) if os.path.isdir(base) else []:
        if not name.endswith(".pem"):
            continue
        path = os.path.join(base, name)
        try:
            with open(path, "rb") as stream:
                found[name[: -len(".pem")]] = x509.load_pem_x509_certificates(stream.read())
        except (OSError, ValueError) as error:
            raise Refusal(
                "record %s" % path,
                "it cannot be read (%s)" % error,
                "certificates that the fleet's CA has issued",
                "Restore it from a backup, or remove it if that host is gone",
            ) from error
    return found


def _remember(folder: str, host: str, pem: str, now: datetime.datetime) -> None:
    kept = [
        item.public_bytes(serialization.Encoding.PEM).decode("ascii")
        for item in record(folder).get(host, [])
        if item.not_valid_after_utc > now
    ]
    os.makedirs(os.path.join(folder, "issued"), mode=0o700, exist_ok=True)
    write_file(_record_path(folder, host), "".join([pem, *kept]).encode("ascii"), 0o644)


def _record_path(folder: str, host: str) -> str:
    # Host names were checked by signing.subject: no separator, no leading dot.
    return os.path.join(folder, "issued", "%s.pem" % host)


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Hold the folder against other processes of this machine; a kill releases it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
