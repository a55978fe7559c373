# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which roles a host needs, from what a survey found of it: pure, in the order of the roles."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.tether.fleet.plugins.plugin_utils import token_files

# Which roles mend a part, and which depend on what it changes. The order is site.yml's.
MENDED_BY: Dict[str, Tuple[str, ...]] = {
    "preflight": ("preflight",),
    "packages": ("baseline",),
    "accounts": ("baseline",),
    "directories": ("baseline",),
    "mac_settings": ("baseline",),
    "boot": ("baseline",),
    "firewall": ("firewall",),
    "artifact": ("depot", "artifact"),
    "model_store": ("depot", "model_store"),
    # The ingress reads a certificate anew, and relays learn it from the host's record.
    "identity": ("token", "identity", "ingress", "registration"),
    # An engine that fails is left out of the host's record.
    "engine": ("engine", "registration"),
    # A host learns its tokens from the cluster, not from the survey.
    "token": ("token", "ingress"),
    "ingress_files": ("token", "ingress"),
    # By the ingress's program, which is installed by then.
    "application_firewall": ("token", "ingress"),
    "ingress": ("token", "ingress"),
    # Which services answer is in the record.
    "published": ("registration",),
    "record": ("registration",),
}
ROLES = (
    "preflight",
    "token",
    "depot",
    "baseline",
    "firewall",
    "artifact",
    "model_store",
    "identity",
    "engine",
    "ingress",
    "registration",
)


def differing(
    found: Mapping[str, Any], cluster: Mapping[str, Any], trust: bool = True
) -> Dict[str, List[str]]:
    """The roles that a host needs, and why.

    :param found: what ``tether.fleet.survey`` returned for the host; every role is needed where it
        was not asked
    :param cluster: what ``tether.fleet.cluster_survey`` returned; empty where it was not asked, and
        whatever needs the cluster then differs
    :param trust: False: every role, whatever was found
    """
    if "differences" not in found:
        return {role: ["it was not asked"] for role in ROLES}
    differences = dict(found["differences"])
    tokens, records = cluster.get("tokens") or {}, cluster.get("records") or {}
    differences["token"] = token(found["digests"], found["namespaces"], tokens)
    # Without a certificate there is no record yet to compare.
    if not differences["identity"]:
        differences["record"] = record(found["record"], records.get(found["record"]["host"]))
    reasons = judge(differences)
    if trust:
        return reasons
    return {role: reasons.get(role, ["nothing is trusted"]) for role in ROLES}


def token(
    found: Mapping[str, str], namespaces: Sequence[str], tokens: Mapping[str, Mapping[str, str]]
) -> str:
    """How a host's token files differ from the cluster's tokens.

    :param found: path -> sha256 on the host
    :param tokens: namespace -> ``{"current": sha256}``
    """
    for namespace in namespaces:
        if namespace not in tokens:
            return "read the token of %s" % namespace
        for path, digest in token_files.digests(tokens[namespace], namespace).items():
            if found.get(path) != digest:
                return "update file %s" % path
    return ""


def judge(differences: Mapping[str, str]) -> Dict[str, List[str]]:
    """``{role: [why, ...]}`` of the roles that have to run, in their order.

    :param differences: part -> what differs, or ""
    """
    reasons: Dict[str, List[str]] = {}
    for part, why in differences.items():
        for role in MENDED_BY[part] if why else ():
            reasons.setdefault(role, []).append(why)
    return {role: reasons[role] for role in ROLES if role in reasons}


def packages(facts: Mapping[str, Any], managed: bool) -> str:
    """The packages that preflight misses, as a difference.

    :param managed: whether the role baseline may install them
    """
    missing = (managed and facts.get("missing_packages")) or []
    return "install %s" % ", ".join(missing) if missing else ""


