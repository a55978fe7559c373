# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cluster's certificate authority and the certificates of its programs."""

from __future__ import annotations

import base64
import shutil
import tempfile
from pathlib import Path

from . import files
from .commands import run
from .layout import NODE, Bed

_LIFE = ("-days", "3650")
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc")
_CONFIG = """\
[req]
distinguished_name = subject
prompt = no
[subject]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""

_CLIENTS = {
    # Kubernetes knows these names and groups and has bound roles to them.
    "admin": "/O=system:masters/CN=bed-admin",
    "apiserver-to-kubelet": "/O=system:masters/CN=bed-apiserver-to-kubelet",
    "kube-controller-manager": "/CN=system:kube-controller-manager",
    "kube-scheduler": "/CN=system:kube-scheduler",
    "kube-proxy": "/CN=system:kube-proxy",
    "kube-router": "/CN=kube-router",
}


def ensure(bed: Bed) -> bool:
    """Make what is missing; return whether anything was."""
    made = _ensure_pair(bed, "ca", "/CN=bed-ca", authority=True)
    made |= _ensure_signing_key(bed)
    names = "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
    names += f",DNS:kubernetes.default.svc.cluster.local,DNS:{NODE}"
    addresses = f"IP:{bed.node_address},IP:{bed.api_service_address},IP:127.0.0.1"
    made |= _ensure_pair(bed, "kube-apiserver", "/CN=kube-apiserver", f"{names},{addresses}")
    kubelet = f"/O=system:nodes/CN=system:node:{NODE}"
    made |= _ensure_pair(bed, "kubelet", kubelet, f"DNS:{NODE},IP:{bed.node_address}")
    for name, subject in _CLIENTS.items():
        made |= _ensure_pair(bed, name, subject)
    for name in (*_CLIENTS, "kubelet"):
        target = bed.kubeconfig if name == "admin" else kubeconfig(bed, name)
        made |= files.write(target, _kubeconfig_text(bed, name), 0o600)
    return made


def certificate(bed: Bed, name: str) -> Path:
    """A program's certificate."""
    return bed.pki / f"{name}.crt"


def private_key(bed: Bed, name: str) -> Path:
    """A program's key."""
    return bed.pki / f"{name}.key"


def public_key(bed: Bed, name: str) -> Path:
    """The public half of a key that has no certificate."""
    return bed.pki / f"{name}.pub"


def kubeconfig(bed: Bed, name: str) -> Path:
    """A program's way to the API server."""
    return bed.etc / f"{name}.kubeconfig"


def _ensure_pair(
    bed: Bed, name: str, subject: str, names: str = "", authority: bool = False
) -> bool:
    wanted = certificate(bed, name)
    if wanted.exists():
        return False
    bed.pki.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=bed.pki) as temporary:
        config, key, crt = (Path(temporary) / part for part in ("config", "key", "crt"))
        config.write_text(_CONFIG)
        argv: list[str | Path] = ["openssl", "req", "-x509", "-config", config, *_NEW_KEY, *_LIFE]
        argv += ["-subj", subject, "-extensions", "authority" if authority else "leaf"]
        argv += ["-keyout", key, "-out", crt]
        if not authority:
            argv += ["-CA", certificate(bed, "ca"), "-CAkey", private_key(bed, "ca")]
        if names:
            argv += ["-addext", f"subjectAltName={names}"]
        run(argv)
        # The certificate comes last: it says that both are there.
        shutil.move(key, private_key(bed, name))
        shutil.move(crt, wanted)
    return True


def _ensure_signing_key(bed: Bed) -> bool:
    """The pair that signs, and checks, tokens of service accounts."""
    public = public_key(bed, "service-account")
    if public.exists():
        return False
    key = private_key(bed, "service-account")
    made = run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"])
    files.write(key, made, 0o600)
    return files.write(public, run(["openssl", "pkey", "-pubout", "-in", key]))


def _kubeconfig_text(bed: Bed, name: str) -> str:
    def embedded(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    context = f"tether-{bed.name}"
    return f"""\
apiVersion: v1
kind: Config
clusters:
  - name: {context}
    cluster:
      server: {bed.server}
      certificate-authority-data: {embedded(certificate(bed, "ca"))}
users:
  - name: {name}
    user:
      client-certificate-data: {embedded(certificate(bed, name))}
      client-key-data: {embedded(private_key(bed, name))}
contexts:
  - name: {context}
    context:
      cluster: {context}
      user: {name}
current-context: {context}
"""
