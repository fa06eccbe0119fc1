"""A proxy with faults, to stand between a client and a healthy S3 server.

Of every hundred requests five fail, evenly spaced: some are refused with ``503 SlowDown`` or ``500``, of some the answer is
lost after the server has done what was asked. For a while the proxy can also be away altogether: connections are refused.
"""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import urlsplit

EVERY = 20
_SLOW_DOWN = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)
_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}


class FaultyProxy:
    """Forwards to ``endpoint``; ``faults`` counts what it did, by kind."""

    def __init__(self, endpoint: str, every: int = EVERY) -> None:
        self.upstream = urlsplit(endpoint)
        self.every = every
        self.faults = {"refused": 0, "broken": 0, "lost": 0}
        self.requests = count(1)
        self._server = self._listen(0)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def _listen(self, port: int) -> ThreadingHTTPServer:
        proxy = self

        class Handler(_Handler):
            owner = proxy

        server = _Server(("127.0.0.1", port), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return server

    def fault(self) -> str | None:
        """What goes wrong with the next request, if anything."""
        number = next(self.requests)
        if number % self.every:
            return None
        kind = list(self.faults)[number // self.every % len(self.faults)]
        self.faults[kind] += 1
        return kind

    def leave(self) -> None:
        """Refuse connections from now on, and cut those that are open."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._server.open):
            _cut(connection)

    def come_back(self) -> None:
        """Listen again."""
        self._server = self._listen(self.port)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, *arguments: object) -> None:
        self.open: set[socket.socket] = set()
        super().__init__(*arguments)  # type: ignore[arg-type]

    def process_request(self, request, client_address) -> None:  # type: ignore[no-untyped-def]
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request) -> None:  # type: ignore[no-untyped-def]
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request, client_address) -> None:  # type: ignore[no-untyped-def]
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: FaultyProxy

    def setup(self) -> None:
        super().setup()
        self.upstream = http.client.HTTPConnection(self.owner.upstream.netloc, timeout=60)

    def finish(self) -> None:
        self.upstream.close()
        super().finish()

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.owner.fault()
        if fault in ("refused", "broken"):
            self.answer(503 if fault == "refused" else 500, [], _SLOW_DOWN if fault == "refused" else b"")
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP | {"expect"}}
        if body or self.command in ("PUT", "POST"):
            headers["Content-Length"] = str(len(body))
        self.upstream.request(self.command, self.path, body=body, headers=headers)
        response = self.upstream.getresponse()
        content = response.read()
        if fault == "lost":
            self.close_connection = True
            _cut(self.connection)
            return
        self.answer(response.status, response.getheaders(), content, response.getheader("Content-Length"))

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward

    def answer(self, status: int, headers: list[tuple[str, str]], content: bytes, length: str | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _HOP:
                self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", length if length and self.command == "HEAD" else str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _cut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


@contextmanager
def faulty_proxy(endpoint: str, every: int = EVERY) -> Iterator[FaultyProxy]:
    """A proxy that listens on loopback until the block ends."""
    proxy = FaultyProxy(endpoint, every)
    try:
        yield proxy
    finally:
        proxy.leave()
