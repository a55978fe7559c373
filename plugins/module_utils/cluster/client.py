# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A thin client: the few requests that the collection makes, by path, each counted.

Authentication is kubernetes.core's. Its dynamic client is used for its authenticated ``request``
alone: the resources are known, so no discovery is needed.
"""

from __future__ import annotations

import datetime
import email.utils
import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    answers,
    bounded,
    labels,
    way_in,
)
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

if TYPE_CHECKING:
    from ansible_collections.kubernetes.core.plugins.module_utils.k8s.core import (
        AnsibleK8SModule,
    )

try:
    from kubernetes.client.rest import ApiException
    from urllib3.exceptions import HTTPError
except ImportError:
    # kubernetes.core says so when the module starts; these only have to be classes.
    class ApiException(Exception):  # type: ignore[no-redef]  # noqa: N818 - its name there
        """Stands for the library's exception where the library is missing."""

    class HTTPError(Exception):  # type: ignore[no-redef]
        """Stands for the library's exception where the library is missing."""


Object = Dict[str, Any]

# kind -> (group and version as in the path, plural, namespaced)
KINDS: Dict[str, Tuple[str, str, bool]] = {
    "Namespace": ("api/v1", "namespaces", False),
    "ConfigMap": ("api/v1", "configmaps", True),
    "Secret": ("api/v1", "secrets", True),
    "Service": ("api/v1", "services", True),
    "Pod": ("api/v1", "pods", True),
    "Event": ("api/v1", "events", True),
    "Deployment": ("apis/apps/v1", "deployments", True),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets", True),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies", True),
    "Ingress": ("apis/networking.k8s.io/v1", "ingresses", True),
    "EndpointSlice": ("apis/discovery.k8s.io/v1", "endpointslices", True),
    "PodMonitor": ("apis/monitoring.coreos.com/v1", "podmonitors", True),
    "ServiceMonitor": ("apis/monitoring.coreos.com/v1", "servicemonitors", True),
    "Lease": ("apis/coordination.k8s.io/v1", "leases", True),
}

_PARTIAL = "application/json;as=%s;g=meta.k8s.io;v=v1"
_TIMEOUT = (10, 60)
# Seconds for a server's first answer, all tries together.
_FIRST_ANSWER = 20.0


class Failed(Refusal):
    """A request that the API server did not carry out, with its status."""

    def __init__(self, status: int, what: str, found: str, expected: str, remedy: str) -> None:
        self.status = status
        super().__init__(what, found, expected, remedy)


