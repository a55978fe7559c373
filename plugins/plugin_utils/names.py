# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every name on hosts that the collection derives, so that two parts never disagree.

Two different models or namespaces never share an account, unit or socket. Where a name
must be cut to fit, a hash of the whole is added behind a character that the uncut names cannot
hold, so a cut name never meets an uncut one.
"""

from __future__ import annotations

import hashlib

INGRESS_ACCOUNT = "tether-ingress"
INGRESS_ARTIFACT = "caddy"
# Where the daemon module lets runtime directories be, by the host's system: macOS has no /run.
LINUX, MACOS = "linux", "macos"
RUN_ROOTS = {LINUX: "/run/tether", MACOS: "/var/lib/tether/run"}
MODEL_STORE = "/var/lib/tether/models"
ARTIFACT_ROOT = "/opt/tether"

# useradd and glibc take 32 bytes; utmp cuts longer ones.
MAX_ACCOUNT = 32
# sun_path holds 108 bytes on Linux and 104 on macOS, with the terminating NUL.
MAX_SOCKET_PATH = 103


def model_key(namespace: str, model: str) -> str:
    """The key of a model in the plan: ``team-a/tiny``."""
    return "%s/%s" % (namespace, model)


def engine_account(namespace: str) -> str:
    """The account that runs a namespace's engines, at most 32 characters.

    A namespace named ``ingress`` must not become the ingress's own account, and a namespace (a DNS
    label) never holds ``_``, so neither a cut name nor that one can be another namespace's.
    """
    plain = "tether-%s" % namespace
    if len(plain) <= MAX_ACCOUNT and plain != INGRESS_ACCOUNT:
        return plain
    return _cut(plain, MAX_ACCOUNT, "_")


def engine_daemon(namespace: str, model: str) -> str:
    """What an engine's supervisor calls it; a DNS label holds no dot, so the join is unambiguous.

    The label under launchd, the unit without ``.service`` under systemd.
    """
    return "tether-engine-%s.%s" % (namespace, model)


def engine_directory(system: str, namespace: str, model: str) -> str:
    """The directory of an engine's socket, short enough for the socket's path to fit.

    :param system: the host's, one of ``RUN_ROOTS``
    """
    engines = "%s/engines" % RUN_ROOTS[system]
    room = MAX_SOCKET_PATH - len(engines) - len("//engine.sock")
    name = "%s.%s" % (namespace, model)
    if len(name) > room:
        name = _cut(name, room, "_")
    return "%s/%s" % (engines, name)


def engine_socket(system: str, namespace: str, model: str) -> str:
    """The path of an engine's unix socket, at most 103 bytes."""
    return engine_directory(system, namespace, model) + "/engine.sock"


def model_path(namespace: str, sha256: str, name: str) -> str:
    """Where a model's file lies on a host: by namespace, so that no other tenant reads it."""
    return "%s/%s/%s/%s" % (MODEL_STORE, namespace, sha256, name)


def artifact_current(artifact: str) -> str:
    """The link to the version of an artifact that is in use."""
    return "%s/%s/current" % (ARTIFACT_ROOT, artifact)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:10]


def _cut(text: str, room: int, mark: str) -> str:
    return "%s%s%s" % (text[: room - 10 - len(mark)], mark, _hash(text))
