"""Nodes that came through a worker's queue: those that begin in the same turn of the loop are started in one call."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from tradewind.flows.running_node import RunningNode
from tradewind.flows.store import FlowStore
from tradewind.redis.scripts import Arg
from tradewind.tasks.running import Abort

AT_ONCE = 200


class Follow(msgspec.Struct):
    """What an ended attempt of a node leaves for its commit, ready to be stored: user code has no say any more.

    `outputs`: handle → signal as JSON. `suspend`: ms until it goes on, and its state as JSON. `seen`: the
    optional signals from outside that it was given.
    """

    flow_id: str
    cycle: int
    node_id: str
    version: str = ""
    outputs: dict[str, bytes] = {}
    stop: tuple[str, str] | None = None
    suspend: tuple[int, bytes] | None = None
    terminated: str = ""
    node: RunningNode | None = None
    seen: list[str] = []


class NodeStarts:
    def __init__(self, store: FlowStore, worker_id: str) -> None:
        self.store = store
        self.worker_id = worker_id
        self._waiting: list[tuple[str, Follow, asyncio.Future[list[Any]]]] = []
        self._calls: set[asyncio.Task[None]] = set()

    async def start(self, token: str, follow: Follow) -> tuple[str, list[Any]]:
        """Its records say that it runs. Its plan's version, and its inputs. Raises Abort when it must not run."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Any]] = loop.create_future()
        self._waiting.append((token, follow, answer))
        if len(self._waiting) == 1:
            loop.call_soon(self._send)
        found = await answer
        if not found:
            raise Abort("the node had ended, or its cycle has")
        return found[0].decode(), found[1]

    def _send(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
            call = asyncio.get_running_loop().create_task(self._call(batch), name="node starts")
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _call(self, batch: list[tuple[str, Follow, asyncio.Future[list[Any]]]]) -> None:
        plane = self.store.plane
        args: list[Arg] = [*plane.head(), self.worker_id]
        for token, follow, _ in batch:
            args += (follow.flow_id, follow.cycle, follow.node_id, token)
        try:
            found = await plane.scripts.run("node_start", [plane.keys.worker_tasks(self.worker_id)], args)
        except BaseException as error:
            for _, _, answer in batch:
                if not answer.done():
                    answer.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
            if not isinstance(error, Exception):
                raise
            return
        for (_, _, answer), reply in zip(batch, found, strict=True):
            if not answer.done():
                answer.set_result(reply)
