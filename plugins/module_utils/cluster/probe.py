# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A real request through a model's Service, by the API server's service proxy."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional, Tuple

from ansible_collections.tether.fleet.plugins.module_utils.cluster import bounded, objects
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

_EXCERPT = 400
# A list of models and one token are a few KiB; a host that was taken over may send for ever.
_LIMIT = 1024 * 1024
# Enough to hide one slow model behind the others, few enough for an API server.
_PARALLEL = 8


def ask(
    client: Client, namespace: str, target: str, path: str, body: Any, timeout: float
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
            accept="application/json",
            timeout=(10, timeout),
            limit=_LIMIT,
        )
    except Refusal as refusal:
        return 0, str(refusal)


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
    asked = target or "services/http:%s:%d" % (name, port)
    paths = ["/v1/models", "/v1/chat/completions"] if chat else ["/v1/models"]
    for path in paths:
        body: Optional[Dict[str, Any]] = None
        if path != "/v1/models":
            body = {
                "model": result["model"],
                "max_tokens": 1,
                "messages": [{"role": "user", "content": "Say hello."}],
            }
        while True:
            start = time.monotonic()
            left = max(1.0, end - start)
            status, text, reason = _ask_and_judge(client, namespace, asked, path, body, left)
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
        if reason is not None:
            return result
        if body is None:
            result["model"] = first_model(text, name)
    result["ok"] = True
    return result


def probe_all(
    client: Client, models: List[objects.Model], timeout: float, chat: bool = True
) -> Dict[str, Dict[str, Any]]:
    """``probe`` for several models side by side, by their keys."""

    def one(model: objects.Model) -> Dict[str, Any]:
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
