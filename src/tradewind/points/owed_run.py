"""Doing what is owed to devices, and reading back what commands left unknown: first of all by whoever polls a channel.

Nothing here decides what is owed: `cmd:owed` and `comsrv:{channel}:outcomes` say it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

import structlog

from tradewind.errors import Conflict, Invalid, TradewindError
from tradewind.points.address import Address
from tradewind.points.board import Board
from tradewind.points.command_check import find_point, read_back_of
from tradewind.points.command_store import CommandStore, PointOutcome
from tradewind.points.commands import apply_effects
from tradewind.points.convert import to_engineering
from tradewind.points.driver import DeviceTrouble, Driver
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.owed import Owed
from tradewind.points.spec import ChannelSpec, PointSpec, Quality

log = structlog.get_logger(__name__)
#: A device that refuses a release, or that cannot be read back, is asked again after so long.
AGAIN_S = 1.0


class OwedRunner:
    """Of the channels that this process holds."""

    def __init__(self, store: CommandStore, board: Board) -> None:
        self._store = store
        self._board = board
        self._not_before: dict[str, float] = {}
        self._unsure: dict[str, set[Address]] = {}

    def unsure(self, channel: str) -> set[Address]:
        """The points of a channel that are known to be unknown; always the same set, which changes."""
        return self._unsure.setdefault(channel, set())

    async def settle(self, channel: ChannelSpec, driver: Driver) -> None:
        """Write what is owed to the device, then read back what is not known.

        Not while another call of the driver runs, except `listen`. Raises DeviceTrouble, or Unavailable without Redis.
        """
        unsure, now = self.unsure(channel.id), await self._store.unsure(channel.id)
        unsure.intersection_update(now)
        unsure.update(now)
        for owed in await self._store.owed(channel.id):
            if owed.is_target_of(channel) and self._is_time(str(owed.address)):
                await self._release(owed, driver, channel.timeout_ms)
        for address, outcome in (await self._store.unsure(channel.id)).items():
            point = find_point(channel, address)
            if point is not None and self._is_time(f"read {address}"):
                value = await self._read_back(channel, driver, point, outcome)
                if value is None:
                    self._wait(f"read {address}")
                else:
                    log.info("point_read_back", address=str(address), value=value, command=outcome.unsure)
                    effect = await self._store.read_back(address, outcome.unsure, value)
                    await apply_effects(self._board, self._store, [effect] if effect is not None else [])
                    unsure.discard(address)

    async def release_former(self, channel: str, now: ChannelSpec | None, drivers: DriverRegistry) -> bool:
        """Write what is owed to targets that are not (any more) those of the channel's definition, over connections of
        their own; True when nothing of that is left. `now` None: nobody polls the channel. Raises Unavailable."""
        is_done = True
        for owed in await self._store.owed(channel):
            if now is not None and owed.is_target_of(now):
                continue
            try:
                await self._connect_and_release(owed, drivers)
            except TradewindError as error:
                is_done = False
                await self._still_owed(owed, error.message)
            except Exception as error:  # the fence around drivers
                log.exception("driver failed", channel=channel, protocol=owed.channel.protocol)
                is_done = False
                await self._still_owed(owed, f"{type(error).__name__}: {error}")
        return is_done

    async def _connect_and_release(self, owed: Owed, drivers: DriverRegistry) -> None:
        timeout_s = owed.channel.timeout_ms / 1000
        driver = drivers.make(owed.channel)
        try:
            try:
                async with asyncio.timeout(timeout_s):
                    await driver.connect()
            except TimeoutError as error:
                raise DeviceTrouble(f"channel {owed.channel.id}: the device did not connect") from error
            await self._release(owed, driver, owed.channel.timeout_ms)
        finally:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(timeout_s):
                    await driver.close()

    async def _release(self, owed: Owed, driver: Driver, timeout_ms: int) -> None:
        point = find_point(driver.channel, owed.address) or owed.point
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await driver.write(point, owed.raw)
        except (Invalid, Conflict) as error:
            self._wait(str(owed.address))
            await self._still_owed(owed, f"the device refused it: {error.message}")
            return
        except DeviceTrouble as error:
            await self._still_owed(owed, error.message)
            raise
        except TimeoutError as error:
            message = f"channel {owed.address.entity}: no answer to the release of {owed.address}"
            await self._still_owed(owed, message)
            raise DeviceTrouble(message, hint="is the device overloaded?") from error
        log.warning("owed_released", address=str(owed.address), command=owed.command_id, since_ms=owed.since_ms)
        effect = await self._store.owed_done(owed, value=owed.value, message="released by whoever polled next")
        self._not_before.pop(str(owed.address), None)
        self.unsure(owed.address.entity).discard(owed.address)
        await apply_effects(self._board, self._store, [effect] if effect is not None else [])

    async def _still_owed(self, owed: Owed, error: str) -> None:
        log.error("owed_not_released", address=str(owed.address), command=owed.command_id, error=error)
        await self._store.tell_owed([str(owed.address)])

    async def _read_back(
        self, channel: ChannelSpec, driver: Driver, point: PointSpec, outcome: PointOutcome
    ) -> float | None:
        """What the point stands at: read itself, else what its `read_back` shows; None when neither can be told."""
        value = await self._read(driver, point, channel.timeout_ms)
        if value is not None:
            return value
        with contextlib.suppress(Invalid):
            paired = read_back_of(point, channel.id)
            if paired is None:
                return None
            own = find_point(channel, paired) if paired.entity == channel.id else None
            if own is not None and (value := await self._read(driver, own, channel.timeout_ms)) is not None:
                return value
            shown = (await self._board.read([paired]))[0]
            if shown.ts is not None and shown.ts > outcome.at and shown.quality == Quality.GOOD:
                return shown.value
        return None

    async def _read(self, driver: Driver, point: PointSpec, timeout_ms: int) -> float | None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                reading = await driver.read(point)
        except (Invalid, Conflict):  # a point that can only be written
            return None
        except TimeoutError as error:
            raise DeviceTrouble(f"channel {driver.channel.id}: no answer to a read-back") from error
        if reading is None or reading.quality is not Quality.GOOD:
            return None
        return to_engineering(point, reading.raw)

    def _is_time(self, what: str) -> bool:
        return time.monotonic() >= self._not_before.get(what, 0.0)

    def _wait(self, what: str) -> None:
        if len(self._not_before) > 10_000:
            self._not_before.clear()
        self._not_before[what] = time.monotonic() + AGAIN_S


def channels_owed(addresses: Sequence[bytes]) -> frozenset[str]:
    """The channels of the fields of `cmd:owed`."""
    parts = (address.decode(errors="replace").split(":") for address in addresses)
    return frozenset(part[1] for part in parts if len(part) == 4 and part[0] == "comsrv" and part[1].isdigit())
