#!/usr/bin/python3
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Stands for a module's Python and notes the most memory that it had (``TETHER_BENCH_PEAK``)."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

done = subprocess.run([os.environ["TETHER_BENCH_PYTHON"], *sys.argv[1:]])
# KiB on Linux.
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
with open(os.environ["TETHER_BENCH_PEAK"], "a", encoding="ascii") as stream:
    stream.write(f"{peak}\n")
sys.exit(done.returncode)
