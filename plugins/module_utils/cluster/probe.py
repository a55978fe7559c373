# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A real request through a model's Service, by the API server's service proxy."""

from __future__ import annotations

import functools
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import bounded, objects
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

_EXCERPT = 400
# A list of models and one token are a few KiB; a host that was taken over may send for ever.
_LIMIT = 1024 * 1024
# Enough to hide one slow model behind the others, few enough for an API server.
_PARALLEL = 8


def ask(
    client: Client,
    namespace: str,
    target: str,
    path: str,
    body: Any,
    timeout: float,
    accept: str = "application/json",
) -> Tuple[int, str]:
    """One request. The proxy reaches a ready endpoint of a Service as a client pod would.

    :param target: ``services/http:NAME:PORT``, or ``pods/...`` for one pod
    :raises bounded.TooLargeError: when there is more of an answer than an engine gives
    """
    where = "/api/v1/namespaces/%s/%s/proxy%s" % (namespace, target, path)
    method = "GET" if body is None else "POST"
    try:
        return client.raw(
            method,
            where,
            body=body,
            content=None if body is None else "application/json",
            accept=accept,
            timeout=(10, timeout),
            limit=_LIMIT,
        )
    except Refusal as refusal:
        return 0, str(refusal)


def _service(name: str, port: int) -> str:
    return "services/http:%s:%d" % (name, port)


def _ask_and_judge(*question: Any) -> Tuple[int, str, Optional[str]]:
    """``ask``, and what ``judge`` says of the answer."""
    try:
        status, text = ask(*question)
    except bounded.TooLargeError as error:
        return error.status, "", str(error)
    return status, text, judge(status, text)


def _parsed(text: str) -> Any:
    """JSON, or None. A host may nest it deeper than Python can follow."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def judge(status: int, text: str) -> Optional[str]:
    """Why an answer is not what an engine answers, naming who gave it; None when it is. Pure."""
    data = _parsed(text)
    if 200 <= status < 300:
        return None if isinstance(data, dict) else "status %d without JSON" % status
    if status == 0:
        return "no answer in time: %s" % text
    if isinstance(data, dict) and data.get("kind") == "Status":
        return "the API server answered %d: %s" % (status, data.get("message"))
    error = data.get("error") if isinstance(data, dict) else None
    if isinstance(error, dict):
        message = str(error.get("message"))[:_EXCERPT]
        giver = "the relay" if message.startswith("The relay") else "the host"
        return "%s answered %d: %s" % (giver, status, message)
    return "status %d: %s" % (status, text[:_EXCERPT])


def probe(
    client: Client,
    namespace: str,
    name: str,
    port: int,
    timeout: float,
    chat: bool = True,
    target: Optional[str] = None,
) -> Dict[str, Any]:
    """Ask one model for its list of models and for one token.

    :param timeout: seconds for both together; a request that no relay is ready for is repeated
        within them
    :param target: whom to ask, as in ``ask``; the model's Service when it is not given
    :return: ``{"ok", "status", "latency", "excerpt", "reason", "model"}``
    """
    end = time.monotonic() + timeout
    result: Dict[str, Any] = {
        "ok": False,
        "status": 0,
        "latency": None,
        "excerpt": "",
        "reason": "",
        "model": name,
    }
    asked = target or _service(name, port)
    paths = ["/v1/models", "/v1/chat/completions"] if chat else ["/v1/models"]
    for path in paths:
        body: Optional[Dict[str, Any]] = None
        if path != "/v1/models":
            body = {
                "model": result["model"],
                "max_tokens": 1,
                "messages": [{"role": "user", "content": "Say hello."}],
            }
        look = functools.partial(_ask_and_judge, client, namespace, asked, path, body)
        text = _persist(look, path, end, result)
        if result["reason"]:
            return result
        if body is None:
            result["model"] = first_model(text, name)
    result["ok"] = True
    return result


def _persist(
    look: Callable[[float], Tuple[int, str, Optional[str]]],
    path: str,
    end: float,
    result: Dict[str, Any],
) -> str:
    """Ask until the answer is good or will not become so, and note it in the result.

    :param look: one request within so many seconds: status, text and what is wrong
    :return: the text
    """
    while True:
        start = time.monotonic()
        status, text, reason = look(max(1.0, end - start))
        # A token may take a while to reach a host or a relay; a refusal of the request itself
        # will not pass.
        passing = status in (0, 401, 403, 500, 502, 503, 504) and not _forbidden(status, text)
        if reason is None or not passing or time.monotonic() + 1 > end:
            break
        time.sleep(1)
    result.update(
        status=status,
        latency=round(time.monotonic() - start, 3),
        excerpt=text[:_EXCERPT],
        reason="" if reason is None else "%s: %s" % (path, reason),
    )
    return text


def probe_service(client: Client, model: objects.Model, timeout: float) -> Dict[str, Any]:
    """Ask a service for its health path; results as ``probe``."""
    wanted = model.service.health_status if model.service else 200
    result: Dict[str, Any] = {"ok": False, "model": model.name}
    path = model.health_path
    asked = _service(model.name, model.port)

    def look(left: float) -> Tuple[int, str, Optional[str]]:
        question = (client, model.namespace, asked, path, None, left, "*/*")
        try:
            status, text = ask(*question)
        except bounded.TooLargeError as error:  # a page may be as large as it likes
            status, text = error.status, ""
        if status == wanted:
            return status, text, None
        told = judge(status, text) if status >= 300 or status == 0 else None
        return status, text, told or "status %d instead of %d" % (status, wanted)

    _persist(look, path, time.monotonic() + timeout, result)
    result["ok"] = not result["reason"]
    return result


def probe_all(
    client: Client, models: List[objects.Model], timeout: float, chat: bool = True
) -> Dict[str, Dict[str, Any]]:
    """``probe`` for several models and services side by side, by their keys."""

    def one(model: objects.Model) -> Dict[str, Any]:
        if model.service is not None:
            return probe_service(client, model, timeout)
        return probe(client, model.namespace, model.name, model.port, timeout, chat)

    with ThreadPoolExecutor(_PARALLEL) as pool:
        answers = list(pool.map(one, models))
    return {model.key: answer for model, answer in zip(models, answers)}


def _forbidden(status: int, text: str) -> bool:
    """Whether it is the API server that refuses the caller."""
    return status in (401, 403) and '"kind":"Status"' in text.replace(" ", "")


def first_model(text: str, default: str) -> str:
    """The first model's id in an answer to /v1/models: some engines insist on their own name."""
    try:
        return str(_parsed(text)["data"][0]["id"])
    except (KeyError, IndexError, TypeError, RecursionError):
        return default
