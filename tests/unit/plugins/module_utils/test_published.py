# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import http.server
import socket
import threading

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.tether.fleet.plugins.module_utils import published, survey


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/well" else 503)
        self.end_headers()

    def log_message(self, *_arguments):
        """Nothing: a test's output is its own."""


@pytest.fixture
def port():
    server = http.server.HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def nobodys_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_who_answers_as_declared(port):
    rows = [
        ("connects", port, "", 200),
        ("well", port, "/well", 200),
        ("ill", port, "/ill", 200),
        ("declared", port, "/ill", 503),
        ("nobody", nobodys_port(), "", 200),
    ]
    entries = [
        {
            "namespace": "tools",
            "name": name,
            "address": "127.0.0.1",
            "port": where,
            "health_path": path,
            "health_status": status,
        }
        for name, where, path, status in rows
    ]
    checked = ArgumentSpecValidator(published.ARGUMENT_SPEC).validate({"services": entries})
    assert not checked.error_messages
    plan = published.plan({}, published.observe(checked.validated_parameters))
    assert plan.facts == {"answering": ["tools/connects", "tools/declared", "tools/well"]}
    assert plan.steps == []
    found = survey.survey({"published": {"services": entries}})["published"]
    assert found["differs"] == "" and found["actions"] == [] and found["facts"] == plan.facts
