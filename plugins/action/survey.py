# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask a host once what differs; documented in plugins/modules/survey.py."""

from __future__ import annotations

import datetime
import os
import time
from typing import Any, Dict, List

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal
from ansible_collections.tether.fleet.plugins.plugin_utils import (
    ca,
    depot,
    identity,
    lock,
    mac_notes,
    record,
    signing,
    survey,
    survey_answer,
    token_files,
)
from ansible_collections.tether.fleet.plugins.plugin_utils.controller import ControllerAction
from ansible_collections.tether.fleet.plugins.plugin_utils.send import FailedError

# Seconds between two looks at a host that is still on its way.
_PAUSE = 2.0


class ActionModule(ControllerAction):
    TRANSFERS_FILES = False
    ARGUMENT_SPEC = {
        "manage_packages": {"type": "bool", "default": True},
        "settle": {"type": "float", "default": 0.0},
        "host": {"type": "dict", "required": True},
        "parts": {"type": "dict", "required": True},
        "artifacts": {
            "type": "dict",
            "required": True,
            "options": {
                "names": {"type": "list", "elements": "str", "required": True},
                "lock": {"type": "raw"},
            },
        },
        "identity": {
            "type": "dict",
            "required": True,
            "options": {
                "ca_dir": {"type": "path", "required": True},
                "lifetime_days": {"type": "float", "required": True},
                "renew_fraction": {"type": "float", "required": True},
            },
        },
        "registration": {
            "type": "dict",
            "required": True,
            "options": {
                "port": {"type": "int", "required": True},
                "versions": {"type": "dict", "required": True},
            },
        },
    }

    def act(self, arguments: Dict[str, Any], task_vars: Dict[str, Any]) -> Dict[str, Any]:
        deadline = time.monotonic() + arguments["settle"]
        while True:
            result = self._look(arguments, task_vars)
            # Where nothing is to be done a run is quiet.
            if not any(result["differences"].values()):
                return result
            if time.monotonic() >= deadline:
                mac = mac_notes.notes(result["preflight"].get("mac", {}))
                result["warnings"] = ["%s: %s" % (arguments["host"]["name"], text) for text in mac]
                return result
            time.sleep(_PAUSE)

    def _look(self, arguments: Dict[str, Any], task_vars: Dict[str, Any]) -> Dict[str, Any]:
        host = arguments["host"]
        pins = self.read_lock(arguments["artifacts"]["lock"])
        parts = dict(arguments["parts"])
        parts["artifact"] = {"platforms": lock.by_platform(pins, arguments["artifacts"]["names"])}
        parts["identity"] = {"host": host["name"]}
        stored = [depot.without_source(model) for model in host["model_files"]]
        parts["model_store"] = {"models": stored}
        files = parts["ingress_files"]["files"] + token_files.without_secrets(host["namespaces"])
        parts["ingress_files"] = {"files": files}
        found = self._ask(parts, task_vars)
        differences = {part: found[part]["differs"] for part in found}
        facts = {part: found[part]["facts"] for part in found}
        differences["packages"] = survey.packages(facts["preflight"], arguments["manage_packages"])
        if not differences["preflight"]:
            differences["preflight"] = survey.space(found)
        if not differences["identity"]:
            differences["identity"] = self._certificate(arguments, facts["identity"])
        certificates = _certificates(facts["identity"])
        answering = facts.get("published", {}).get("answering", [])
        registration = arguments["registration"]
        return {
            "changed": False,
            "differences": differences,
            "interrupts": any(found[part]["interrupts"] for part in found),
            "preflight": facts["preflight"],
            "certificates": certificates,
            "namespaces": host["namespaces"],
            "digests": facts["ingress_files"].get("digests", {}),
            "answering": answering,
            "record": record.host_record(
                host,
                registration["port"],
                certificates,
                registration["versions"],
                answering=answering,
            ),
        }

    def _certificate(self, arguments: Dict[str, Any], state: Dict[str, Any]) -> str:
        """What the identity role would do beside what the host's own plan says."""
        host, options = arguments["host"], arguments["identity"]
        folder = os.path.abspath(options["ca_dir"])
        try:
            signing.need_library()
            ca.check_key_file(folder)
            identity.check_numbers(options["renew_fraction"], options["lifetime_days"])
            choice = identity.decide(
                state,
                ca.certificate(folder),
                signing.subject(host["name"], host["names"], host["addresses"]),
                {"renew_fraction": options["renew_fraction"], "activate": False},
                datetime.datetime.now(datetime.timezone.utc),
            )
        except (Refusal, signing.PolicyError) as error:
            return str(error)  # the role says it in full
        return survey.certificate(choice, state)

    def _ask(self, parts: Dict[str, Any], task_vars: Dict[str, Any]) -> Dict[str, Any]:
        """The one call to the host.

        :raises Refusal: when nothing can be run there, in words that say why
        """
        try:
            result = dict(
                self._execute_module(
                    module_name="tether.fleet.survey_host",
                    module_args={"parts": parts},
                    task_vars=task_vars,
                )
            )
        except AnsibleConnectionFailure:
            raise
        except AnsibleError as error:
            self._explain(str(error))
            raise
        if "parts" in result and not result.get("failed"):
            return survey_answer.check(result["parts"], parts)
        if not result.get("unreachable"):
            keys = ("msg", "module_stderr", "module_stdout")
            self._explain("\n".join(str(result.get(key) or "") for key in keys))
        raise FailedError(result)

    def _explain(self, said: str) -> None:
        known = survey.obstacle(said)
        if known is not None:
            found, expected, remedy = known
            lines = [line.strip() for line in said.splitlines() if line.strip()]
            raise Refusal(
                "first look at this host",
                "%s (%s)" % (found, lines[-1][:200] if lines else "it said nothing"),
                expected,
                remedy,
            )


def _certificates(state: Dict[str, Any]) -> List[str]:
    """The certificate in use and the one that waits, as far as there are any."""
    found = (state.get("certificate"), state.get("next_certificate"))
    return [pem for pem in found if pem]
