# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether a host's certificate is to be signed, installed or put in use: decided by pure
functions."""

from __future__ import annotations

import datetime
from typing import Any, Dict, Optional

from ansible_collections.tether.fleet.plugins.plugin_utils import signing


def decide(
    state: Dict[str, Any],
    ca_pem: Optional[str],
    who: signing.Subject,
    options: Dict[str, Any],
    now: datetime.datetime,
) -> Dict[str, Any]:
    """What is to be done on top of what the first call did. Pure.

    :param state: host_key's facts
    :return: ``reason`` (why to sign, or None), ``install`` (a certificate that lies ready, or
        None), ``activate`` (whether a new certificate is put in use at once)
    """

    def reason(pem: Optional[str], key: Optional[str], fraction: float) -> Optional[str]:
        return signing.reason_to_sign(pem, key, ca_pem, who, now, fraction)

    newest, fraction = state["public_key_sha256"], options["renew_fraction"]
    current, ready = state["certificate"], state["next_certificate"]
    # Only what still serves is worth keeping in use while relays learn of the next.
    serves = (
        bool(state["pending_key"] or state["certificate_matches_key"])
        and reason(current, _key_of(current), 0) is None
    )
    activate = options["activate"] or not serves
    # Relays have been told of what lies ready. Were it due again by now, putting another in use,
    # which they do not know, would cut them off.
    known = options["activate"] and serves
    if ready and reason(ready, newest, 0 if known else fraction) is None:
        return {"reason": None, "install": ready if activate else None, "activate": activate}
    return {"reason": reason(current, newest, fraction), "install": None, "activate": activate}


def _key_of(pem: Optional[str]) -> Optional[str]:
    try:
        return signing.public_key_sha256(signing.load_certificate(pem or "").public_key())
    except signing.PolicyError:
        return None


def check_numbers(renew_fraction: float, lifetime_days: float) -> None:
    """
    :raises PolicyError: naming the number that makes no sense
    """
    if not 0 < renew_fraction < 1:
        raise signing.PolicyError(
            "renew_fraction %s: expected a number between 0 and 1" % renew_fraction
        )
    if not 0 < lifetime_days <= signing.CA_LIFETIME_DAYS:
        raise signing.PolicyError(
            "lifetime_days %s: expected 1 to %d" % (lifetime_days, signing.CA_LIFETIME_DAYS)
        )
