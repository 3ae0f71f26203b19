"""Definitions of channels that a request brings: checked, with the secrets that are stored in the place of masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tradewind.errors import Invalid, Problem
from tradewind.offload import offload
from tradewind.points.address import is_number
from tradewind.points.channel_check import validate_channel
from tradewind.points.channel_store import ChannelStore, channel_document
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.secrets import has_mask, restored
from tradewind.points.spec import ChannelSpec
from tradewind.problems import Problems, below, nothing_stored


class ChannelReader:
    def __init__(self, channels: ChannelStore, drivers: DriverRegistry) -> None:
        self._channels = channels
        self._drivers = drivers

    async def read(self, document: Any) -> ChannelSpec:
        """Raises Invalid with all problems, with paths within the channel."""
        # in a thread: a long one takes seconds, and a driver is imported when it is first needed
        return await offload(self._check, *(await self._filled([document]))[0])

    async def read_all(self, documents: Sequence[Any]) -> list[ChannelSpec]:
        """Raises Invalid with all problems of all, with paths such as `channels[3].parameters.port`."""
        filled = await self._filled(documents)
        channels, problems = await offload(self._check_all, filled)
        if problems:
            message = nothing_stored(problems)
            raise Invalid(message, code="bad_channel", hint="correct what is named", problems=problems)
        return channels

    async def _filled(self, documents: Sequence[Any]) -> list[tuple[Any, list[Problem]]]:
        """Each with its secrets, and what is wrong with its masks."""
        found: list[tuple[Any, list[Problem]]] = []
        masked = await offload(lambda: [has_mask(document) for document in documents])
        for document, is_masked in zip(documents, masked, strict=True):
            if not is_masked:
                found.append((document, []))
                continue
            name = str(document.get("id"))
            stored = (await self._channels.get_many([name]))[0] if is_number(name) else None
            found.append(await offload(_restored, document, stored))
        return found

    def _check(self, document: Any, more: Sequence[Problem]) -> ChannelSpec:
        def check(channel: ChannelSpec) -> list[Problem]:
            return [*more, *self._drivers.check(channel)]

        return validate_channel(document, check=check)

    def _check_all(self, filled: Sequence[tuple[Any, list[Problem]]]) -> tuple[list[ChannelSpec], Problems]:
        channels: dict[str, ChannelSpec] = {}
        problems = Problems()
        for at, (document, more) in enumerate(filled):
            try:
                channel = self._check(document, more)
            except Invalid as error:
                problems += below(f"channels[{at}].", error.problems)
                problems.left_out += error.more
                continue
            if channel.id in channels:
                problems.append(Problem("duplicate_id", f"channels[{at}].id", f"{channel.id} stands twice"))
            channels[channel.id] = channel
        return list(channels.values()), problems


def _restored(document: Any, stored: ChannelSpec | None) -> tuple[dict[str, Any], list[Problem]]:
    return restored(document, None if stored is None else channel_document(stored))
