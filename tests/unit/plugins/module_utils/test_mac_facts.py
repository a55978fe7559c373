# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Facts of a Mac, from files and programs that are written here: there is no Mac."""

from __future__ import annotations

import plistlib
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from ansible_collections.tether.fleet.plugins.module_utils import mac_facts, preflight
from ansible_collections.tether.fleet.plugins.module_utils.daemon import commands
from ansible_collections.tether.fleet.plugins.plugin_utils import mac_notes


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Dict[str, str]:
    """What programs say, by their names."""
    answers: Dict[str, str] = {}

    def run(argv: List[str], timeout: float) -> Any:
        text = answers.get(Path(argv[0]).name)
        return subprocess.CompletedProcess(argv, 127 if text is None else 0, text or "", "")

    monkeypatch.setattr(commands, "run", run)
    for name in ("_VERSION", "_UPDATES"):
        monkeypatch.setattr(mac_facts, name, str(tmp_path / name))
    return answers


def test_nothing_that_can_be_read(said: Dict[str, str], tmp_path: Path) -> None:
    nothing = {"version": "", "filevault": None, "managed": None, "installs_updates": None}
    assert mac_facts.read() == nothing
    for name in ("_VERSION", "_UPDATES"):
        (tmp_path / name).write_bytes(b"bplist00 of no use")
    assert mac_facts.read() == nothing
    assert mac_notes.notes(nothing) == mac_notes.notes({}) == []


@pytest.mark.parametrize(
    ("filevault", "managed"),
    [
        ("FileVault is On.", "Enrolled via DEP: No\nMDM enrollment: Yes (User Approved)"),
        ("FileVault is On.\nDecryption in progress: Percent completed = 9", "MDM enrollment: Yes"),
        ("FileVault is Off.", "Enrolled via DEP: No\nMDM enrollment: No"),
    ],
)
def test_what_programs_say(said: Dict[str, str], filevault: str, managed: str) -> None:
    said.update(fdesetup=filevault, profiles=managed)
    found = mac_facts.read()
    assert found["filevault"] is ("On" in filevault)
    assert found["managed"] is ("Yes" in managed)
    assert ("FileVault is on" in " ".join(mac_notes.notes(found))) is found["filevault"]


@pytest.mark.parametrize(("value", "installs"), [(1, True), (True, True), (0, False), (None, None)])
def test_who_installs_updates(
    said: Dict[str, str], tmp_path: Path, value: Any, installs: Optional[bool]
) -> None:
    content = {} if value is None else {"AutomaticallyInstallMacOSUpdates": value}
    (tmp_path / "_UPDATES").write_bytes(plistlib.dumps(content, fmt=plistlib.FMT_BINARY))
    found = mac_facts.read()
    assert found["installs_updates"] is installs
    assert bool(mac_notes.notes(found)) is bool(installs)


@pytest.mark.parametrize(("version", "fit"), [("13.7.8", False), ("14.0", True), ("26.5.1", True)])
def test_the_oldest_macos(version: str, fit: bool) -> None:
    findings: List[Dict[str, str]] = []
    preflight._check_mac({"version": version}, findings)
    assert (not findings) is fit
