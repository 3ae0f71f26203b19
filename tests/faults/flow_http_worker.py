"""A small HTTP service that runs nodes as seed 002 describes its workers. Run as a process of its own.

Arguments: the path that it serves (`/execute` or `/nodes/execute`), and where to write what it was asked, a line of
JSON a call. Says its port. The node's config tells it how to answer: `answers`, a list of status codes, one a call, the
last one again and again; `hang`: seconds before it answers.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATH, NOTES = sys.argv[1], sys.argv[2]
calls: Counter[str] = Counter()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open(NOTES, "a") as notes:
            notes.write(json.dumps({"path": self.path, "body": body}) + "\n")
        if self.path != PATH:
            self._answer(404, {"detail": "Not Found"})
            return
        config = body["node_data"]["config"]
        time.sleep(config.get("hang", 0))
        answers = config.get("answers", [200])
        status = answers[min(calls[body["node_task_id"]], len(answers) - 1)]
        calls[body["node_task_id"]] += 1
        if status == 200:
            inputs = body["node_data"]["inputs"]
            self._answer(200, {"status": "completed", "outputs": {"doubled": inputs.get("x", 0) * 2}})
        else:
            self._answer(status, {"detail": f"told to answer {status}"})

    def _answer(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)  # noqa: T201
server.serve_forever()
