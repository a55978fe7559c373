# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether a host's answer to a survey has the form that the run counts on. Pure.

A host that was taken over answers whatever it likes. It may lie about itself, which costs it its
own models; it must not bring anything into the run that later work, done once for all hosts, trips
over. So an answer of another form ends the run for that host alone.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Iterable, List, Mapping

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal
from ansible_collections.tether.fleet.plugins.plugin_utils import lock
from ansible_collections.tether.fleet.plugins.plugin_utils.plain import plain

# Bytes of an answer as JSON; those of hosts with many models are some tens of kilobytes.
MAX_ANSWER = 1024 * 1024
_MAX_PEM = 16 * 1024
# As daemon.base.file_digest gives them.
_DIGEST = re.compile(r"[0-9a-f]{64}|missing")


def check(answer: Any, asked: Iterable[str]) -> Dict[str, Dict[str, Any]]:
    """The answer itself.

    :param answer: ``parts`` of what ``survey_host`` returned
    :param asked: the parts that it was asked for
    :raises Refusal: naming everything that is of another form
    """
    try:
        found = plain(answer)
        wrong = _mistakes(found, sorted(asked))
    except RecursionError:
        wrong = ["something of endless depth"]
    if wrong:
        raise Refusal(
            "this host's answer to the survey",
            "; ".join(wrong)[:1000],
            "one that tether.fleet.survey_host gives",
            "Run again. If it comes again, take the host out of the inventory and find out who"
            " answers there: it may have been taken over",
        )
    result: Dict[str, Dict[str, Any]] = found
    return result


def _mistakes(answer: Any, asked: List[str]) -> List[str]:
    size = len(json.dumps(answer))
    if size > MAX_ANSWER:
        return ["%d bytes" % size]
    if not isinstance(answer, Mapping) or sorted(answer) != asked:
        return ["other parts than %s" % ", ".join(asked)]
    wrong = [
        "%s: no differs, actions, interrupts and facts" % name
        for name, part in answer.items()
        if not _is_part(part)
    ]
    return wrong or [*_preflight(answer), *_identity(answer), *_files(answer), *_published(answer)]


def _is_part(part: Any) -> bool:
    return (
        isinstance(part, Mapping)
        and set(part) == {"differs", "actions", "interrupts", "facts"}
        and isinstance(part["differs"], str)
        and _is_texts(part["actions"])
        and isinstance(part["interrupts"], bool)
        and isinstance(part["facts"], Mapping)
    )


def _mac(facts: Any) -> List[str]:
    if isinstance(facts, Mapping) and all(
        isinstance(value, str) if key == "version" else value in (None, True, False)
        for key, value in facts.items()
    ):
        return []
    return ["preflight: mac"]


def _preflight(answer: Mapping[str, Any]) -> List[str]:
    facts = answer.get("preflight", {}).get("facts", {})
    wrong = _mac(facts.get("mac", {}))
    if facts.get("platform") not in (None, *lock.PLATFORMS):
        wrong.append("preflight: platform %s" % json.dumps(facts["platform"])[:80])
    if not _is_texts(facts.get("missing_packages") or []):
        wrong.append("preflight: missing_packages is no list of names")
    short = facts.get("short") or []
    keys = ("check", "found", "expected")
    if not isinstance(short, list) or not all(
        isinstance(one, Mapping) and all(isinstance(one.get(key), str) for key in keys)
        for one in short
    ):
        wrong.append("preflight: short is no list of findings")
    return wrong


def _identity(answer: Mapping[str, Any]) -> List[str]:
    facts = answer.get("identity", {}).get("facts", {})
    return [
        "identity: %s is no certificate" % key
        for key in ("certificate", "next_certificate")
        if not _is_short(facts.get(key))
    ]


def _is_short(text: Any) -> bool:
    return text is None or (isinstance(text, str) and len(text) <= _MAX_PEM)


def _files(answer: Mapping[str, Any]) -> List[str]:
    digests = answer.get("ingress_files", {}).get("facts", {}).get("digests") or {}
    if isinstance(digests, Mapping) and all(
        isinstance(path, str) and isinstance(digest, str) and _DIGEST.fullmatch(digest)
        for path, digest in digests.items()
    ):
        return []
    return ["ingress_files: digests is no list of digests"]


def _published(answer: Mapping[str, Any]) -> List[str]:
    facts = answer.get("published", {}).get("facts", {})
    return [] if _is_texts(facts.get("answering", [])) else ["published: answering is no list"]


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)
