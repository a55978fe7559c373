# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What differs on a host: the plans of all its parts in one call that changes nothing.

A converge asks this first and then runs only the roles of which something differs. Each part is one
component's own ``observe`` and ``plan``, so what mends a difference is also what finds it.
"""

from __future__ import annotations

import platform
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.tether.fleet.plugins.module_utils import (
    accounts,
    application_firewall,
    artifact,
    files,
    firewall_options,
    host_key,
    mac_settings,
    model_store,
    preflight,
    published,
)
from ansible_collections.tether.fleet.plugins.module_utils.daemon import backends, base
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal, Step

# part -> (the component, its module's options). A component that is a word depends on the host.
PARTS: Dict[str, Tuple[Any, Dict[str, Any]]] = {
    "preflight": (preflight, preflight.ARGUMENT_SPEC),
    "accounts": (accounts, accounts.ARGUMENT_SPEC),
    "directories": (files, files.SURVEY_SPEC),
    "firewall": ("firewall", firewall_options.ARGUMENT_SPEC),
    "artifact": (artifact, artifact.ARGUMENT_SPEC),
    "model_store": (model_store, model_store.ARGUMENT_SPEC),
    "identity": (host_key, host_key.ARGUMENT_SPEC),
    "engine": ("daemon", base.ARGUMENT_SPEC),
    "ingress_files": (files, files.SURVEY_SPEC),
    "application_firewall": (application_firewall, application_firewall.ARGUMENT_SPEC),
    "ingress": ("daemon", base.ARGUMENT_SPEC),
    "mac_settings": (mac_settings, mac_settings.ARGUMENT_SPEC),
    "boot": ("daemon", base.ARGUMENT_SPEC),
    "published": (published, published.ARGUMENT_SPEC),
}


def survey(desired: Mapping[str, Mapping[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """Plan each part.

    :param desired: part -> the options that its module would get
    :return: part -> ``{"differs": why, or "", "actions": of the plan's steps, none where there is
        no plan, "interrupts": whether one of them costs a running process its requests, "facts":
        what the plan says holds}``
    """
    return {name: _plan(name, dict(options)) for name, options in desired.items()}


def _plan(name: str, options: Dict[str, Any]) -> Dict[str, Any]:
    """One part. Whatever goes wrong is a difference: the part's role then says it in full."""
    try:
        component, specification = PARTS[name]
        if name == "artifact":
            options = _of_this_platform(options)
        digests = _digest(options) if name == "ingress_files" else {}
        checked = ArgumentSpecValidator(specification).validate(options)
        if checked.error_messages:
            return _found("; ".join(checked.error_messages))
        wanted = dict(checked.validated_parameters)
        if isinstance(component, str):
            component = backends.component(component)
        if "daemons" in wanted:
            base.join_device_groups(wanted["daemons"])
        plan: Plan = component.plan(wanted, component.observe(wanted))
        differs = "; ".join(step.words() for step in plan.steps)
        if not plan.steps and hasattr(component, "settled"):
            differs = component.settled(plan)
        return _found(differs, dict(plan.facts, **digests), plan.steps)
    except Refusal as refusal:
        return _found(str(refusal), refusal.facts)
    except Exception as error:  # noqa: BLE001 - the part's own role meets it too, and says it
        return _found("%s: %s" % (type(error).__name__, error))


def _found(
    differs: str, facts: Optional[Dict[str, Any]] = None, steps: Sequence[Step] = ()
) -> Dict[str, Any]:
    return {
        "differs": differs,
        "actions": [step.action for step in steps],
        # A reload too: the ingress closes connections (plugin_utils/ingress_config.py).
        "interrupts": any(
            step.kind == "process" and step.action in ("restart", "reload", "stop")
            for step in steps
        ),
        "facts": facts or {},
    }


def _of_this_platform(options: Dict[str, Any]) -> Dict[str, Any]:
    """The artifacts of this host's platform, which the controller cannot know before this call."""
    pinned = options.pop("platforms")
    name = preflight.platform_name(platform.system(), platform.machine())
    if name not in pinned:
        raise Refusal(
            "artifacts for %s" % name,
            "pins for %s" % (", ".join(sorted(pinned)) or "no platform"),
            "pins for this host's platform",
            "Add them to fleet.lock.yml",
        )
    return dict(options, artifacts=pinned[name])


def _digest(options: Dict[str, Any]) -> Dict[str, Any]:
    """Complete the files whose content the controller keeps to itself: it compares the digests."""
    found: Dict[str, str] = {}
    for entry in options["files"]:
        if entry.get("state", "file") == "file" and "content" not in entry:
            entry["content_sha256"] = found[entry["path"]] = base.file_digest(entry["path"])
    return {"digests": found}
