# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""site.yml again and again under load: nothing is lost, nothing written to the cluster (N12).

    python tests/drills/site_loop.py [--runs 10]

It runs on the test bed `test` with the inventory of molecule/default (tests/run brings the bed up).
Every other run goes through all roles (`survey_trust=false`): it must not touch what is as declared
either.
"""

from __future__ import annotations

import sys
import time

from drill_parts import fleet, options, report
from drill_parts.load import Load

bed = fleet.bed


def main() -> int:
    told = options.read(__doc__, runs=(10, 2, "runs of site.yml"))
    fleet.build()
    problems: list[str] = []
    seconds: list[float] = []
    fleet.wait_for_relays(fleet.replicas())
    begin = bed.audit_size()
    with Load(fleet.service(), fleet.MODEL, told.short) as load:
        for number in range(told.runs):
            began = time.monotonic()
            done = bed.site(*(("-e", "survey_trust=false") if number % 2 else ()))
            seconds.append(round(time.monotonic() - began, 1))
            print(f"run {number + 1}: {seconds[-1]} s, {load.outcome.total} requests", flush=True)
            if done.returncode:
                problems.append(f"run {number + 1} failed:\n{done.stdout[-2000:]}")
        load.wait_for(max(0, told.requests - load.outcome.total))
    problems += [
        f"a write to the cluster: {line}" for line in bed.writes(bed.requests_since(begin))
    ]
    return report.finish("site-loop", load.outcome, problems, seconds=seconds)


if __name__ == "__main__":
    sys.exit(main())
