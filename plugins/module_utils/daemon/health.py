# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Asks a process how it is. Standard library only."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from typing import Any, Dict, Optional, Tuple


class _Reader(io.RawIOBase):
    """Reads from a socket until a deadline.

    A time-out of the socket itself holds for each read alone: a process that sends one byte a
    second would be listened to for ever.
    """

    def __init__(self, sock: socket.socket, end: float) -> None:
        self._sock, self._end = sock, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_left(self._end))
        return self._sock.recv_into(buffer)


class _Wire:
    """As much of a socket as http.client uses; whoever opened the socket closes it."""

    def __init__(self, sock: socket.socket, end: float) -> None:
        self._sock, self._end = sock, end

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(_left(self._end))
        self._sock.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock, self._end))

    def close(self) -> None:
        """Nothing: the answer is read after http.client has closed its side."""


def _left(end: float) -> float:
    """Seconds until a moment.

    :raises TimeoutError: when it has passed
    """
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _open(health: Dict[str, Any], end: float) -> socket.socket:
    """A connection to the process, TLS and all."""
    if health.get("unix"):
        return _connected(socket.AF_UNIX, health["unix"], end)
    sock = _connected_by_name(health["address"], health["port"], end)
    if not health.get("tls"):
        return sock
    try:
        context = _context(health.get("ca"))
        sock.settimeout(_left(end))  # for the whole handshake: CPython counts it down
        name = health.get("server_name") or health["address"]
        return context.wrap_socket(sock, server_hostname=name)
    except BaseException:
        sock.close()
        raise


def _connected_by_name(name: str, port: int, end: float) -> socket.socket:
    """A connection to the first address of a name that takes one."""
    failure: OSError = OSError("no address of %s" % name)
    for family, _type, _protocol, _name, address in socket.getaddrinfo(
        name, port, type=socket.SOCK_STREAM
    ):
        try:
            return _connected(family, address, end)
        except OSError as error:
            failure = error
    raise failure


def _connected(family: int, address: Any, end: float) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(_left(end))
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _get(sock: socket.socket, health: Dict[str, Any], end: float) -> Tuple[int, str]:
    """Status of the answer to GET ``path``, and the beginning of what it says."""
    host = "localhost" if health.get("unix") else health["address"]
    connection = http.client.HTTPConnection(host, health.get("port"))
    connection.sock = _Wire(sock, end)
    headers = {str(k): str(v) for k, v in (health.get("headers") or {}).items()}
    connection.request("GET", health["path"], headers=headers)
    response = connection.getresponse()
    body = response.read(300).decode("utf-8", "replace").strip()
    return response.status, body[:200] or response.reason


def probe(health: Dict[str, Any], timeout: float = 2.0) -> str:
    """One look at a process; returns "" when it is well, else what was found.

    :param health: as in ``base.ENTRY_SPEC``; without ``path`` a connection is enough
    :param timeout: seconds that all of it may take, from the connection to the answer's end
    """
    end = time.monotonic() + timeout
    if health.get("unix"):
        where = "unix socket %s" % health["unix"]
    else:
        where = "%s port %d" % (health["address"], health["port"])
    try:
        with _open(health, end) as sock:
            if not health.get("path"):
                return ""
            status, said = _get(sock, health, end)
        if status == health["status"]:
            return ""
        return "%s answered GET %s with status %d (%s)" % (where, health["path"], status, said)
    except FileNotFoundError:
        return "%s does not exist yet" % where
    except ConnectionRefusedError:
        return "%s refuses connections" % where
    except (socket.timeout, TimeoutError):
        return "%s did not answer within %.0f s" % (where, timeout)
    except (OSError, http.client.HTTPException) as error:
        return "%s: %s" % (where, error or type(error).__name__)


def _context(ca: Optional[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca:
        context.load_verify_locations(cafile=ca)
    else:
        # A look at a process of this very host, over loopback: nothing secret is sent, and who
        # holds the port is checked by the socket's owner instead.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
