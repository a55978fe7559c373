# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Relay pods are deleted one after another under load: no request and no stream may be lost (N3).

    python tests/drills/relay_delete.py [--rounds 4]

It runs on the test bed `test` with the inventory of molecule/default (tests/run brings the bed up).
For comparison: LLMKube 0.10.0 reports that it serves again 8 s after its relay was deleted.
"""

from __future__ import annotations

import sys
import time

from drill_parts import fleet, options, report
from drill_parts.load import Load

bed = fleet.bed


def main() -> int:
    told = options.read(__doc__, rounds=(4, 1, "pods that are deleted"))
    fleet.build()
    wanted = fleet.replicas()
    fleet.wait_for_relays(wanted)
    problems: list[str] = []
    deleted: list[str] = []
    gone: list[float] = []
    with Load(fleet.service(), fleet.MODEL, told.short) as load:
        for number in range(told.rounds):
            load.wait_for(told.requests // (2 * told.rounds))
            name = fleet.relays()[number % wanted]["metadata"]["name"]
            deleted.append(name)
            began = time.monotonic()
            bed.kubectl("delete", "pod", name, "-n", fleet.NAMESPACE, "--wait=false")
            fleet.wait_for_relays(wanted)
            gone.append(round(time.monotonic() - began, 1))
            print(f"{name} was replaced after {gone[-1]} s", flush=True)
        load.wait_for(max(50, told.requests - load.outcome.total))
    warnings = [
        f"{item['reason']}: {item['message']}"
        for item in bed.get("events", "-n", fleet.NAMESPACE)["items"]
        if item["reason"] == "FailedPreStopHook" and item["involvedObject"]["name"] in deleted
    ]
    problems += sorted(set(warnings))
    return report.finish("relay-delete", load.outcome, problems, deleted=len(gone), seconds=gone)


if __name__ == "__main__":
    sys.exit(main())
