"""A small HTTP server in a thread: answers by path, remembers what it was asked."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Web:
    """`answers`: path → (status, headers, body). `asked`: (method, path, headers, body)."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.let_go = threading.Event()
        self.address = ""

    def json(self, path: str, value: Any, status: int = 200, **headers: str) -> None:
        kind = {"Content-Type": "application/json; charset=utf-8"}
        self.answers[path] = (status, kind | headers, json.dumps(value).encode())

    def text(self, path: str, text: str, status: int = 200, **headers: str) -> None:
        self.answers[path] = (status, {"Content-Type": "text/plain", **headers}, text.encode())

    def packed(self, path: str, data: bytes) -> None:
        self.answers[path] = (200, {"Content-Encoding": "gzip"}, gzip.compress(data))


@contextmanager
def serve() -> Iterator[Web]:
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            web.asked.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            if self.path == "/hang":
                web.let_go.wait(30)
                return
            status, headers, data = web.answers.get(self.path, (404, {}, b"no such page"))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_HEAD = answer

        def log_message(self, format: str, *args: Any) -> None:
            """The test says what matters."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=[0.01], name="web", daemon=True)
    thread.start()
    try:
        yield web
    finally:
        web.let_go.set()
        server.shutdown()
        server.server_close()
        thread.join()
