#!/usr/bin/python3
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A program such as a fleet's owner runs on hosts: says what it was asked, echoes WebSockets.

Usage: echo_service.py ADDRESS PORT
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import socket
import sys

MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455


class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        if self.headers.get("Upgrade", "").lower() == "websocket":
            self.websocket()
            return
        length = int(self.headers.get("Content-Length") or 0)
        text = json.dumps(
            {
                "host": socket.gethostname(),
                "method": self.command,
                "path": self.path,
                "headers": {key.lower(): value for key, value in self.headers.items()},
                "body": len(self.rfile.read(length)),
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - their names there

    def websocket(self) -> None:
        """One frame of at most 125 bytes there and back, again and again."""
        key = self.headers["Sec-WebSocket-Key"].encode()
        accepted = base64.b64encode(hashlib.sha1(key + MAGIC).digest()).decode()  # noqa: S324
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accepted)
        self.end_headers()
        while head := self.rfile.read(2):
            mask = self.rfile.read(4)
            data = self.rfile.read(head[1] & 0x7F)
            plain = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
            self.wfile.write(bytes([head[0], len(plain)]) + plain)
        self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    allow_reuse_address = True


if __name__ == "__main__":
    Server((sys.argv[1], int(sys.argv[2])), Echo).serve_forever()
