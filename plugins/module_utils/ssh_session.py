# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The SSH session that a module runs over: the one way back in that must not be cut."""

from __future__ import annotations

import ipaddress
import os
import platform
from typing import Any, Dict, Optional

from ansible_collections.tether.fleet.plugins.module_utils.daemon import darwin_processes


def find_session(given: Optional[str] = None) -> Optional[Dict[str, Any]]:
    """``{"peer": address, "port": local port}`` of the session, None when it is none.

    :param given: the text of SSH_CONNECTION, when the caller knows it

    sudo drops SSH_CONNECTION; the shells above it in the process tree still have it.

    :raises Refusal: when a Mac's connections cannot be read: none would look like no session
    """
    if given:
        return parse(given)
    own = os.environ.get("SSH_CONNECTION")
    if own:
        return parse(own)
    if platform.system() == "Darwin":
        return _on_a_mac()
    pid = os.getppid()
    for _step in range(64):
        if pid <= 1:
            return None
        found = parse(_variable(pid, b"SSH_CONNECTION"))
        if found is not None:
            return found
        pid = _parent(pid)
    return None


def parse(text: str) -> Optional[Dict[str, Any]]:
    """``client-address client-port server-address server-port``, as sshd writes it."""
    words = text.split()
    if len(words) != 4 or not words[3].isdigit() or not 0 < int(words[3]) < 65536:
        return None
    try:
        peer = ipaddress.ip_address(words[0].split("%")[0])
    except ValueError:
        return None
    mapped = peer.ipv4_mapped if isinstance(peer, ipaddress.IPv6Address) else None
    return {"peer": str(mapped or peer), "port": int(words[3])}


def _on_a_mac() -> Optional[Dict[str, Any]]:
    """The connection that an sshd above this process holds.

    macOS has no /proc, and ps shows no other account's variables of programs that it protects. The
    farthest sshd that holds a connection is the session's own: nearer ones, which run as the
    account, hold those as well that ssh forwards. Its name is sshd, or sshd-session since OpenSSH
    9.8 (release notes).
    """
    line = darwin_processes.lineage(os.getpid(), darwin_processes.parents())
    held = darwin_processes.connections_of(line)
    for pid in reversed(line):
        for one, socket in held:
            if one.pid == pid and one.command.startswith("sshd"):
                return {"peer": str(socket.peer), "port": socket.port}
    return None


def _variable(pid: int, name: bytes) -> str:
    try:
        with open("/proc/%d/environ" % pid, "rb") as stream:
            for word in stream.read().split(b"\0"):
                key, _sign, value = word.partition(b"=")
                if key == name:
                    return value.decode("ascii", "replace")
    except OSError:
        pass
    return ""


def _parent(pid: int) -> int:
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as stream:
            # The second field is the name in brackets, which may hold anything.
            return int(stream.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
