# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.daemon import backends, base
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

PARTS = ("observe", "plan", "apply", "verify", "settled")


@pytest.mark.parametrize("supervisor", sorted(backends.BACKENDS))
def test_every_supervisor_runs_daemons_and_loads_a_firewall(monkeypatch, supervisor):
    monkeypatch.setattr(base, "supervisor", lambda: supervisor)
    daemons, firewall = backends.component("daemon"), backends.component("firewall")
    assert daemons.__name__.endswith("." + supervisor)
    assert firewall.__name__.endswith(
        {"systemd": ".nft_firewall", "launchd": ".pf_firewall"}[supervisor]
    )
    assert all(callable(getattr(daemons, part)) for part in PARTS)
    assert all(callable(getattr(firewall, part)) for part in PARTS[:3])


@pytest.mark.parametrize(
    ("supervisor", "part", "message"),
    [
        (None, "daemon", "found no supervisor"),
        ("runit", "daemon", "found the supervisor runit; expected one of launchd, systemd"),
    ],
)
def test_what_is_not_there_is_refused(monkeypatch, supervisor, part, message):
    monkeypatch.setattr(base, "supervisor", lambda: supervisor)
    with pytest.raises(Refusal, match=message):
        backends.component(part)
