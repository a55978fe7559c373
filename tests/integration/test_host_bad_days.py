# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bad days of a process on a real host: how soon a death is told, and who had a hand in it."""

from __future__ import annotations

import pathlib
import sys
import time
from typing import Any, Dict, Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import host_modules as host

pytestmark = pytest.mark.skipif(
    not (host.SSH_CONFIG and host.HOST),
    reason="no host: set TETHER_TEST_SSH_CONFIG and TETHER_TEST_HOST",
)

UNIT = "tether-it-bad.service"
DROP_IN = "/etc/systemd/system/%s.d/slow.conf" % UNIT


def daemon(command: str, timeout: int) -> Dict[str, Any]:
    return {
        "name": UNIT[: -len(".service")],
        "argv": ["/bin/sh", "-c", command],
        "restart": {"policy": "no"},
        "health": {"port": 18126, "path": "/health", "timeout": timeout},
    }


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    host.install()
    yield
    host.ssh("rm -rf %s" % pathlib.PurePosixPath(DROP_IN).parent)
    assert not host.run("daemon", daemons=[], prune=["tether-it"]).failed
    host.ssh("rm -rf %s" % host.LIBRARY)


def test_a_death_is_told_within_a_second() -> None:
    """From the death of the process to the end of the task, its own last line in the message."""
    wanted = daemon("echo loading model; sleep 1; echo error: no such tensor >&2; exit 7", 300)
    refused = host.run("daemon", daemons=[wanted])
    told = time.time()  # the bed's hosts have the machine's own clock
    stamp = host.ssh("systemctl show -p ExecMainExitTimestampMonotonic --value " + UNIT)
    died = time.time() - time.monotonic() + int(stamp) / 1e6
    print("told %.2f s after the death" % (told - died))
    assert refused.failed
    assert "it ended with status 7" in refused["msg"]
    assert "error: no such tensor" in refused["msg"]
    # A second for the module; the rest for the way back over ssh on a busy machine.
    assert told - died < 3


def test_whoever_changed_the_unit_is_named() -> None:
    """An engine that never gets healthy because somebody's drop-in runs something else."""
    folder = pathlib.PurePosixPath(DROP_IN).parent
    host.ssh(
        "mkdir -p %s && printf '[Service]\\nExecStart=\\nExecStart=/bin/sleep 600\\n' > %s"
        % (folder, DROP_IN)
    )
    refused = host.run("daemon", daemons=[daemon("true", 2)])
    assert refused.failed
    assert "it is not healthy after 2 s: 127.0.0.1 port 18126 refuses connections" in refused["msg"]
    assert "its unit is changed by %s" % DROP_IN in refused["msg"]
    host.ssh("rm %s" % DROP_IN)
