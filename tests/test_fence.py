"""Whatever a part meets: it goes on, and so do all beside it; the error is logged once, not every second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from tradewind import fence, station
from tradewind.fence import Fence
from tradewind.redis import index_sweep
from tradewind.redis.index_sweep import sweep_for_ever


def _raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:  # noqa: BLE001 - it is what the test is about
        return caught


def test_an_error_is_logged_once_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    part = Fence(job="x")
    with capture_logs() as logs:
        for _ in range(3):
            assert part.met(_raised(KeyError("a"))) == "KeyError: 'a'"
        part.met(ExceptionGroup("some", [ExceptionGroup("more", [_raised(KeyError("a"))])]))
        part.met(_raised(KeyError("b")))
    assert [(line["job"], line["error"]) for line in logs] == [("x", "KeyError: 'a'"), ("x", "KeyError: 'b'")]
    assert isinstance(logs[0]["exc_info"], KeyError) and logs[0]["log_level"] == "error"
    monkeypatch.setattr(fence, "AGAIN_S", 0.0)
    with capture_logs() as logs:
        part.met(_raised(KeyError("a")))
    assert len(logs) == 1


def test_errors_that_differ_each_time_are_not_logged_without_end() -> None:
    part = Fence(job="x")
    with capture_logs() as logs:
        for n in range(100):
            part.met(_raised(ValueError(str(n))))
    assert len(logs) == fence.MOST


class _Part:
    """Fails in a way that nobody expects, twice; then it serves."""

    def __init__(self) -> None:
        self.begun = 0
        self.serves = asyncio.Event()

    async def run(self) -> None:
        self.begun += 1
        if self.begun <= 2:
            raise ExceptionGroup("in a group", [KeyError("foreign")]) if self.begun == 1 else KeyError("foreign")
        self.serves.set()
        await asyncio.Event().wait()


class _Sweep:
    def __init__(self, part: _Part) -> None:
        self._part = part

    async def run(self) -> list[Any]:
        await self._part.run()
        return []


KEPT: dict[str, Callable[[_Part], Awaitable[None]]] = {
    "role": lambda part: station._kept_up("role", part.run, asyncio.Event()),
    "job of a worker": lambda part: station._forever("job", part.run),
    "sweep": lambda part: sweep_for_ever([_Sweep(part)], "room", 0.0),  # type: ignore[list-item]
}


@pytest.mark.parametrize("kind", KEPT)
async def test_a_part_goes_on_after_an_error_that_nobody_expects(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_sweep, "LEADS_S", 0.01)
    nap = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda s: nap(min(s, 0.01)))
    part = _Part()
    with capture_logs() as logs:
        job = asyncio.ensure_future(KEPT[kind](part))
        async with asyncio.timeout(5):
            await part.serves.wait()
        job.cancel()
    assert next(line["error"] for line in logs if line["event"] == "unexpected_error") == "KeyError: 'foreign'"
    with pytest.raises(asyncio.CancelledError):
        await job
