# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import signal

import launchd_samples as samples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.tether.fleet.plugins.module_utils.daemon import launchd_job


def test_a_job_that_runs():
    job = launchd_job.parse(samples.job())
    assert job.path == "/Library/LaunchDaemons/tether-x.plist"
    assert (job.state, job.pid, job.runs, job.exit_timeout) == ("running", 4242, 3, 30)
    assert job.arguments == ["/opt/tether/x/current/x", "--port", "8080"]
    assert job.environment["TETHER_DIGEST"] == "0123"
    assert job.environment["XPC_SERVICE_NAME"] == "tether-x"
    assert (job.ended, job.exit_status) == ("", None)


def test_blocks_do_not_speak_for_the_job():
    """Coalitions have a state and a pid too, and here nothing else has."""
    text = samples.job(pid=0).replace("\tstate = not running\n", "")
    job = launchd_job.parse(text)
    assert (job.state, job.pid) == ("", 0)


@pytest.mark.parametrize(
    ("ended", "status", "words"),
    [
        ("(never exited)", None, ""),
        ("0", 0, "it ended with status 0"),
        ("7", 7, "it ended with status 7"),
        ("78: EX_CONFIG", 78, "it ended with status 78 (EX_CONFIG), which is launchd's own"),
        ("last terminating signal = Killed: 9", None, "it was ended by SIGKILL"),
        ("last terminating signal = Terminated: 15", None, "it was ended by SIGTERM"),
        ("last terminating signal = Odd: 999", None, "it was ended by the signal Odd: 999"),
        ("last exit reason = OS_REASON_CODESIGNING", None, "its code signature was not accepted"),
        ("last exit reason = JETSAM_REASON_MEMORY_HIGHWATER", None, "macOS ended it for memory"),
        ("last exit reason = OS_REASON_NEW", None, "it was ended for OS_REASON_NEW"),
        ("something else = 1", None, ""),
    ],
)
def test_how_a_process_ended(ended, status, words):
    job = launchd_job.parse(samples.job(ended=ended))
    assert job.exit_status == status
    assert words in job.ended
    assert bool(words) == bool(job.ended)


def test_a_signal_speaks_before_a_status():
    text = samples.job(ended="0\n\tlast terminating signal = Abort trap: %d" % signal.SIGABRT)
    assert launchd_job.parse(text).ended == "it was ended by SIGABRT"


HOSTILE = ["}", "a = {", "state = running", "pid = 1", "", " ", "\t}", "\tx", "a => b", "=> {", "{"]


def test_words_are_words_whatever_they_look_like():
    environment = ["A => b => c", "B => }", "C => ", "D => x = {"]
    text = samples.job(pid=7, arguments=["/bin/x", *HOSTILE], environment=environment)
    job = launchd_job.parse(text)
    assert job.arguments == ["/bin/x", *HOSTILE]
    assert (job.pid, job.state) == (7, "running")
    found = job.environment
    assert [found[key] for key in "ABCD"] == ["b => c", "}", "", "x = {"]


WORD = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=20)


@given(st.lists(WORD, min_size=1), st.integers(0, 10**9), st.lists(WORD))
def test_round_trip(arguments, pid, values):
    environment = ["V%d => %s" % item for item in enumerate(values)]
    job = launchd_job.parse(samples.job(pid=pid, arguments=arguments, environment=environment))
    assert job.arguments == arguments
    assert job.pid == pid
    for index, value in enumerate(values):
        assert job.environment["V%d" % index] == value


LINE = st.lists(
    st.sampled_from(["\t", " ", "=", "=>", "{", "}", "pid", "runs", "x", "9" * 30, "environment"])
    | WORD,
    max_size=8,
).map("".join)


@given(st.lists(LINE).map("\n".join))
def test_no_text_is_too_odd(text):
    job = launchd_job.parse(text)
    assert isinstance(job.ended, str)
    assert job.pid >= 0
    assert isinstance(job.environment, dict)
    assert all(isinstance(value, bool) for value in launchd_job.overrides(text).values())


@pytest.mark.parametrize("text", [samples.DISABLED, samples.DISABLED_BEFORE])
def test_overrides(text):
    found = launchd_job.overrides(text)
    assert found["tether-off"] is True
    assert found["tether-on"] is False
    assert "tether-x" not in found
