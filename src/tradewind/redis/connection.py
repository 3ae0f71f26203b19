"""One place to talk to one Redis, wherever it is: standalone, unix socket, Sentinel, Cluster, embedded child.

Replies are bytes over RESP2: scripts answer flat arrays either way, and it spares the HELLO of each connection.
redis-py repeats no command by itself here; whoever knows that a command may be repeated does that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.connection import UnixDomainSocketConnection as UnixConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.asyncio.sentinel import SentinelManagedConnection as MasterConnection
from redis.asyncio.sentinel import SentinelManagedSSLConnection as MasterSSLConnection
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool as SyncPool
from redis.connection import SSLConnection as SyncSSLConnection
from redis.connection import UnixDomainSocketConnection as SyncUnixConnection
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError
from redis.retry import Retry as SyncRetry
from redis.sentinel import Sentinel as SyncSentinel

from tradewind.documents import must_be_file
from tradewind.errors import Invalid, Unavailable
from tradewind.redis.embedded import Embedded, start_embedded
from tradewind.redis.faults import RETRYABLE as RETRYABLE
from tradewind.redis.faults import translate
from tradewind.redis.faults import translated as translated
from tradewind.redis.packing import packed
from tradewind.redis.pool import WaitingMasterPool, WaitingPool
from tradewind.redis.slots import (
    BlockingSlotConnection,
    BlockingSlotSSLConnection,
    SlotConnection,
    SlotOwner,
    SlotSSLConnection,
)
from tradewind.redis.urls import Mode, Target, target_of
from tradewind.settings import RedisSettings

NOT_READY: tuple[type[Exception], ...] = (*RETRYABLE, TimeoutError)
MIN_VERSION = (7, 0)
SMALL_POOL = 16
BLOCKING_DIAL_S = 5.0
BLOCKING_READ_S = 3.0


class Link:
    """Connections to one Redis. `client` stays the same object for the life of the link, also when the server moves."""

    def __init__(self, target: Target, settings: RedisSettings, *, tag: str, embedded: Embedded | None = None) -> None:
        self.target = target
        self.embedded = embedded
        self._settings = settings
        self._owner = SlotOwner(target.nodes, tag) if target.mode is Mode.CLUSTER else None
        self._sentinel = self._make_sentinel() if target.mode is Mode.SENTINEL else None
        self._client = self._make(
            max_connections=settings.pool_size,
            timeout=settings.dial_timeout_s + settings.read_timeout_s,
            # redis-py has one timeout for reading and writing
            socket_timeout=max(settings.read_timeout_s, settings.write_timeout_s),
        )

    @property
    def client(self) -> redis.asyncio.Redis:
        """For quick commands from many places at once; a caller waits when all `pool_size` connections are in use."""
        return self._client

    @property
    def cluster(self) -> bool:
        return self._owner is not None

    def __str__(self) -> str:
        return str(self.target)

    def new_client(self, longest_wait_s: float | None = None) -> redis.asyncio.Redis:
        """A client of its own for commands that wait so long on the server; None for pub/sub. The caller closes it.

        Past that wait and the read timeout it gives up, or a lost reply would be waited for for ever.
        """
        timeout_s = None if longest_wait_s is None else longest_wait_s + self._settings.read_timeout_s
        return self._make(max_connections=SMALL_POOL, timeout=self._settings.dial_timeout_s, socket_timeout=timeout_s)

    def new_blocking_client(self, longest_wait_s: float = BLOCKING_DIAL_S) -> redis.Redis:
        """A blocking client for a thread, which finds the master or the owner of the slot by itself.

        It gives a server that does not answer up after a few seconds, or sooner if `longest_wait_s` says so.
        """
        target = self.target
        options = self._options(SyncRetry(NoBackoff(), 0))
        options |= {
            "socket_timeout": min(BLOCKING_READ_S, longest_wait_s),
            "socket_connect_timeout": min(BLOCKING_DIAL_S, longest_wait_s),
        }
        if target.mode is Mode.SENTINEL:
            own = self._sentinel_options(options)
            sentinel = SyncSentinel(target.nodes, sentinel_kwargs=own, **options)  # type: ignore[no-untyped-call]
            client: redis.Redis = sentinel.master_for(target.master, ssl=target.tls)  # type: ignore[no-untyped-call]
            return client
        kind: type[Any]
        if self._owner is not None:
            options |= {"owner": self._owner, "options": dict(options)}
            kind = BlockingSlotSSLConnection if target.tls else BlockingSlotConnection
        elif target.mode is Mode.UNIX:
            options["path"] = target.path
            kind = SyncUnixConnection
        else:
            options["host"], options["port"] = target.nodes[0]
            kind = SyncSSLConnection if target.tls else redis.Connection
        return redis.Redis.from_pool(SyncPool(connection_class=kind, **options))

    async def refresh(self) -> None:
        """In a cluster, find the owner of the slot again; elsewhere nothing. Raises RedisError if nobody answers."""
        if self._owner is not None:
            options = {**self._options(Retry(NoBackoff(), 0)), "socket_timeout": self._settings.read_timeout_s}
            self._owner.forget(self._owner.address)
            await self._owner.find(options, SSLConnection if self.target.tls else Connection)

    async def wait_ready(self, timeout_s: float) -> None:
        """Wait until the server answers, then open `min_idle` connections. Raises Unavailable."""
        end = time.monotonic() + timeout_s
        while True:
            try:
                async with asyncio.timeout(max(0.05, end - time.monotonic())):
                    await self._client.ping()
                    warm = min(self._settings.min_idle, self._settings.pool_size)
                    await asyncio.gather(*(self._client.ping() for _ in range(warm)))
                return
            except (AuthenticationError, AuthorizationError) as error:
                raise translate(error, self) or error from error
            except NOT_READY as error:
                if time.monotonic() >= end:
                    what = translate(error, self) if isinstance(error, RedisError) else "no answer"
                    message = f"Redis at {self} is not ready after {timeout_s:g} s: {what}"
                    raise Unavailable(message, hint="start the server, or correct redis.url") from error
            except ResponseError as error:  # it answers, and says what is wrong with it: its disk is full
                raise translate(error, self) or error from error
            await asyncio.sleep(min(0.1, max(0.0, end - time.monotonic())))
            with suppress(RedisError):
                await self.refresh()

    async def close(self) -> None:
        """Close the connections and stop the embedded server, if this link started one."""
        try:
            await self._client.aclose(close_connection_pool=True)
            for sentinel in self._sentinel.sentinels if self._sentinel is not None else ():
                await sentinel.aclose()
        finally:
            if self.embedded is not None:
                await self.embedded.stop()

    def _make_sentinel(self) -> Sentinel:
        options = {**self._options(Retry(NoBackoff(), 0)), "socket_timeout": self._settings.read_timeout_s}
        return Sentinel(self.target.nodes, sentinel_kwargs=self._sentinel_options(options))  # type: ignore[no-untyped-call]

    def _make(self, **options: Any) -> redis.asyncio.Redis:
        target = self.target
        options = {**self._options(Retry(NoBackoff(), 0)), **options}
        kind: type[Any]
        if self._sentinel is not None:
            kind = MasterSSLConnection if target.tls else MasterConnection
            masters = WaitingMasterPool(target.master, self._sentinel, connection_class=packed(kind), **options)  # type: ignore[no-untyped-call]
            return redis.asyncio.Redis.from_pool(masters)
        if self._owner is not None:
            own = {**self._options(options["retry"]), "socket_timeout": self._settings.read_timeout_s}
            options |= {"owner": self._owner, "options": own}
            kind = SlotSSLConnection if target.tls else SlotConnection
        elif target.mode is Mode.UNIX:
            options["path"] = target.path
            kind = UnixConnection
        else:
            options["host"], options["port"] = target.nodes[0]
            kind = SSLConnection if target.tls else Connection
        pool = WaitingPool(connection_class=packed(kind), **options)
        return redis.asyncio.Redis.from_pool(pool)

    def _options(self, retry: Retry | SyncRetry) -> dict[str, Any]:
        target, tls = self.target, self._settings.tls
        options: dict[str, Any] = {
            "db": target.db,
            "username": target.username or None,
            "password": target.password or None,
            "protocol": 2,
            "socket_connect_timeout": self._settings.dial_timeout_s,
            "driver_info": None,
            "retry": retry,
        }
        if target.tls:
            # A blocking connection that has read nothing yet takes the server's session ticket for a stray reply, so
            # here redis-py may introduce itself.
            del options["driver_info"]
            for name in filter(None, (tls.ca_file, tls.cert_file, tls.key_file)):
                must_be_file(name)
            options |= {
                "ssl_ca_certs": tls.ca_file or None,
                "ssl_certfile": tls.cert_file or None,
                "ssl_keyfile": tls.key_file or None,
                "ssl_cert_reqs": "required" if tls.verify else "none",
                "ssl_check_hostname": tls.verify,
            }
        return options

    def _sentinel_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """How to reach the sentinels: like the server, but they have no databases and no password of ours."""
        dropped = ("db", "username", "password")
        return {name: value for name, value in options.items() if name not in dropped} | {"ssl": self.target.tls}


async def open_link(settings: RedisSettings, *, data_dir: Path | None = None, tag: str = "tw") -> Link:
    """A link to the Redis that the settings name; without one, start the embedded server in `data_dir`.

    Nothing is sent to a Redis named by URL yet: see `Link.wait_ready`. `tag` is the hash tag of the keys, for clusters.
    """
    target = target_of(settings)
    if target is not None:
        return Link(target, settings, tag=tag)
    if data_dir is None:
        hint = "set TRADEWIND_REDIS_URL or redis.url, or run inside a station with a data folder"
        raise Invalid("no Redis is named and there is no data folder for the embedded one", code="no_redis", hint=hint)
    embedded = await start_embedded(data_dir, appendfsync=settings.appendfsync)
    return Link(Target(Mode.UNIX, path=str(embedded.socket)), settings, tag=tag, embedded=embedded)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """`name` is `redis` or `valkey`, `version` its own; `warnings` are sentences for people."""

    name: str
    version: str
    maxmemory_policy: str
    appendonly: bool
    warnings: tuple[str, ...] = ()


async def server_facts(client: redis.asyncio.Redis) -> ServerFacts:
    """Ask the server what it is. Raises Unavailable if it does not answer, Invalid if it is older than 7.0."""
    with translated():
        info: dict[str, Any] = await client.info()
    name = str(info.get("server_name", "redis"))
    compatible = str(info["redis_version"])
    if _numbers(compatible.split(".")) < MIN_VERSION:
        hint = "use Redis 7.0 or newer, or Valkey"
        raise Invalid(f"the server is {name} {compatible}", code="redis_too_old", hint=hint)
    policy, appendonly = str(info.get("maxmemory_policy", "noeviction")), bool(info.get("aof_enabled"))
    warnings = []
    if policy.startswith("allkeys-"):
        warnings.append(f"maxmemory-policy {policy} may drop tasks when memory is full: set it to noeviction")
    if not appendonly:
        warnings.append("appendonly is off: a restart of the server loses what was not saved")
    version = str(info.get("valkey_version", compatible)) if name == "valkey" else compatible
    return ServerFacts(name, version, policy, appendonly, tuple(warnings))


def _numbers(parts: Iterable[str]) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in parts)
