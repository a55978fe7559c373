# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import hashlib
import os
import pwd

import pytest

from ansible_collections.tether.fleet.plugins.module_utils import survey
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Step

OWNER = pwd.getpwuid(os.getuid()).pw_name


def look(path, **more):
    entry = {"path": str(path), "owner": OWNER, **more}
    return survey.survey({"directories": {"files": [entry]}})["directories"]["differs"]


def test_what_is_as_declared_does_not_differ(tmp_path):
    tmp_path.chmod(0o750)
    assert look(tmp_path, state="directory", mode="0750") == ""


def test_what_differs_is_named_and_left_alone(tmp_path):
    tmp_path.chmod(0o750)
    assert look(tmp_path, state="directory", mode="0700") == f"update directory {tmp_path}"
    assert tmp_path.stat().st_mode & 0o777 == 0o750


def test_a_secret_is_compared_by_its_digest(tmp_path):
    path = tmp_path / "token"
    path.write_text("secret")
    path.chmod(0o440)
    digest = hashlib.sha256(b"secret").hexdigest()
    assert look(path, content_sha256=digest, mode="0440") == ""
    assert look(path, content_sha256="0" * 64, mode="0440") == f"update file {path}"
    assert look(path, content_sha256=digest, mode="0400") == f"update file {path}"


def test_files_without_content_are_compared_but_for_it(tmp_path):
    """The controller keeps the secret, and gets the digest to compare."""
    path = tmp_path / "token"
    path.write_text("secret")
    path.chmod(0o440)
    entry = {"path": str(path), "owner": OWNER, "mode": "0440"}
    found = survey.survey({"ingress_files": {"files": [entry]}})["ingress_files"]
    assert found["differs"] == ""
    assert found["facts"]["digests"] == {str(path): hashlib.sha256(b"secret").hexdigest()}
    path.chmod(0o444)
    found = survey.survey({"ingress_files": {"files": [dict(entry)]}})["ingress_files"]
    assert found["differs"] == f"update file {path}"


def test_a_refusal_is_a_difference():
    """The part's own role then says it in full."""
    assert "relative" in look("not/absolute", content="x")


def test_options_are_checked_as_the_module_would():
    found = survey.survey({"directories": {"files": [{"path": "/x", "colour": "red"}]}})
    assert "colour" in found["directories"]["differs"]


def test_a_part_that_cannot_be_looked_at_is_a_difference(monkeypatch):
    def broken(_desired):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(survey.files, "observe", broken)
    assert "Read-only" in look("/x", content="x")


@pytest.mark.parametrize(
    ("action", "kind", "interrupts"),
    [
        ("restart", "process", True),
        ("reload", "process", True),
        ("stop", "process", True),
        ("start", "process", False),
        # systemd reads its files again; no process notices.
        ("reload", "unit", False),
        ("update", "unit", False),
    ],
)
def test_what_costs_a_running_process_its_requests(monkeypatch, action, kind, interrupts):
    steps = [Step("update", "file", "/x"), Step(action, kind, "tether-ingress.service")]
    monkeypatch.setattr(survey.files, "plan", lambda _wanted, _found: Plan(steps))
    found = survey.survey({"directories": {"files": [{"path": "/x", "content": ""}]}})
    assert found["directories"]["interrupts"] == interrupts


def test_only_this_platform_counts(tmp_path):
    options = {"platforms": {"plan9-mips": []}}
    differs = survey.survey({"artifact": options})["artifact"]["differs"]
    assert "expected pins for this host's platform" in differs
