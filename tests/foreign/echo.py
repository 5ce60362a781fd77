"""A session for tests of gateways: a page that tells which run of the program it is, and a WebSocket that sends back what it gets.

usage: echo.py IP PORT
"""

import base64
import hashlib
import os
import socketserver
import sys

# In a pid namespace every program may have the same pid.
RUN = os.urandom(8).hex()


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        line = self.rfile.readline().decode()
        if not line.strip():
            return
        path = line.split()[1]
        headers = {}
        while header := self.rfile.readline().decode().strip():
            name, _, value = header.partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("upgrade", "").lower() == "websocket":
            self.websocket(headers["sec-websocket-key"])
        else:
            host = headers.get("host", "")
            body = f"run {RUN} path {path} host {host}\n".encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            self.wfile.write(head.encode() + body)

    def websocket(self, key):
        magic = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1((key + magic).encode()).digest()).decode()
        self.wfile.write(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
        )
        # Short messages of text, each in one frame.
        while head := self.rfile.read(2):
            length, mask = head[1] & 0x7F, self.rfile.read(4)
            text = bytes(it ^ mask[at % 4] for at, it in enumerate(self.rfile.read(length)))
            answer = f"{RUN} {text.decode()}".encode()
            self.wfile.write(bytes([0x81, len(answer)]) + answer)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


with Server((sys.argv[1], int(sys.argv[2])), Handler) as server:
    server.serve_forever()
