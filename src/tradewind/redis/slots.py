"""Connections that follow one hash slot around a Redis Cluster.

The task plane lives in one slot, so instead of a cluster client we use a plain one whose connections ask, when they
connect, which node owns that slot now. `SlotOwner` keeps the answer until somebody says that it is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.connection import Connection, ConnectionPool, SSLConnection
from redis.connection import Connection as BlockingConnection
from redis.connection import ConnectionPool as BlockingPool
from redis.connection import SSLConnection as BlockingSSLConnection
from redis.crc import key_slot
from redis.exceptions import AuthenticationError, ClusterDownError, MovedError, RedisError

Address = tuple[str, int]
OTHER_NODE = (MovedError, ClusterDownError)
NO_ANSWER = (redis.ConnectionError, redis.TimeoutError)


class SlotOwner:
    """Who owns the slot of `{tag}`; shared by all connections of a link. `address` is None while unknown."""

    def __init__(self, seeds: Iterable[Address], tag: str) -> None:
        self.slot: int = key_slot(tag.encode())
        self.address: Address | None = None
        self._seeds = list(seeds)
        self._known: list[Address] = []
        self._finding = asyncio.Lock()

    def forget(self, address: Address | None) -> None:
        """Drop the answer, unless somebody has already found a newer one."""
        if self.address == address:
            self.address = None

    def candidates(self) -> list[Address]:
        """Whom to ask, without repetition: the nodes seen last, then the seeds."""
        return list(dict.fromkeys([*self._known, *self._seeds]))

    def learn(self, asked: Address, reply: Sequence[Sequence[Any]]) -> Address:
        """Take in CLUSTER SLOTS, rows of [first, last, [host, port, …] of the master, …]. Raises ClusterDownError."""
        found = {}
        for first, last, (host, port, *_), *_ in reply:
            # A node that does not know its own address leaves the host empty: it is where we asked.
            found[first, last] = (host.decode() if host else asked[0], int(port))
        self._known = list(dict.fromkeys(found.values()))
        for (first, last), address in found.items():
            if first <= self.slot <= last:
                self.address = address
                return address
        raise ClusterDownError(f"slot {self.slot} has no owner")

    async def find(self, options: Mapping[str, Any], connection_class: type[Connection]) -> Address:
        """The owner, asked for only when it is not known."""
        async with self._finding:
            if self.address is not None:
                return self.address
            error: RedisError = ClusterDownError("no node is known")
            for host, port in self.candidates():
                pool = ConnectionPool(connection_class=connection_class, **{**options, "host": host, "port": port})
                try:
                    return self.learn((host, port), await redis.asyncio.Redis(connection_pool=pool).cluster("SLOTS"))
                except AuthenticationError:
                    raise
                except (*NO_ANSWER, ClusterDownError) as failure:
                    error = failure
                finally:
                    await pool.disconnect()
            raise error

    def find_blocking(self, options: Mapping[str, Any], connection_class: type[BlockingConnection]) -> Address:
        """Asks always: its callers connect seldom and must not trust a loop that may be blocked."""
        error: RedisError = ClusterDownError("no node is known")
        for host, port in self.candidates():
            pool = BlockingPool(connection_class=connection_class, **{**options, "host": host, "port": port})
            try:
                return self.learn((host, port), redis.Redis(connection_pool=pool).cluster("SLOTS"))
            except AuthenticationError:
                raise
            except (*NO_ANSWER, ClusterDownError) as failure:
                error = failure
            finally:
                pool.disconnect()
        raise error


class SlotConnection(Connection):
    """Goes to the owner of the slot; a connection to a former owner is replaced when it is taken from the pool."""

    plain: type[Connection] = Connection

    def __init__(self, owner: SlotOwner, options: Mapping[str, Any], **kwargs: Any) -> None:
        self._owner = owner
        self._options = options
        super().__init__(**kwargs)

    @property
    def is_elsewhere(self) -> bool:
        """The slot has, or may have, another owner than the node that this one is connected to."""
        return self._owner.address != (self.host, self.port)

    async def connect(self) -> None:
        address = self._owner.address or await self._owner.find(self._options, self.plain)
        if address != (self.host, self.port):
            await self.disconnect()
            self.host, self.port = address
        try:
            await super().connect()  # type: ignore[no-untyped-call]
        except NO_ANSWER:
            self._owner.forget(address)
            raise


class SlotSSLConnection(SlotConnection, SSLConnection):
    plain = SSLConnection


class BlockingSlotConnection(BlockingConnection):
    """The blocking twin; heals itself, because its users have no loop on which to call `refresh`."""

    plain: type[BlockingConnection] = BlockingConnection

    def __init__(self, owner: SlotOwner, options: Mapping[str, Any], **kwargs: Any) -> None:
        self._owner = owner
        self._options = options
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]

    def connect(self) -> None:
        if not self.is_connected:
            self.host, self.port = self._owner.find_blocking(self._options, self.plain)
        super().connect()  # type: ignore[no-untyped-call]

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().read_response(*args, **kwargs)
        except OTHER_NODE as error:
            self.disconnect()  # type: ignore[no-untyped-call]
            raise redis.ConnectionError(f"slot {self._owner.slot} has moved: {error}") from error


class BlockingSlotSSLConnection(BlockingSlotConnection, BlockingSSLConnection):
    plain = BlockingSSLConnection
