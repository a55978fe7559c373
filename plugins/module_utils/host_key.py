# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host's key, its certificate request and its certificate, with the openssl that the OS ships.

The key is made here and never leaves: it is written with mode 0600 under a temporary name, given to
its group, and renamed. Only its public half is ever reported.

Files in the folder::

    host.key        the key in use
    host.crt        the certificate in use
    request.csr     a request for the newest key
    host.key.next   a new key that has no certificate in use yet (rekey)
    host.crt.next   a certificate that is not in use yet: relays learn of it first

A kill at any place leaves files from which the next run goes on: a new key is kept until its
certificate arrives, and a certificate in use whose key is still ``host.key.next`` has it promoted.

Works with OpenSSL 1.1 and 3 and with LibreSSL: no ``-addext``, no ``-copy_extensions``; what the
request asks for is ignored by the signer anyway.
"""

from __future__ import annotations

import base64
import grp
import hashlib
import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
from typing import Any, Dict, List, Optional

from ansible_collections.tether.fleet.plugins.module_utils.files import write_file
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal, Step

# Only a private key is secret here, and none is ever an option: no_log on "key" paths or names
# would hide what must be seen.
ARGUMENT_SPEC: Dict[str, Any] = {
    "host": {"type": "str", "required": True},
    "directory": {"type": "path", "default": "/etc/tether/identity"},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "tether-ingress"},
    "rekey": {"type": "bool", "default": False, "no_log": False},
    "certificate": {"type": "str"},
    "activate": {"type": "bool", "default": True},
}

KEY_MODE = 0o640
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?\Z")
_PUBLIC = re.compile(r"-----BEGIN PUBLIC KEY-----\s+(.*?)-----END PUBLIC KEY-----", re.DOTALL)
# "subject=CN = x" (OpenSSL 1.1, 3.0), "subject=CN=x" (3.2), "subject=/CN=x" (LibreSSL).
_SUBJECT = re.compile(r"^subject=\s*/?CN\s*=\s*(\S+)\s*$", re.MULTILINE)
_CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+-----END CERTIFICATE-----\n?\Z"
)
# A key or certificate is a few hundred bytes; whatever is larger is not one.
_MAX = 64 * 1024


def observe(desired: Dict[str, Any]) -> Dict[str, Any]:
    """Read the folder; see ``_look`` and ``_public`` for the shapes.

    :param desired: ``{"host", "directory", "owner", "group", "rekey", "certificate", "activate"}``;
        ``certificate`` is PEM text to install, or None to look after key and request only
    """
    folder = desired["directory"]
    openssl = shutil.which("openssl", path=_search_path())
    observed: Dict[str, Any] = {
        "openssl": openssl,
        "uid": _uid(desired["owner"]),
        "gid": _gid(desired["group"]),
        "directory": _look(folder),
    }
    for name, kind in (
        ("host.key", "key"),
        ("host.key.next", "key"),
        ("request.csr", "request"),
        ("host.crt", "certificate"),
        ("host.crt.next", "certificate"),
    ):
        path = os.path.join(folder, name)
        found = _look(path)
        if found is not None and found["type"] == "file":
            found.update(_identify(openssl, kind, path))
        observed[name] = found
    given = desired.get("certificate")
    observed["given"] = _identify_text(openssl, given) if given else None
    return observed


def plan(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    """Key and request (no ``certificate`` given), or the installation of a certificate."""
    _check(desired, observed)
    if desired.get("certificate"):
        return _plan_install(desired, observed)
    return _plan_key(desired, observed)


def apply(plan: Plan) -> Dict[str, Any]:
    """Carry the steps out, then report what holds."""
    for step in plan.steps:
        _DO[step.data["do"]](step.data)
    return _facts(observe(plan.steps[0].data["desired"])) if plan.steps else {}


def install_steps(
    folder: str, present: Dict[str, bool], activate: bool, desired: Optional[Dict[str, Any]] = None
) -> List[Step]:
    """What installing a new certificate changes. Pure: the controller predicts with it too.

    :param present: ``certificate``, ``next_certificate``: whether those files exist;
        ``next_key``: whether the certificate belongs to ``host.key.next``
    """
    data = {"desired": desired or {}, "folder": folder}
    name = "host.crt" if activate else "host.crt.next"
    known = present["certificate" if activate else "next_certificate"]
    steps = [
        Step(
            "update" if known else "create",
            "certificate",
            os.path.join(folder, name),
            data=dict(data, do="certificate", file=name),
        )
    ]
    if activate and present["next_key"]:
        steps.append(_promote(folder, desired))
    if activate and present["next_certificate"]:
        steps.append(_remove(folder, desired))
    return steps


def _plan_key(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    folder = desired["directory"]
    result = Plan(facts=_facts(observed))
    key, following = observed["host.key"], observed["host.key.next"]
    certificate = observed["host.crt"]
    data = {"desired": desired, "folder": folder}
    fresh = None
    if key is None and following is None:
        fresh = "host.key"
    elif desired["rekey"] and following is None:
        fresh = "host.key.next"
    if fresh:
        result.steps.append(
            Step(
                "create",
                "key",
                os.path.join(folder, fresh),
                after="EC P-256, mode %04o, group %s" % (KEY_MODE, desired["group"]),
                data=dict(data, do="key", file=fresh),
            )
        )
    elif key is not None and key["public"] is None and following is None:
        raise Refusal(
            "key %s" % os.path.join(folder, "host.key"),
            "openssl cannot read it",
            "a private key",
            "Restore it, or run once with rekey: true",
        )
    newest = None if fresh else (following or key)
    promoted = (
        following is not None
        and certificate is not None
        and following["public"] is not None
        and certificate["public"] == following["public"]
    ) or (key is None and following is not None)
    if promoted:
        result.steps.append(_promote(folder, desired))
    elif key is not None and not _owned(key, observed):
        result.steps.append(
            Step(
                "update",
                "key",
                os.path.join(folder, "host.key"),
                before="mode %s, owner %s:%s" % (key["mode"], key["uid"], key["gid"]),
                after="mode %04o, owner %s:%s" % (KEY_MODE, desired["owner"], desired["group"]),
                data=dict(data, do="own", file="host.key"),
            )
        )
    request = observed["request.csr"]
    if (
        newest is None
        or request is None
        or request["public"] is None
        or request["public"] != newest["public"]
        or request["subject"] != desired["host"]
    ):
        result.steps.append(
            Step(
                "create" if request is None else "update",
                "request",
                os.path.join(folder, "request.csr"),
                after="CN=%s" % desired["host"],
                data=dict(data, do="request"),
            )
        )
        result.facts["csr"] = None
    if fresh:
        result.facts["public_key_sha256"] = None
        result.facts["certificate_matches_key"] = False
    result.facts["pending_key"] = fresh == "host.key.next" or (
        following is not None and not promoted
    )
    return result


def _plan_install(desired: Dict[str, Any], observed: Dict[str, Any]) -> Plan:
    folder = desired["directory"]
    given = observed["given"]["public"]
    key, following = observed["host.key"], observed["host.key.next"]
    for_next = following is not None and following["public"] == given
    if given is None or not (for_next or (key is not None and key["public"] == given)):
        raise Refusal(
            "certificate for %s" % desired["host"],
            "one that belongs to none of this host's keys",
            "a certificate for the newest key",
            "Run the identity task again; it asks for one",
        )
    name = "host.crt" if desired["activate"] else "host.crt.next"
    present = {
        "certificate": observed["host.crt"] is not None,
        "next_certificate": observed["host.crt.next"] is not None,
        "next_key": for_next,
    }
    result = Plan(facts=_facts(observed))
    steps = install_steps(folder, present, desired["activate"], desired)
    current = observed[name]
    if current is not None and current.get("pem") == desired["certificate"]:
        steps = [step for step in steps if step.data["do"] != "certificate"]
    result.steps = steps
    return result


def _promote(folder: str, desired: Optional[Dict[str, Any]]) -> Step:
    return Step(
        "update",
        "key",
        os.path.join(folder, "host.key"),
        after="the new key takes its place",
        data={"desired": desired or {}, "folder": folder, "do": "promote"},
    )


def _remove(folder: str, desired: Optional[Dict[str, Any]]) -> Step:
    return Step(
        "remove",
        "certificate",
        os.path.join(folder, "host.crt.next"),
        data={"desired": desired or {}, "folder": folder, "do": "remove"},
    )


def _check(desired: Dict[str, Any], observed: Dict[str, Any]) -> None:
    if not _HOST.match(desired["host"]):
        raise Refusal(
            "host name %r" % desired["host"],
            "other characters, or more than 64",
            "letters, digits, '.', '_' and '-'",
            "Rename the host in the inventory",
        )
    folder = desired["directory"]
    for name, kind in [("", "directory")] + [
        (name, "file")
        for name in ("host.key", "host.key.next", "request.csr", "host.crt", "host.crt.next")
    ]:
        found = observed[name or "directory"]
        if found is not None and found["type"] != kind:
            raise Refusal(
                os.path.join(folder, name),
                "a %s" % found["type"],
                "a %s, or nothing" % kind,
                "Find out who made it, then move it away",
            )
    # On a fresh host in check mode an earlier task may be about to bring it.
    if observed["openssl"] is None and observed["host.key"] is not None:
        raise _no_openssl()


def _facts(observed: Dict[str, Any]) -> Dict[str, Any]:
    """What may be known of it: the public parts."""
    newest = observed["host.key.next"] or observed["host.key"] or {"public": None}
    request, certificate = observed["request.csr"], observed["host.crt"]
    return {
        "csr": None if request is None else request["pem"],
        "public_key_sha256": newest["public"],
        "certificate": None if certificate is None else certificate["pem"],
        "certificate_matches_key": bool(
            certificate and newest["public"] and certificate["public"] == newest["public"]
        ),
        "next_certificate": (observed["host.crt.next"] or {}).get("pem"),
        "pending_key": observed["host.key.next"] is not None,
    }


def _owned(found: Dict[str, Any], observed: Dict[str, Any]) -> bool:
    return bool(
        found["mode"] == "%04o" % KEY_MODE
        and found["uid"] == observed["uid"]
        and found["gid"] == observed["gid"]
    )


def _look(path: str) -> Optional[Dict[str, Any]]:
    """Type, mode and owner, never following a link."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    return {
        "type": kinds.get(stat.S_IFMT(status.st_mode), "special"),
        "mode": "%04o" % stat.S_IMODE(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
    }