def space(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Too little room, as a difference of preflight where something is to be installed.

    A nearly full host that serves must still get its certificates and tokens, and be rid of what it
    no longer needs.

    :param found: what ``survey_host`` says of each part
    """

    def installs(part: Mapping[str, Any]) -> bool:
        # What differs without a plan is refused, and may need room once it is not.
        actions = part["actions"]
        return any(one != "remove" for one in actions) or (bool(part["differs"]) and not actions)

    if not any(installs(found[name]) for name in ("artifact", "model_store") if name in found):
        return ""
    return "; ".join(
        "%(check)s: found %(found)s; expected %(expected)s" % item
        for item in found["preflight"]["facts"].get("short") or []
    )


def certificate(choice: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    """What is to be done about a certificate, as a difference.

    :param choice: what ``identity.decide`` says
    :param state: what ``host_key`` says
    """
    if choice["reason"]:
        return "sign the certificate: %s" % choice["reason"]
    if choice["install"] or state["next_certificate"]:
        return "put the renewed certificate in use"
    return ""


def record(wanted: Mapping[str, Any], registered: Optional[Mapping[str, Any]]) -> str:
    """How the record in the cluster differs from the one that the host would get."""
    if registered is None:
        return "register the host"
    keys = [key for key in sorted({*wanted, *registered}) if wanted.get(key) != registered.get(key)]
    return "update %s in the host's record" % ", ".join(keys) if keys else ""


# What the connection or the shell says -> what was found, what is needed, what to do.
_OBSTACLES: Tuple[Tuple[Tuple[str, ...], str, str, str], ...] = (
    (
        ("missing sudo password", "a password is required", "incorrect sudo password"),
        "sudo asks for a password, and none (or a wrong one) was given",
        "sudo without a password for the ssh account, or its password",
        "Allow it in /etc/sudoers.d, or give the password with --ask-become-pass or from a vault as"
        " ansible_become_password",
    ),
    (
        ("not in the sudoers file", "not allowed to execute", "may not run sudo"),
        "the ssh account may not use sudo",
        "an account that may become root",
        "Allow it in /etc/sudoers.d, or set ansible_user to another account",
    ),
    (
        ("sudo: not found", "sudo: command not found"),
        "no sudo",
        "sudo, or an ssh account that is root",
        "Install sudo, or set ansible_user: root and ansible_become: false",
    ),
    (
        ("no space left on device",),
        "a full disk where Ansible unpacks its modules",
        "some room there",
        "Make room (df -h; df -i)",
    ),
    (
        ("read-only file system",),
        "a file system that cannot be written where Ansible unpacks its modules",
        "one that can be written",
        "See why it is mounted read-only (dmesg; findmnt), or set ansible_remote_tmp elsewhere",
    ),
    # The stub that macOS has at /usr/bin/python3; after an update of macOS, xcrun's words.
    (
        ("no developer tools were found", "invalid active developer path"),
        "no Python, but its stub: Apple's Command Line Tools are not there",
        "Python 3.9 or newer",
        "Install them (xcode-select --install at the Mac's screen, or softwareupdate --install), or"
        " another Python, and set ansible_python_interpreter to its path",
    ),
    (
        (
            "python3: not found",
            "python: not found",
            "python3: no such file or directory",
            "python: no such file or directory",
            "python3: command not found",
        ),
        "no Python",
        "Python 3.9 or newer",
        "Install python3, or set ansible_python_interpreter to the path of one",
    ),
    (
        (
            "requires a minimum of python",
            "no module named 'json'",
            "no module named 'zipfile'",
            "no module named 'encodings'",
            "future feature annotations is not defined",
        ),
        "a Python that is too old, or not whole",
        "Python 3.9 or newer with its standard library",
        "Install a newer one, and set ansible_python_interpreter to its path",
    ),
)


def obstacle(said: str) -> Optional[Tuple[str, str, str]]:
    """What keeps Ansible itself from running anything on a host, from what it said of it.

    :return: what was found, what was expected and what to do; None for what is not known
    """
    text = said.lower()
    for marks, found, expected, remedy in _OBSTACLES:
        if any(mark in text for mark in marks):
            return found, expected, remedy
    return None
