"""A few calls to the API of a station in another process, with nothing but the standard library."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any


class Api:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and answer; `body` as it is when it is text."""
        data = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/api/v1{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def get(self, path: str) -> Any:
        status, answer = self.call("GET", path)
        assert status == 200, answer
        return answer

    def post(self, path: str, body: Any) -> Any:
        status, answer = self.call("POST", path, body)
        assert status < 300, answer
        return answer

    def is_up(self) -> bool:
        try:
            return self.call("GET", "/channels")[0] == 200
        except OSError:
            return False