class Client:
    """Requests to one API server.

    :param module: whose arguments say where it is and who asks; None outside a module
    :param access: these arguments where there is no module, as in ``AUTH_ARG_SPEC``
    :ivar counts: requests made, by verb, for the module's result
    :ivar requests: the requests themselves, as ``VERB path``
    """

    def __init__(
        self, module: Optional[AnsibleK8SModule], access: Optional[Dict[str, Any]] = None
    ) -> None:
        self.counts: Dict[str, int] = {}
        self.requests: List[str] = []
        self._offset = datetime.timedelta()
        self._started = time.monotonic()
        self._dynamic = _connect(module, access or {})
        self.host = str(self._dynamic.configuration.host)

    def now(self) -> datetime.datetime:
        """The time by the API server's clock, so that writers' own clocks do not matter."""
        return datetime.datetime.now(datetime.timezone.utc) + self._offset

    def began(self) -> datetime.datetime:
        """When this run began, by the API server's clock and in its whole seconds."""
        ago = datetime.timedelta(seconds=time.monotonic() - self._started)
        return (self.now() - ago).replace(microsecond=0)

    def list(
        self,
        kind: str,
        selector: Optional[str] = None,
        namespace: Optional[str] = None,
        metadata_only: bool = False,
    ) -> List[Object]:
        """All objects of a kind, in one namespace or in all."""
        query = [("labelSelector", selector)] if selector else []
        accept = _PARTIAL % "PartialObjectMetadataList" if metadata_only else None
        answer = self._json("list", "GET", kind, namespace, None, query=query, accept=accept)
        api = KINDS[kind][0].split("/", 1)[1]
        items: List[Object] = answer.get("items") or []
        for item in items:
            item["kind"], item["apiVersion"] = kind, api  # a list does not repeat them
        return items

    def get(
        self, kind: str, name: str, namespace: Optional[str] = None, metadata_only: bool = False
    ) -> Optional[Object]:
        """One object, or None."""
        accept = _PARTIAL % "PartialObjectMetadata" if metadata_only else None
        try:
            item = self._json("get", "GET", kind, namespace, name, accept=accept)
        except Failed as error:
            if error.status == 404:
                return None
            raise
        item["kind"] = kind
        return item

    def create(self, item: Object) -> Object:
        """Create an object; fails with status 409 when there is one, whoever made it."""
        kind, namespace, _name = _identity(item)
        query = [("fieldManager", labels.MANAGER)]
        return self._json("create", "POST", kind, namespace, None, body=item, query=query)

    def apply(self, item: Object) -> Object:
        """Server-side apply; with ``metadata.uid`` in it only onto that very object."""
        kind, namespace, name = _identity(item)
        query = [("fieldManager", labels.MANAGER), ("force", "true")]
        return self._json(
            "patch",
            "PATCH",
            kind,
            namespace,
            name,
            body=item,
            query=query,
            content="application/apply-patch+yaml",
        )

    def replace(self, item: Object) -> Object:
        """Replace an object; its ``resourceVersion`` must still be the current one."""
        kind, namespace, name = _identity(item)
        query = [("fieldManager", labels.MANAGER)]
        return self._json("update", "PUT", kind, namespace, name, body=item, query=query)

    def merge(
        self,
        kind: str,
        namespace: Optional[str],
        name: str,
        body: Object,
        manager: str = labels.MANAGER,
    ) -> Object:
        """A JSON merge patch.

        :param manager: who owns the fields; those of our usual name have to be wanted by a plan
        """
        query = [("fieldManager", manager)]
        return self._json(
            "patch",
            "PATCH",
            kind,
            namespace,
            name,
            body=body,
            query=query,
            content="application/merge-patch+json",
        )

    def json_patch(
        self, kind: str, namespace: Optional[str], name: str, body: List[Object]
    ) -> Object:
        return self._json(
            "patch",
            "PATCH",
            kind,
            namespace,
            name,
            body=body,
            content="application/json-patch+json",
        )

    def delete(self, kind: str, namespace: Optional[str], name: str, uid: str) -> None:
        """Delete exactly the object that was seen; one that is gone already is fine."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            self._json("delete", "DELETE", kind, namespace, name, body=body)
        except Failed as error:
            if error.status != 404:
                raise

    def logs(self, namespace: str, pod: str, lines: int = 20, previous: bool = False) -> str:
        """The last lines of a pod's container, or nothing when there are none."""
        query = [("tailLines", str(lines)), ("previous", "true" if previous else "false")]
        path = path_of("Pod", namespace, pod) + "/log"
        try:
            status, text = self.raw("GET", path, query=query)
        except Refusal:
            return ""
        return text if status == 200 else ""

    def last_warning(self, namespace: str, pod: str) -> str:
        """The newest Warning event about a pod, or nothing: why it does not start."""
        query = [("fieldSelector", "involvedObject.name=%s,type=Warning" % pod)]
        try:
            status, text = self.raw("GET", path_of("Event", namespace), query=query)
        except Refusal:
            return ""
        events: List[Object] = json.loads(text).get("items") or [] if status == 200 else []
        events.sort(key=lambda item: str(item.get("lastTimestamp") or item.get("eventTime")))
        return str(events[-1].get("message")) if events else ""

    def raw(
        self,
        method: str,
        path: str,
        query: Optional[List[Tuple[str, str]]] = None,
        body: Any = None,
        content: Optional[str] = None,
        accept: Optional[str] = None,
        timeout: Any = _TIMEOUT,
        limit: Optional[int] = None,
    ) -> Tuple[int, str]:
        """A request by its path.

        :param limit: bytes that the answer may have, where a host gives it and not the API server;
            ``timeout`` then ends in seconds for all of the request
        :return: status and text, also for statuses that are errors
        :raises Refusal: when the API server cannot be reached
        :raises bounded.TooLargeError: for an answer beyond ``limit``
        """
        self.counts[method] = self.counts.get(method, 0) + 1
        self.requests.append("%s %s" % (method, path))
        params: Dict[str, Any] = {"query_params": list(query or []), "header_params": {}}
        if accept:
            params["header_params"]["Accept"] = accept
        if content:
            params["content_type"] = content
        dynamic = self._dynamic
        if limit is not None:
            dynamic = bounded.bounded(dynamic, limit, timeout[1])
        try:
            response = dynamic.request(
                method, path, body=body, serialize=False, _request_timeout=timeout, **params
            )
            if limit is None:  # a host's clock is not the API server's
                self._note_time(dict(response.headers))
            return int(response.status), response.data.decode("utf-8", "replace")
        except ApiException as error:
            return int(error.status or 0), _body(error)
        except (HTTPError, OSError) as error:
            raise way_in.no_connection(self.host, error) from error

    def _json(
        self,
        verb: str,
        method: str,
        kind: str,
        namespace: Optional[str],
        name: Optional[str],
        **more: Any,
    ) -> Object:
        path = path_of(kind, namespace, name)
        status, text = self.raw(method, path, **more)
        if 200 <= status < 300:
            data: Object = json.loads(text)
            return data
        refusal = refusal_of(status, text, verb, kind, namespace, name)
        raise with_ended_credentials(refusal, self._dynamic.configuration, self.now())

    def _note_time(self, headers: Dict[str, str]) -> None:
        stamp = _date(headers)
        if stamp is not None:
            self._offset = stamp - datetime.datetime.now(datetime.timezone.utc)


