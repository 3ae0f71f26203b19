"""A headless Chromium driven over its debugging pipe: no port, no driver, no extra package.

One browser per test process; each page has a profile of its own (storage, cache, connections), gone with it.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from tests.servers import die_with_parent, find

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
]
ANSWER_S = 30.0
COMPLAINTS = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")


class Browser:
    """The process and its pipe. Answers are taken in the order of the questions; one test asks at a time."""

    def __init__(self) -> None:
        chromium = find("chromium", "chromium")
        self._folder = tempfile.mkdtemp()
        browser_in, self._to = os.pipe()
        self._from, browser_out = os.pipe()
        # The browser insists on descriptors 3 and 4; the shell puts ours there.
        script = f'exec "$@" 3<&{browser_in} 4>&{browser_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", chromium, *FLAGS, f"--user-data-dir={self._folder}", "about:blank"],
            pass_fds=(browser_in, browser_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
        )
        os.close(browser_in)
        os.close(browser_out)
        self._numbers = itertools.count(1)
        self._buffer = b""

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def call(self, method: str, session: str | None, complaints: list[str], **params: Any) -> dict[str, Any]:
        """Its answer; what the session says meanwhile is added to `complaints`."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            if answer.get("sessionId") == session and answer.get("method") in COMPLAINTS:
                complaints.append(json.dumps(answer["params"]))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], ANSWER_S)
            data = os.read(self._from, 1 << 20) if ready else b""
            assert data, "the browser ended or does not answer"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))

    def end(self) -> None:
        os.close(self._to)
        os.close(self._from)
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


class Page:
    """One tab. `complaints` collects what the console, the network and the content policy had to say."""

    def __init__(self, browser: Browser, profile: str) -> None:
        self._browser = browser
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self._call("Target.createTarget", url="about:blank", browserContextId=profile)["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def text(self, selector: str) -> str:
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def wait_until(self, expression: str, timeout_s: float = 20.0) -> None:
        end = time.monotonic() + timeout_s
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"never true: {expression}\n{self.text('body')}\n{self.complaints}"
            time.sleep(0.05)

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, self.complaints, **params)


_browsers: list[Browser] = []


@atexit.register
def _end() -> None:
    while _browsers:
        _browsers.pop().end()


@contextlib.contextmanager
def open_page() -> Iterator[Page]:
    if not _browsers or not _browsers[-1].is_running:
        _end()
        _browsers.append(Browser())
    browser = _browsers[-1]
    try:
        profile = browser.call("Target.createBrowserContext", None, [])["browserContextId"]
        yield Page(browser, profile)
        browser.call("Target.disposeBrowserContext", None, [], browserContextId=profile)
    except BaseException:  # whatever state it is in: the next test gets another one
        _end()
        raise
