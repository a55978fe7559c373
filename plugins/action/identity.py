# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host's identity in one task; documented in plugins/modules/identity.py.

First call to the host: key and request. Then the controller decides and signs. Second call, only
when there is something to install: the certificate. In check mode the second call is predicted by
the same function that plans it.
"""

from __future__ import annotations

import datetime
import os
from typing import Any, Dict, List, Optional

from ansible.plugins.action import ActionBase

from ansible_collections.tether.fleet.plugins.action.fleet_ca import PASSPHRASE_SPEC
from ansible_collections.tether.fleet.plugins.module_utils import host_key
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal, Step
from ansible_collections.tether.fleet.plugins.plugin_utils import ca, identity, signing

HOST_OPTIONS = ("host", "directory", "owner", "group")
SPEC: Dict[str, Any] = {
    "host": {"type": "str", "required": True},
    "names": {"type": "list", "elements": "str", "default": []},
    "addresses": {"type": "list", "elements": "str", "default": []},
    "ca_dir": {"type": "path", "required": True},
    **PASSPHRASE_SPEC,
    "lifetime_days": {"type": "float", "default": signing.DEFAULT_LIFETIME_DAYS},
    "renew_fraction": {"type": "float", "default": 0.3333},
    "rekey": {"type": "bool", "default": False, "no_log": False},
    "activate": {"type": "bool", "default": True},
    "directory": {"type": "path", "default": "/etc/tether/identity"},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "tether-ingress"},
}


class _HostError(Exception):
    """The module on the host failed; its result is the task's."""

    def __init__(self, result: Dict[str, Any]) -> None:
        super().__init__(result.get("msg"))
        self.result = result


class ActionModule(ActionBase):
    TRANSFERS_FILES = False

    def run(
        self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None
    ) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        self._vars = task_vars
        self._done: Dict[str, Any] = {"changes": [], "diff": []}
        _checked, options = self.validate_argument_spec(argument_spec=SPEC)
        try:
            signing.need_library()
            result.update(self._identity(options))
        except signing.PolicyError as error:
            refusal = signing.refuse(
                "identity of %s" % options["host"], error, "Mend the host's inventory entry"
            )
            result.update(failed=True, msg=str(refusal))
        except Refusal as refusal:
            result.update(refusal.facts, failed=True, msg=str(refusal))
        except _HostError as error:
            result.update(error.result, failed=True)
        # What was done before a failure is reported too.
        result.update(self._done, changed=bool(self._done["changes"]))
        return result

    def _identity(self, options: Dict[str, Any]) -> Dict[str, Any]:
        # Bad input is found before the host is touched.
        who = signing.subject(options["host"], options["names"], options["addresses"])
        identity.check_numbers(options["renew_fraction"], options["lifetime_days"])
        folder = os.path.abspath(options["ca_dir"])
        ca_pem = ca.certificate(folder)
        check = self._task.check_mode
        if ca_pem is None and not check:
            raise Refusal(
                "fleet CA in %s" % folder,
                "none",
                "a CA that was made before hosts ask for certificates",
                "Run tether.fleet.fleet_ca first",
            )
        now = datetime.datetime.now(datetime.timezone.utc)
        state = self._host(options, rekey=options["rekey"])
        choice = identity.decide(state, ca_pem, who, options, now)
        if choice["reason"]:
            self._add([Step("sign", "certificate", who.host, after=choice["reason"] + "\n")])
        if choice["reason"] and ca_pem:
            if check:
                _rehearse(state, folder, who, now)
            else:
                secret = ca.passphrase(
                    options["ca_passphrase"],
                    options["ca_passphrase_file"],
                    options["ca_passphrase_env"],
                )
                life = options["lifetime_days"]
                issued = ca.issue(folder, secret, state["csr"], who, now, life)
                choice["install"] = issued.certificate
        if choice["reason"] or choice["install"]:
            if check:
                self._add(predict(state, options["directory"], choice["activate"]))
            else:
                state = self._host(
                    options, certificate=choice["install"], activate=choice["activate"]
                )
        return _result(state, ca_pem, choice, check)

    def _host(self, options: Dict[str, Any], **more: Any) -> Dict[str, Any]:
        arguments = {key: options[key] for key in HOST_OPTIONS}
        state: Dict[str, Any] = self._execute_module(
            module_name="tether.fleet.host_key",
            module_args={**arguments, **more},
            task_vars=self._vars,
        )
        for key in ("changes", "diff"):
            self._done[key] = self._done[key] + list(state.get(key) or [])
        if state.get("failed") or state.get("unreachable") or "csr" not in state:
            raise _HostError(state)
        return state

    def _add(self, steps: List[Step]) -> None:
        self._done["changes"] = self._done["changes"] + [step.summary() for step in steps]
        self._done["diff"] = self._done["diff"] + [step.diff() for step in steps]


def predict(state: Dict[str, Any], directory: str, activate: bool) -> List[Step]:
    """The second call's steps, from the first call's facts."""
    present = {
        "certificate": bool(state["certificate"]),
        "next_certificate": bool(state["next_certificate"]),
        "next_key": bool(state["pending_key"]),
    }
    return host_key.install_steps(directory, present, activate)


def _rehearse(
    state: Dict[str, Any], folder: str, who: signing.Subject, now: datetime.datetime
) -> None:
    """What signing would refuse, as far as it can be known before the run."""
    if state["csr"]:
        signing.check_request(state["csr"])
    if state["public_key_sha256"]:
        ca.check_record(folder, state["public_key_sha256"], who, now)


def _result(
    state: Dict[str, Any], ca_pem: Optional[str], choice: Dict[str, Any], check: bool
) -> Dict[str, Any]:
    current, following = state["certificate"], state["next_certificate"]
    if check and (choice["reason"] or choice["install"]):
        # What the run would make is not known yet; the old one would mislead.
        if choice["activate"]:
            current = choice["install"]
            following = None
        else:
            following = choice["install"]
    found: Dict[str, Any] = {"not_after": None, "fingerprint_sha256": None}
    if current:
        leaf = signing.load_certificate(current)
        found["not_after"] = leaf.not_valid_after_utc.isoformat()
        found["fingerprint_sha256"] = signing.fingerprint_sha256(leaf)
    return {
        **found,
        "certificate": current,
        "staged": bool(following) or (check and bool(choice["reason"]) and not choice["activate"]),
        "next_certificate": following,
        "certificates": [pem for pem in (current, following) if pem],
        "ca_certificate": ca_pem,
        "public_key_sha256": state["public_key_sha256"],
        "reason": choice["reason"],
    }
