# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Killed anywhere: site.yml ends by SIGKILL at sampled places; the next run finishes the job (U4).

A fleet is built from nothing. The run is killed at the start of a task, or some time into one that
takes long, with all its workers and ssh clients; what it had started on a host may go on, as after
a power cut of the controller. Then one whole run has to succeed, a check after it has to find
nothing, and nothing half-installed, no temporary file and no lock may be left.

    python tests/drills/killed.py            # every third task, and inside each long one
    python tests/drills/killed.py --short    # a few places, one after the other on one fleet

It runs on the test bed `test` with the inventory of molecule/default (tests/run brings the bed up).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "molecule" / "default" / "tests")]

import bed  # noqa: E402

# Roles whose work takes long: the run is killed inside it, so many seconds after it began.
LONG = {
    "Fetch and verify what the fleet needs": (0.2, 1.0),
    "Install the pinned artifacts": (0.3, 1.5, 3.0),
    "Put the models in place": (0.5, 1.5),
    "Give the host its certificate": (0.5, 1.2),
    "Run the engines": (0.5, 1.5),
    "Run the ingress": (0.5, 1.0),
    "Serve every model at its Service": (1.0, 2.5, 6.0),
}
# Places of the short form: the task's name, and seconds into it (None: at its start).
SHORT = (
    ("Fetch and verify what the fleet needs", 0.5),
    ("Install the pinned artifacts", 1.0),
    ("Give the host its certificate", 0.8),
    ("Run the engines", 0.7),
    ("Serve every model at its Service", 1.5),
)
WIPE = r"""
for unit in $(ls /etc/systemd/system | grep '^tether-.*\.service$'); do
    systemctl disable --now --quiet "$unit"; rm -f "/etc/systemd/system/$unit"
done
systemctl daemon-reload; systemctl reset-failed 'tether-*' 2>/dev/null
nft delete table inet tether 2>/dev/null
for name in $(getent passwd | cut -d: -f1 | grep '^tether-'); do userdel "$name"; done
for name in $(getent group | cut -d: -f1 | grep '^tether-'); do groupdel "$name"; done
rm -rf /opt/tether /etc/tether /var/lib/tether /run/tether
exit 0
"""
# What an interrupted installation would leave on a host: temporary names, transfers, empty
# versions.
LEFTOVERS = r"""
find /opt/tether /etc/tether /var/lib/tether /etc/systemd/system \
    '(' -name '.tether-*' ! -name .tether-manifest.json ')' -o -name '.tmp-*' \
    -o -path '*/incoming/*' 2>/dev/null
for folder in /opt/tether/*/*/; do
    [ -e "$folder" ] && [ -z "$(ls -A "$folder")" ] && echo "empty $folder"
done
exit 0
"""


