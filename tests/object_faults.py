"""A proxy before a real object store that does what stores and networks do on bad days."""

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_FULL = b"<Error><Code>XMinioStorageFull</Code><Message>Storage is full.</Message></Error>"
_BROKEN = b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"

_POURED = bytes(1 << 20)
_POURED_BYTES_MAX = 1 << 30

_TEXT = {"throttle": _SLOW_DOWN, "full": _FULL, "broken": _BROKEN}
_STATUS = {"throttle": 503, "full": 507, "broken": 500}


class Proxy(ThreadingHTTPServer):
    """Passes requests on, but for what `trouble` says; every nth one of the verbs it names."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, upstream_port: int):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream_port = upstream_port
        self.trouble = ""
        """throttle, full, broken, slow, cut, stall, announce or pour; empty: none."""
        self.verbs: tuple[str, ...] = ("GET", "PUT", "POST", "DELETE", "HEAD")
        self.every = 1
        self.numbers = count()
        self.released = threading.Event()
        """Ends what stalls."""
        self.poured_bytes = 0
        """The most that was sent behind an answer before the client went away."""
        self.authorization: str | None = None
        """Stands in the place of what clients send, where they speak for another service."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def log_message(self, *words: object) -> None:
        """Silent."""

    def _serve(self) -> None:
        proxy = self.server
        hit = self.command in proxy.verbs and next(proxy.numbers) % proxy.every == 0
        trouble = proxy.trouble if hit else ""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if trouble == "stall":
            proxy.released.wait(60)
            self.close_connection = True
        elif trouble == "cut":
            self.close_connection = True
        elif trouble in _STATUS:
            self._answer(_STATUS[trouble], {"Content-Type": "application/xml"}, _TEXT[trouble])
        else:
            if trouble == "slow":
                time.sleep(0.3)
            self._pass_on(body, trouble)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 - as http.server calls them

    def _pass_on(self, body: bytes, trouble: str) -> None:
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream_port, timeout=30)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            if self.server.authorization is not None:
                del self.headers["Authorization"]
                self.headers["Authorization"] = self.server.authorization
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body)
            answer = upstream.getresponse()
            data = answer.read()
        finally:
            upstream.close()
        kept = {name: value for name, value in answer.getheaders() if name.lower() not in _OWN_HEADERS}
        if trouble in ("announce", "pour") and self.command == "GET" and "?" not in self.path:
            self._lie(answer.status, kept, data, pours=trouble == "pour")
        else:
            self._answer(answer.status, kept, data, answer.getheader("Content-Length"))

    def _lie(self, status: int, headers: dict[str, str], data: bytes, *, pours: bool) -> None:
        """Announce more than any machine can hold; send what there is and close, or go on and on."""
        self.close_connection = True
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(10**14)}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        sent = 0
        while pours and sent < _POURED_BYTES_MAX:
            self.wfile.write(_POURED)
            sent += len(_POURED)
            self.server.poured_bytes = max(self.server.poured_bytes, sent)

    def _answer(self, status: int, headers: dict[str, str], data: bytes, length: str | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        said = length if self.command == "HEAD" and length is not None else str(len(data))
        self.send_header("Content-Length", said)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


_OWN_HEADERS = ("content-length", "transfer-encoding", "connection", "date", "server")


@contextmanager
def faulty(upstream_port: int) -> Iterator[Proxy]:
    """A proxy before the server on that port."""
    proxy = Proxy(upstream_port)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.released.set()
        proxy.shutdown()
        proxy.server_close()
