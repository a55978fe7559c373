# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Emulated /usr/sbin/lsof: who has a TCP port, and who has unix sockets, as fields.

lsof(8), "OUTPUT FOR OTHER PROGRAMS"; its status is 1 where there is nothing to show.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .. import linux_tables
from ..program import NotEmulatedError, is_root

# -w: no warnings; -n, -P: numbers; +c 0: whole names; -F: these fields.
_OPTIONS = ["-w", "-n", "-P", "+c", "0", "-F", "pcftn"]
_PORT = re.compile(r"-iTCP(?::([0-9]{1,5}))?")
_STATES = (["-sTCP:LISTEN"], ["-sTCP:ESTABLISHED"])


def main(argv: Sequence[str]) -> int:
    """Print the fields of those sockets."""
    options, which = list(argv[: len(_OPTIONS)]), list(argv[len(_OPTIONS) :])
    # -a -p: of these processes alone.
    pids = [int(pid) for pid in which[2].split(",")] if which[:2] == ["-a", "-p"] else []
    which = which[3:] if pids else which
    port = _PORT.fullmatch(which[0]) if which else None
    wanted = {}
    if options != _OPTIONS or not is_root():
        raise NotEmulatedError("lsof %s" % " ".join(argv))
    linux_tables.enter()
    if port and which[1:] in _STATES:
        number = int(port[1]) if port[1] else None
        wanted = linux_tables.tcp(number, listening=which[1] == "-sTCP:LISTEN")
    elif which == ["-U"]:
        wanted = {inode: ("unix", path) for inode, path in linux_tables.unix_sockets().items()}
    else:
        raise NotEmulatedError("lsof %s" % " ".join(argv))
    shown = False
    for one in linux_tables.processes():
        held = [(number, inode) for number, inode in linux_tables.sockets(one.pid)]
        held = [(number, inode) for number, inode in held if inode in wanted]
        if pids and one.pid not in pids:
            continue
        if held:
            print(f"p{one.pid}\nc{one.name}")
            shown = True
        for number, inode in held:
            kind, name = wanted[inode]
            # A Mac's socket without a path is shown with its peer.
            print(f"f{number}\nt{kind}\nn{name or '->0x0'}")
    return 0 if shown else 1
