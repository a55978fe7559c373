# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What differs in the cluster: the relays' own plan over one reading, and a question to each model.

It only reads. A converge asks this before it asks the hosts, and needs nothing more of the cluster
when nothing differs anywhere.
"""

from __future__ import annotations

import hashlib
from typing import Any, Dict, List

from ansible_collections.tether.fleet.plugins.module_utils.cluster import (
    certificates,
    diff,
    labels,
    probe,
    registration,
    relay,
    tokens,
)
from ansible_collections.tether.fleet.plugins.module_utils.cluster.client import Client
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal


def survey(client: Client, options: Dict[str, Any]) -> Dict[str, Any]:
    """Read, plan, ask.

    :param options: those of ``relay``, and ``namespaces`` and ``probe_timeout`` (seconds)
    :return: ``{"differs": why or "", "models": relay's verdicts, "orphans", "records": by host,
        "tokens": {namespace: {"current": sha256}}, "blocked": by model, why it will not be
        served whatever is done on its hosts, "draining": by host, since when, but
        for those that drain for a restart alone; "registered": the hosts that have a record,
        "told": what is no failure, "asked": the models that were asked whether they answer}``
    """
    desired = relay.wishes(options, [], check_mode=False)
    observed = relay.observe(client, desired)
    resting = relay.draining(desired, observed)
    result: Dict[str, Any] = {
        "models": {},
        "orphans": [],
        "records": _records(desired, observed),
        "tokens": _digests(desired, observed),
        "blocked": {},
        "asked": [],
        "draining": {
            host: since for host, since in resting.items() if not registration.is_restarting(since)
        },
        "registered": sorted(relay.read_records(desired, observed)[0]),
    }
    try:
        relay.check_image(options["image"])
        certificates.check_ca(options["ca_certificate"])
        plan = relay.plan(desired, observed)
    except Refusal as refusal:
        return dict(result, differs=str(refusal))
    verdicts = plan.facts["verdicts"]
    result["orphans"] = plan.facts["orphans"]
    result["told"] = plan.facts["told"]
    result["models"] = {key: verdict.result() for key, verdict in verdicts.items()}
    result["blocked"] = {key: one.reason for key, one in verdicts.items() if one.blocked}
    reasons = [step.words() for step in plan.steps]
    for key, verdict in verdicts.items():
        if relay.needs_attention(verdict.result()):
            reasons.append("%s: %s" % (key, verdict.reason or "not all of its hosts may serve it"))
        elif not verdict.ready and verdict.state != "drained":
            reasons.append("%s: not all of its relays are ready" % key)
    if not reasons:
        asked = [
            model
            for model in desired["models"]
            if verdicts[model.key].state != "drained" and not model.direct
        ]
        result["asked"] = sorted(model.key for model in asked)
        answers = probe.probe_all(client, asked, options["probe_timeout"])
        reasons = ["%s: %s" % (key, one["reason"]) for key, one in answers.items() if not one["ok"]]
    return dict(result, differs="; ".join(reasons))


def _records(desired: Dict[str, Any], observed: Dict[str, Any]) -> Dict[str, Any]:
    """The hosts' records, but for those that registration would write anew as they are."""
    fleet, place = desired["fleet"], desired["fleet_namespace"]
    found: Dict[str, Any] = {}
    for host, record in relay.read_records(desired, observed)[0].items():
        live = observed["ours"][("ConfigMap", place, labels.record_name(host))]
        if not diff.differs(registration.renewed(record, fleet, place, live), live):
            found[host] = record
    return found


def _digests(desired: Dict[str, Any], observed: Dict[str, Any]) -> Dict[str, Dict[str, str]]:
    """The digests of the tokens that there are: enough to compare, of no use to anybody else."""
    found: Dict[str, Dict[str, str]] = {}
    namespaces: List[str] = desired["namespaces"]
    for namespace in namespaces:
        live = observed["ours"].get(
            ("Secret", desired["fleet_namespace"], labels.token_name(namespace))
        )
        marks = (live or {}).get("metadata", {}).get("labels") or {}
        try:
            # As the token role finds it: by what it is, and not by its name alone.
            token = (
                tokens.read_token(live)["current"] if marks.get(labels.RECORD) == "token" else None
            )
        except Refusal:  # the token role says it
            token = None
        if token is not None:
            found[namespace] = {"current": hashlib.sha256(token.encode("ascii")).hexdigest()}
    return found
