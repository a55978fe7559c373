# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import subprocess

import launchd_samples as samples
import pytest

from ansible_collections.tether.fleet.plugins.module_utils.daemon import commands, launchctl
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal


@pytest.fixture
def answer(monkeypatch):
    """launchctl, with one answer to everything: there is no Mac, and what is read is its status."""

    def set_to(code, out="", err=""):
        def run(argv, timeout, **environment):
            return subprocess.CompletedProcess(argv, code, out, err)

        monkeypatch.setattr(commands, "run", run)

    return set_to


STATUSES = (3, 5, 36, 37, 64, 112, 113, 119, 122, 125, 134, 155)


@pytest.mark.parametrize("code", STATUSES)
def test_every_known_status_has_words_and_a_way_on(answer, code):
    answer(code, err="Bootstrap failed: %d: Something" % code)
    found = launchctl.call("bootstrap", "system", "/x.plist")
    said = str(launchctl.refusal(found))
    assert "launchctl bootstrap system /x.plist: found " in said
    assert "status %d" % code in said
    assert "expected " in said
    assert len(said.rpartition("expected ")[2].split(". ", 1)[1]) > 20
    assert "status %d" % code in launchctl.in_words(found)


def test_a_status_of_tomorrow(answer):
    answer(161, err="Bootstrap failed: 161: Not allowed\nmore")
    said = launchctl.in_words(launchctl.call("bootstrap", "system", "/x.plist"))
    assert "status 161: Bootstrap failed: 161: Not allowed" in said
    assert "launchctl error 161" in said


def test_a_label_that_is_loaded(answer):
    answer(0, samples.job())
    assert launchctl.look("system/tether-x").pid == 4242


def test_only_113_is_gone(answer):
    answer(113, err='Bad request.\nCould not find service "x" in domain for system')
    assert launchctl.look("system/tether-x") is None
    for code in (1, 5, 64, 112, 124, 125, 127):
        answer(code)
        with pytest.raises(Refusal):
            launchctl.look("system/tether-x")


@pytest.mark.parametrize("code", [112, 125])
def test_no_session_over_ssh(answer, code):
    answer(code)
    with pytest.raises(launchctl.NoSessionError):
        launchctl.look("gui/501/tether-x")
    assert launchctl.disabled("gui/501") == {}


def test_the_systems_overrides_must_be_readable(answer):
    answer(0, samples.DISABLED)
    assert launchctl.disabled("system")["tether-off"] is True
    answer(1)
    with pytest.raises(Refusal, match="print-disabled system"):
        launchctl.disabled("system")
