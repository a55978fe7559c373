# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an API server's refusal means for the person who has to act on it. Pure.

A status alone does not tell: 403 is a missing right, an exhausted quota, a namespace that ends or a
policy's no, and each has another remedy.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Optional, Tuple

Advice = Tuple[str, str]

# As Kubernetes 1.34 words them: plugin/pkg/admission/resourcequota, and pkg/admission/plugin/policy
# and pkg/admission/plugin/webhook of the API server.
_QUOTA = re.compile(r"exceeded quota: ([^,\s]+)")
_POLICY = re.compile(r"ValidatingAdmissionPolicy '([^']+)'")
_WEBHOOK = re.compile(r'admission webhook "([^"]+)" denied')
_WEBHOOK_DOWN = re.compile(r'failed calling webhook "([^"]+)"')
_POD_SECURITY = re.compile(r'violates PodSecurity "([^"]+)"')
_TERMINATING = re.compile(r"in namespace (\S+) because it is being terminated")
_LIMITS = re.compile(r"(maximum|minimum) (cpu|memory)\S* usage per|maximum memory usage")
_USER = re.compile(r'User "([^"]+)" cannot')

_BY_STATUS: Dict[int, Advice] = {
    401: ("valid credentials", "Renew the credentials in the kubeconfig"),
    404: ("it to exist", "Create the namespace, or set fleet_create_namespaces: true"),
    409: (
        "nobody else to change it at the same time",
        "Find out who else writes it, then run again",
    ),
    422: ("an object that the API server accepts", "Correct the value that it names"),
    429: ("an API server that keeps up", "Wait until it is less busy, then run again"),
}
_BROKEN: Advice = ("an API server in order", "Look at the API server's own log, then run again")


def of_admission(message: str, namespace: Optional[str]) -> Optional[Advice]:
    """What was expected and what to do when the cluster's own rules refused an object, else None.

    :param message: the API server's, or what a controller reports of its answer
    :param namespace: where the object would be; None for one of the whole cluster
    """
    place = " -n %s" % namespace if namespace else ""
    found = _QUOTA.search(message)
    if found:
        return (
            "room in that quota",
            "Raise it (kubectl describe resourcequota %s%s) or remove what fills it, then run again"
            % (found.group(1), place),
        )
    found = _TERMINATING.search(message)
    if found:
        return being_deleted(found.group(1))
    for pattern, kind in ((_POLICY, "ValidatingAdmissionPolicy"), (_WEBHOOK, "admission webhook")):
        found = pattern.search(message)
        if found:
            return (
                "the cluster's %s %s to allow it" % (kind, found.group(1)),
                "Ask whoever runs that policy to allow it%s, then run again"
                % (" for namespace %s" % namespace if namespace else ""),
            )
    found = _WEBHOOK_DOWN.search(message)
    if found:
        return (
            "the cluster's admission webhook %s to answer" % found.group(1),
            "Ask whoever runs that webhook to mend it, then run again",
        )
    found = _POD_SECURITY.search(message)
    if found:
        return (
            "pods that keep to the namespace's Pod Security level %s" % found.group(1),
            "Lower the label pod-security.kubernetes.io/enforce of namespace %s, then run again"
            % namespace,
        )
    if _LIMITS.search(message):
        return (
            "pods within the namespace's limits",
            "Adapt them (kubectl describe limitrange%s), then run again" % place,
        )
    return None


def being_deleted(namespace: str) -> Advice:
    """What to do about a namespace that is on its way out."""
    return (
        "a namespace that stays",
        "Wait until it is gone (kubectl get namespace %s -o yaml says what holds it) and run again"
        % namespace,
    )


def advice(status: int, message: str, verb: str, plural: str, namespace: Optional[str]) -> Advice:
    """What was expected, and what to do, for a request that was refused."""
    found = of_admission(message, namespace)
    if found:
        return found
    if status == 403:
        user = _USER.search(message)
        who = user.group(1) if user else "the account of the kubeconfig"
        return (
            "the right to %s %s there" % (verb, plural),
            "Grant that verb on that resource to %s; docs/cluster-rights.yml lists all of them"
            % who,
        )
    return _BY_STATUS.get(status, _BROKEN)


def message_of(data: Any, text: str) -> str:
    """The sentence in an answer: a Status object's own, else the text's beginning."""
    if isinstance(data, dict) and data.get("message"):
        return str(data["message"])
    return " ".join(text.split())[:300]