def path_of(kind: str, namespace: Optional[str], name: Optional[str] = None) -> str:
    """The path of a kind's collection or of one object."""
    prefix, plural, namespaced = KINDS[kind]
    parts = ["", prefix]
    if namespaced and namespace:
        parts += ["namespaces", namespace]
    parts.append(plural)
    if name:
        parts.append(name)
    return "/".join(parts)


def refusal_of(
    status: int, text: str, verb: str, kind: str, namespace: Optional[str], name: Optional[str]
) -> Failed:
    """An error of the API server, in words that name verb, resource and namespace."""
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    message = answers.message_of(data, text)
    plural = KINDS[kind][1]
    place = "in namespace %s" % namespace if namespace else "in the whole cluster"
    what = "%s %s%s %s" % (verb, plural, " " + name if name else "", place)
    expected, remedy = answers.advice(status, message, verb, plural, namespace)
    return Failed(status, what, "status %d (%s)" % (status, message), expected, remedy)


def with_ended_credentials(refusal: Failed, configuration: Any, now: datetime.datetime) -> Failed:
    """A refusal that says which credential has ended, where that is why nobody is let in."""
    ended = way_in.ended_credentials(configuration, now) if refusal.status == 401 else None
    if ended is None:
        return refusal
    return Failed(401, refusal.what, ended, refusal.expected, refusal.remedy)


def refused_connection(error: ApiException, configuration: Any) -> Failed:
    """The refusal for an API server that answers its first request with an error."""
    refusal = refusal_of(int(error.status or 0), _body(error), "get", "Namespace", None, None)
    now = _date(dict(error.headers or {})) or datetime.datetime.now(datetime.timezone.utc)
    return with_ended_credentials(refusal, configuration, now)


def _body(error: ApiException) -> str:
    text = error.body or ""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)


def _date(headers: Dict[str, str]) -> Optional[datetime.datetime]:
    """The server's time in the headers of its answer."""
    for key, value in headers.items():
        if key.lower() == "date":
            return email.utils.parsedate_to_datetime(value)
    return None


def _connect(module: Optional[AnsibleK8SModule], access: Dict[str, Any]) -> Any:
    """kubernetes.core's client, whose first request may go to a server that never answers.

    That request has no time limit of its own, and the kernel's is two minutes for each of four
    tries; so it is made beside, and left behind when it takes too long.
    """
    # Imported here: it loads the kubernetes package, which a unit test does not need.
    from ansible_collections.kubernetes.core.plugins.module_utils.k8s.client import (
        get_api_client,
    )

    outcome: Dict[str, Any] = {}

    def connect() -> None:
        try:
            outcome["client"] = get_api_client(module, **access).client
        # A kubeconfig is anybody's file, and the library raises whatever it stumbles over in it.
        except Exception as error:  # noqa: BLE001
            outcome["error"] = error

    beside = threading.Thread(target=connect, daemon=True)
    beside.start()
    beside.join(_FIRST_ANSWER)
    error = outcome.get("error")
    if "client" in outcome:
        return outcome["client"]
    if error is None:
        error = TimeoutError("timed out")
    elif isinstance(error, ApiException):
        raise refused_connection(error, _configuration()) from error
    elif not isinstance(error, HTTPError):
        raise way_in.no_configuration(error, _path_given(module, access)) from error
    raise way_in.no_connection(_dialled(error) or str(_configuration().host), error) from error


def _path_given(module: Optional[AnsibleK8SModule], access: Dict[str, Any]) -> str:
    """The kubeconfig's path as it was given; empty for none, and for a kubeconfig given whole."""
    for given in (
        module.params.get("kubeconfig") if module else access.get("kubeconfig"),
        os.environ.get("K8S_AUTH_KUBECONFIG"),
        os.environ.get("KUBECONFIG"),
    ):
        if given:
            return given if isinstance(given, str) else ""
    return ""


def _dialled(error: Exception) -> str:
    """Where a connection failed. Without a kubeconfig (K8S_AUTH_HOST) only the error knows it."""
    pool = getattr(error, "pool", None)
    return "%s://%s:%s" % (pool.scheme, pool.host, pool.port) if pool is not None else ""


def _configuration() -> Any:
    """What the kubeconfig that was read last comes to."""
    from kubernetes.client import Configuration

    return Configuration.get_default_copy()


def _identity(item: Object) -> Tuple[str, Optional[str], str]:
    meta = item["metadata"]
    return item["kind"], meta.get("namespace"), meta["name"]
