# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The fleet's CA; documented in plugins/modules/fleet_ca.py."""

from __future__ import annotations

import datetime
import os
from typing import Any, Dict, Optional

from ansible.plugins.action import ActionBase

from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal, Step
from ansible_collections.tether.fleet.plugins.plugin_utils import ca, signing

PASSPHRASE_SPEC: Dict[str, Any] = {
    "ca_passphrase": {"type": "str", "no_log": True},
    # Where it is, not what it is.
    "ca_passphrase_file": {"type": "path", "no_log": False},
    "ca_passphrase_env": {"type": "str", "no_log": False},
}
SPEC: Dict[str, Any] = {
    "ca_dir": {"type": "path", "required": True},
    "fleet": {"type": "str", "required": True},
    **PASSPHRASE_SPEC,
}


class ActionModule(ActionBase):
    """Runs on the controller alone, whatever the host's connection is."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(
        self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None
    ) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        _checked, options = self.validate_argument_spec(argument_spec=SPEC)
        try:
            signing.need_library()
            result.update(ensure(options, self._task.check_mode))
        except Refusal as refusal:
            result.update(refusal.facts, failed=True, msg=str(refusal))
        return result


def ensure(options: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:
    """Make the CA if it is missing; the task's result."""
    folder = os.path.abspath(options["ca_dir"])
    secret = ca.passphrase(
        options["ca_passphrase"], options["ca_passphrase_file"], options["ca_passphrase_env"]
    )
    plan = Plan()
    if not ca.exists(folder):
        if secret is None:
            raise Refusal(
                "fleet CA in %s" % folder,
                "no CA, and no passphrase to make one",
                "a passphrase",
                "Set ca_passphrase, ca_passphrase_file or ca_passphrase_env",
            )
        step = Step("create", "ca", folder, after="CA of fleet %s, EC P-256\n" % options["fleet"])
        plan.steps.append(step)
        if not check_mode:
            # Another controller may have been faster: then there is nothing left to do.
            if not ca.create(folder, options["fleet"], secret, _now()):
                plan.steps.clear()
    elif secret is not None:
        ca.open_key(folder, secret)
    result = plan.result()
    result.update(facts(ca.certificate(folder)))
    return result


def facts(pem: Optional[str]) -> Dict[str, Any]:
    """The CA's public facts, empty while there is none."""
    if pem is None:
        return {"ca_certificate": None, "fingerprint_sha256": None, "not_after": None}
    try:
        certificate = signing.load_certificate(pem, "CA certificate")
    except signing.PolicyError as error:
        raise signing.refuse("fleet CA", error, "Restore ca.crt from your backup") from error
    return {
        "ca_certificate": pem,
        "fingerprint_sha256": signing.fingerprint_sha256(certificate),
        "not_after": certificate.not_valid_after_utc.isoformat(),
    }


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)
