# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import http.server
import threading
import time

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.daemon import systemd_watch as watch

RUNNING = {"ActiveState": "active", "SubState": "running", "InvocationID": "new", "MainPID": "7"}


def entry(**keys):
    return {"name": "tether-x", "type": "exec", "stop_timeout": 30, "health": None, **keys}


def follow(looks, before="old", action="restart", **keys):
    """The verdict after a series of (seconds, properties)."""
    one = watch.Watch(entry(**keys), before, action)
    began = one._began
    for seconds, item in looks:
        one.look(item, began + seconds)
        if one.verdict is not None:
            break
    one.stop()
    return one


def test_without_a_probe_it_must_stay_a_second():
    assert follow([(0.1, RUNNING), (0.9, RUNNING)]).verdict is None
    assert follow([(0.1, RUNNING), (1.2, RUNNING)]).verdict == ""


def test_what_ran_before_is_not_what_is_waited_for():
    old = {**RUNNING, "InvocationID": "old", "Job": "12"}
    assert follow([(0.1, old), (5, old)]).verdict is None
    one = follow([(0.1, old), (5, old), (6, RUNNING), (7.5, RUNNING)])
    assert (one.verdict, one.invocation) == ("", "new")


def test_a_running_one_that_nothing_was_done_to_needs_no_waiting():
    assert follow([(0.0, RUNNING)], before=None, action=None).verdict == ""


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ({"ActiveState": "failed", "ExecMainCode": "1", "ExecMainStatus": "3"}, "status 3"),
        ({"ActiveState": "failed", "ExecMainCode": "1", "ExecMainStatus": "203"}, "executed"),
        (
            {
                "ActiveState": "activating",
                "SubState": "auto-restart",
                "ExecMainCode": "2",
                "ExecMainStatus": "9",
            },
            "SIGKILL",
        ),
        ({"ActiveState": "failed", "Result": "oom-kill"}, "oom-kill"),
        ({"InvocationID": "newer"}, "started again by systemd"),
    ],
)
def test_a_death_is_seen_at_the_next_look(end, message):
    one = follow([(0.1, RUNNING), (0.2, {**RUNNING, **end})])
    assert message in one.verdict
    assert one.invocation == "new"


def test_a_job_that_never_begins_ends_the_wait():
    none = {"ActiveState": "failed", "InvocationID": "old", "Job": "", "Result": "resources"}
    one = follow([(0.1, none), (0.6, none)])
    assert "could not be started" in one.verdict


@pytest.fixture
def server():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/health" else 503)
            self.end_headers()
            self.wfile.write(b"loading model")

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield serving.server_port
        serving.shutdown()


def probe(port, path="/health", timeout=1):
    return {
        "unix": None,
        "address": "127.0.0.1",
        "port": port,
        "path": path,
        "status": 200,
        "timeout": timeout,
    }


def judged(health):
    """The verdict once the probe has had an answer and the time is over."""
    one = watch.Watch(entry(health=health), "old", "restart")
    one.look(RUNNING, one._began + 0.1)
    for _look in range(3000):
        if one._probe.answer is not None:
            break
        time.sleep(0.01)
    one.look(RUNNING, one._began + 5)
    one.stop()
    return one.verdict


def test_another_process_that_answers_in_its_place_is_no_health(server):
    verdict = judged(probe(server))
    assert verdict.startswith("another process answers in its place: process ")


def test_never_healthy_says_what_was_answered(server):
    verdict = judged(probe(server, "/other"))
    assert "not healthy after 1 s" in verdict
    assert "status 503 (loading model)" in verdict
    assert "is taken by process" in verdict
