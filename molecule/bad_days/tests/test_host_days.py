# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bad days of hosts that served before: each host has its own, all in one run."""

from __future__ import annotations

import re

import pytest
from bed import STATE, ssh
from days import Day, good_run, served

# The hosts share the machine's clock and have one Python only. So what the modules read of either
# is changed there, in the file that Debian's Python reads at its start; all else is as ever.
SITE = "/etc/python3.11/sitecustomize.py"
ODD = f"""cp {SITE} /root/sitecustomize.py
cat >> {SITE} <<'END'
import sys, time
_real = time.time
time.time = lambda: _real() + 3600
_info = type(sys.version_info)
class _Old(tuple):
    major, minor, micro, releaselevel, serial = 3, 8, 19, "final", 0
sys.version_info = _Old((3, 8, 19, "final", 0))
END
"""
READ_ONLY = """
mount --bind /var/lib/tether /var/lib/tether && mount -o remount,ro,bind /var/lib/tether
"""
SUDOERS = "/etc/sudoers.d/bed"


@pytest.fixture(scope="module")
def day():
    ssh("gpu1", "systemctl stop tether-ingress"
        " && systemd-run --quiet --unit=squatter python3 -m http.server 9443")  # fmt: skip
    ssh("gpu2", READ_ONLY)
    ssh("gpu3", f"sed -i 's/NOPASSWD: //' {SUDOERS}")  # with a password, which it has not
    ssh("gpu4", ODD)
    return Day()


def test_the_run_ends_red_and_changes_none_of_these_hosts(day):
    assert day.status != 0
    for host in ("gpu1", "gpu2", "gpu3", "gpu4"):
        assert day.row(host)["failed"] == 1, host
        assert day.row(host)["changed"] == 0, host


def test_a_port_that_is_taken(day):
    day.says("port 9443: found process", "(python3) of unit squatter.service listening on it",
             "Stop that program or move it to another port")  # fmt: skip


def test_a_read_only_file_system(day):
    day.says("file system at /var/lib/tether: found it read-only, with /var/lib/tether on it",
             "mount -o remount,rw /var/lib/tether")  # fmt: skip


def test_sudo_without_rights(day):
    day.says("sudo", "/etc/sudoers.d", "--ask-become-pass")


def test_a_clock_an_hour_off_and_an_old_python_at_once(day):
    day.says(
        "2 problems; nothing was changed",
        "timedatectl set-ntp true",
        "python: found 3.8.19 at /usr/bin/python3",
        "expected 3.9 or newer",
    )
    # A busy controller's word arrives some seconds later.
    assert re.search(r"clock: found .* on the controller \(\+36\d\d s\)", day.text)


def test_the_models_of_the_others_go_on(day):
    assert served("away", "away")
    assert served("dark", "dark")


def test_the_next_good_run_finishes_the_job():
    ssh("gpu1", "systemctl stop squatter")
    ssh("gpu2", "umount /var/lib/tether")
    # Nobody may become root there any more: mended from outside, as at the machine's own console.
    root = STATE / "hosts" / "gpu3" / "root"
    rule = root / SUDOERS[1:]
    rule.write_text(rule.read_text().replace("ALL=(ALL) ", "ALL=(ALL) NOPASSWD: "))
    ssh("gpu4", f"mv /root/sitecustomize.py {SITE}")
    good_run()
    assert served("steady", "steady")


def test_a_full_host_that_serves_still_gets_its_tokens_and_another_gets_no_program():
    """More room is asked for than any disk has."""
    token = "/etc/tether/ingress/tokens/steady/current"
    before = ssh("gpu1", f"sha256sum {token}").stdout
    ssh("gpu1", f"rm {token}")
    ssh("gpu2", "rm /opt/tether/caddy/current/.tether-manifest.json")
    day = Day("-e", f'{{"preflight_space": [{{"path": "/opt/tether", "bytes": {10**16}}}]}}')
    assert day.status != 0
    assert day.row("gpu1")["failed"] == 0
    assert ssh("gpu1", f"sha256sum {token}").stdout == before
    assert (day.row("gpu2")["failed"], day.row("gpu2")["changed"]) == (1, 0)
    day.says("1 problem; nothing was changed", "disk space at /opt/tether: found", "Free ")
    good_run()