def _identify(openssl: Optional[str], kind: str, path: str) -> Dict[str, Any]:
    """``public`` (SHA-256 of the public key's DER, None when unreadable), and for what may be
    shown ``pem``; ``subject`` of a request."""
    if kind == "key":
        text = _run(openssl, ["pkey", "-in", path, "-pubout"])
        return {"public": _public(text)}
    with open(path, "rb") as stream:
        pem = stream.read(_MAX).decode("utf-8", "replace")
    if kind == "request":
        text = _run(openssl, ["req", "-in", path, "-noout", "-subject", "-pubkey"])
        subject = _SUBJECT.search(text or "")
        return {
            "pem": pem,
            "public": _public(text),
            "subject": subject.group(1) if subject else None,
        }
    return dict(_identify_text(openssl, pem), pem=pem)


def _identify_text(openssl: Optional[str], pem: str) -> Dict[str, Any]:
    if not _CERTIFICATE.match(pem):
        return {"public": None}
    return {"public": _public(_run(openssl, ["x509", "-noout", "-pubkey"], pem))}


def _public(text: Optional[str]) -> Optional[str]:
    found = _PUBLIC.search(text or "")
    if found is None:
        return None
    return hashlib.sha256(base64.b64decode(found.group(1))).hexdigest()


def _run(openssl: Optional[str], arguments: List[str], stdin: str = "") -> Optional[str]:
    """openssl's output, None when it fails: then the file is not what it should be."""
    if openssl is None:
        return None
    done = subprocess.run(
        [openssl, *arguments],
        input=stdin.encode("utf-8"),
        capture_output=True,
        env=_environment(),
        timeout=60,
        check=False,
    )
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def _make(arguments: List[str]) -> bytes:
    """openssl's output; its error text (never its output, which may be a key) on failure."""
    openssl = shutil.which("openssl", path=_search_path())
    if openssl is None:
        raise _no_openssl()
    done = subprocess.run(
        [openssl, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=_environment(),
        timeout=60,
        check=False,
    )
    if done.returncode != 0 or not done.stdout.startswith(b"-----BEGIN "):
        raise Refusal(
            "openssl %s" % arguments[0],
            "exit status %d: %s" % (done.returncode, done.stderr.decode("utf-8", "replace")[-500:]),
            "it to work",
            "Run `openssl version` on the host; OpenSSL 1.1 or newer, or LibreSSL, is needed",
        )
    return done.stdout


def _do_key(data: Dict[str, Any]) -> None:
    uid, gid = _owner(data["desired"])
    if not os.path.isdir(data["folder"]):
        # The role baseline makes and reports it; this is for a call on its own.
        os.makedirs(os.path.dirname(data["folder"]), mode=0o755, exist_ok=True)
        os.mkdir(data["folder"], 0o750)
        os.chown(data["folder"], uid, gid)
    # The encoding is set because LibreSSL once wrote the curve's parameters instead of its name,
    # which TLS stacks refuse.
    key = _make(
        [
            "genpkey",
            *("-algorithm", "EC"),
            *("-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-pkeyopt", "ec_param_enc:named_curve"),
        ]
    )
    write_file(os.path.join(data["folder"], data["file"]), key, KEY_MODE, uid, gid)


def _do_own(data: Dict[str, Any]) -> None:
    path = os.path.join(data["folder"], data["file"])
    uid, gid = _owner(data["desired"])
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fchown(handle, uid, gid)
        os.fchmod(handle, KEY_MODE)
    finally:
        os.close(handle)


def _do_request(data: Dict[str, Any]) -> None:
    folder = data["folder"]
    key = os.path.join(folder, "host.key.next")
    if not os.path.exists(key):
        key = os.path.join(folder, "host.key")
    text = (
        "[req]\nprompt = no\ndistinguished_name = subject\n[subject]\nCN = %s\n"
        % (data["desired"]["host"])
    )
    with tempfile.NamedTemporaryFile("w", suffix=".cnf", encoding="ascii") as config:
        config.write(text)
        config.flush()
        csr = _make(["req", "-new", "-sha256", "-config", config.name, "-key", key])
    write_file(os.path.join(folder, "request.csr"), csr, 0o644)


def _do_certificate(data: Dict[str, Any]) -> None:
    pem = data["desired"]["certificate"].encode("ascii")
    write_file(os.path.join(data["folder"], data["file"]), pem, 0o644)


def _do_promote(data: Dict[str, Any]) -> None:
    folder = data["folder"]
    _do_own(dict(data, file="host.key.next"))
    os.rename(os.path.join(folder, "host.key.next"), os.path.join(folder, "host.key"))


def _do_remove(data: Dict[str, Any]) -> None:
    os.unlink(os.path.join(data["folder"], "host.crt.next"))


_DO = {
    "key": _do_key,
    "own": _do_own,
    "request": _do_request,
    "certificate": _do_certificate,
    "promote": _do_promote,
    "remove": _do_remove,
}


def _owner(desired: Dict[str, Any]) -> List[int]:
    uid, gid = _uid(desired["owner"]), _gid(desired["group"])
    if uid is None or gid is None:
        raise Refusal(
            "key in %s" % desired["directory"],
            "no account %s or no group %s on this host" % (desired["owner"], desired["group"]),
            "both to exist",
            "Run the roles that come before this one, in particular baseline",
        )
    return [uid, gid]


def _uid(name: str) -> Optional[int]:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def _gid(name: str) -> Optional[int]:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def _search_path() -> str:
    return "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin"


def _environment() -> Dict[str, str]:
    """No OPENSSL_CONF of a user's shell, and messages in one language."""
    return {"PATH": _search_path(), "LC_ALL": "C"}


def _no_openssl() -> Refusal:
    return Refusal(
        "openssl",
        "no such program",
        "OpenSSL or LibreSSL, which every supported system ships",
        "Install the package openssl",
    )