class Fleet:
    """The bed's fleet, and the controller's own folders, which every round starts without."""

    def __init__(self, folder: Path) -> None:
        self.depot, self.tasks = folder / "depot", folder / "tasks"

    def wipe(self) -> None:
        """Back to a fleet that nothing was ever done to."""
        for host in ("gpu1", "gpu2"):
            bed.ssh(host, WIPE)
        namespaces = ("team-a", "team-b", "tether-fleet")
        bed.kubectl("delete", "namespace", *namespaces, "--ignore-not-found", timeout=180)
        shutil.rmtree(bed.STATE / "ca", ignore_errors=True)
        shutil.rmtree(self.depot, ignore_errors=True)

    def run(
        self, *arguments: str, at: int | str = 0, after: float | None = None
    ) -> tuple[int, str]:
        """site.yml, killed at the task of that number or name; its exit status and output."""
        self.tasks.write_text("")
        environment = dict(
            os.environ,
            ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"),
            ANSIBLE_CALLBACK_PLUGINS=str(ROOT / "tests" / "callbacks"),
            ANSIBLE_CALLBACKS_ENABLED="kill_at",
            TETHER_TASKS=str(self.tasks),
            TETHER_KILL_AT=str(at),
            TETHER_KILL_AFTER="" if after is None else str(after),
        )
        done = subprocess.run(
            [
                str(Path(sys.executable).with_name("ansible-playbook")),
                str(ROOT / "playbooks" / "site.yml"),
                "-i",
                str(bed.SCENARIO / "inventory"),
                "-e",
                f"fleet_depot_dir={self.depot}",
                *arguments,
            ],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
            timeout=900,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def sees_leftovers(self) -> bool:
        """Whether what an interrupted installation leaves would be found: a planted one is."""
        plant = "/opt/tether/caddy/.tmp-planted"
        bed.ssh("gpu1", f"mkdir {plant}")
        seen = plant in bed.ssh("gpu1", LEFTOVERS).stdout
        bed.ssh("gpu1", f"rmdir {plant}")
        return seen

    def names(self) -> list[str]:
        """The tasks of the last run, in their order."""
        return self.tasks.read_text().splitlines()

    def problems(self) -> list[str]:
        """What is not as it should be after the run that followed: empty when all is well."""
        found = []
        status, output = self.run("--check")
        if status:
            found.append(f"the check failed:\n{output[-3000:]}")
        elif [line for line in output.splitlines() if line.startswith("changed:")]:
            found.append(f"the check would change something:\n{output[-3000:]}")
        for host in ("gpu1", "gpu2"):
            left = bed.ssh(host, LEFTOVERS).stdout.split("\n")
            found += [f"{host}: left over: {line}" for line in left if line]
        lease = bed.get("lease", "-n", "tether-fleet")["items"]
        held = [item["spec"].get("holderIdentity") for item in lease]
        found += [f"the Lease is held by {name}" for name in held if name]
        left = [path for path in self.depot.glob("partial/*") if path.suffix != ".lock"]
        left += (bed.STATE).glob(".ca-*")
        found += [f"controller: left over: {path}" for path in left]
        return found


def place(names: list[str], part: str) -> int:
    """The number of the first task of that name, whatever its role; 0 when there is none."""
    own = [name.rpartition(" : ")[2] for name in names]
    return own.index(part) + 1 if part in own else 0


def finish(fleet: Fleet, where: str) -> list[str]:
    """One whole run after a kill; what is wrong after it."""
    status, output = fleet.run()
    if status:
        return [f"{where}: the next run failed:\n{output[-4000:]}"]
    return [f"{where}: {problem}" for problem in fleet.problems()]


def short(fleet: Fleet) -> tuple[list[str], int]:
    """Several kills in a row on one fleet: each run goes on where the one before it ended."""
    fleet.wipe()
    kills = 0
    for part, after in SHORT:
        status, _output = fleet.run(at=part, after=after)
        kills += status == -9
        print(f"{'killed' if status == -9 else 'ended'} at {part!r}, {after or 0} s in", flush=True)
    if kills < len(SHORT) - 1:
        return [f"only {kills} of {len(SHORT)} runs were killed: too few to show anything"], kills
    return finish(fleet, "after all kills"), kills


def long(fleet: Fleet, first: int) -> tuple[list[str], int]:
    """Each place on a fleet of its own, from the ``first`` on."""
    fleet.wipe()
    status, output = fleet.run()
    if status:
        return [f"the fleet cannot be built at all:\n{output[-4000:]}"], 0
    names = fleet.names()
    places: list[tuple[int, float | None]] = [(number, None) for number in range(2, len(names), 3)]
    for part, moments in LONG.items():
        places += [(place(names, part), moment) for moment in moments if place(names, part)]
    places = places[first - 1 :]
    problems, kills = [], 0
    for number, after in places:
        where = f"task {number} ({names[number - 1]}), {after or 0} s in"
        fleet.wipe()
        status, _output = fleet.run(at=number, after=after)
        kills += status == -9
        found = finish(fleet, where)
        problems += found
        print(f"{'FAILED' if found else 'ok'}  {where}: exit status {status}", flush=True)
    # A moment that lies behind the end of a task which was quick this time kills nothing.
    if kills < len(places) - len(LONG):
        problems.append(f"only {kills} of {len(places)} runs were killed: too few")
    return problems, kills


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="a few places, for make test")
    parser.add_argument(
        "--first", type=int, default=1, help="go on at this place of the long form, for one cut off"
    )
    options = parser.parse_args()
    began = time.monotonic()
    bed.bed("up", timeout=900)
    bed.run(str(ROOT / "tests/models/prepare.sh"), bed.NAME, sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder))
        problems, kills = short(fleet) if options.short else long(fleet, options.first)
        if not fleet.sees_leftovers():
            problems.append("a leftover that was planted is not seen: the drill is blind")
        # Whatever uses the bed next has it as it was.
        fleet.wipe()
    for problem in problems:
        print(f"- {problem}")
    print(f"{kills} runs were killed, {len(problems)} problems, {time.monotonic() - began:.0f} s")
    figures = {
        "kills": kills,
        "problems": len(problems),
        "seconds": round(time.monotonic() - began),
    }
    print(json.dumps({"name": "killed", "ok": not problems, "figures": figures}))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
