"""A plant for fault tests: channels on a Redis of its own, polled by real comsrv processes, seen from outside."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from typing import Any

from tests.faults.station_process import RoleProcess
from tests.faults.station_process import Site as Roles
from tests.points.site import Site
from tests.servers import Server, find
from tradewind.points.command_record import Command, CommandRequest
from tradewind.points.commands import Commands
from tradewind.points.spec import Kind
from tradewind.redis.connection import Link

M, S, C, A = Kind


class Plant(Site):
    """Keys without a prefix, as users have them."""

    def __init__(self, link: Link, redis: Server, roles: Roles) -> None:
        super().__init__(link, "")
        self.server = redis
        self.roles = roles
        self.commands = Commands(self.plane, self.board, self.store)

    def start(self, *roles: str, **settings: object) -> RoleProcess:
        """`tradewind run …`, comsrv when none is named; does not wait."""
        return self.roles.start(*(roles or ("comsrv",)), **settings)

    def redis_cli(self, *words: str) -> str:
        program = find("redis-cli", "redis-tools")
        argv = [program, "-p", str(self.server.port), *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=20).stdout

    async def has_quality(
        self, channel: str, quality: str, kinds: Iterable[Kind] = (M,), timeout_s: float = 20
    ) -> float:
        """Wait until all points of these kinds have it, at least one of each; how long that took."""

        async def is_so() -> bool:
            return all([await self.qualities(channel, kind) == {quality} for kind in kinds])

        return await self.until(is_so, f"channel {channel} {quality}", timeout_s)

    async def shows(self, channel: str, values: dict[str, float], kind: Kind = M, quality: str = "good") -> float:
        async def is_so() -> bool:
            found = await self.values(channel, kind)
            return all(
                point in found and (found[point].value, found[point].quality) == (value, quality)
                for point, value in values.items()
            )

        return await self.until(is_so, f"channel {channel} with {values} {quality}", 20)

    async def figure(self, channel: str, name: str) -> int:
        return int((await self.status(channel)).get(name) or 0)

    async def send(self, address: str, value: float, **options: Any) -> str:
        """The id of the command."""
        return (await self.commands.submit(CommandRequest(address=address, value=value, reason="test", **options))).id

    async def done(self, address: str, value: float, **options: Any) -> Command:
        return await self.commands.wait(await self.send(address, value, **options), 20)

    async def owners(self) -> dict[str, str]:
        """Channel → process, also where the lease has ended."""
        found = await self.plane.redis.hgetall(self.plane.keys.channel_owners())
        return {channel.decode(): lease.decode().rpartition(":")[0] for channel, lease in found.items()}

    async def feed(self) -> list[dict[str, str]]:
        """Every entry, oldest first."""
        entries = await self.plane.redis.xrange(self.plane.keys.feed())
        return [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in entries]
