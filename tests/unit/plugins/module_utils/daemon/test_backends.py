# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.daemon import backends, base
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

PARTS = ("observe", "plan", "apply", "verify", "settled")


@pytest.mark.parametrize("supervisor", sorted(backends.BACKENDS))
def test_every_supervisor_runs_daemons(monkeypatch, supervisor):
    monkeypatch.setattr(base, "supervisor", lambda: supervisor)
    found = backends.component("daemon")
    assert found.__name__.endswith("." + supervisor)
    assert all(callable(getattr(found, part)) for part in PARTS)


@pytest.mark.parametrize(
    ("supervisor", "part", "message"),
    [
        (None, "daemon", "found no supervisor"),
        ("runit", "daemon", "found the supervisor runit; expected one of launchd, systemd"),
        ("launchd", "firewall", "firewall on this host: found the supervisor launchd; expected"),
    ],
)
def test_what_is_not_there_is_refused(monkeypatch, supervisor, part, message):
    monkeypatch.setattr(base, "supervisor", lambda: supervisor)
    with pytest.raises(Refusal, match=message):
        backends.component(part)
