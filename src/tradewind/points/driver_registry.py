"""Which protocols there are: entry points of `tradewind.drivers`, imported when a channel first needs them."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from tradewind.errors import Invalid, Problem, TradewindError, Unavailable
from tradewind.points.driver import Driver
from tradewind.points.drivers.parameters import unknown_names
from tradewind.points.spec import ChannelSpec
from tradewind.problems import closest

GROUP = "tradewind.drivers"
#: Values of such a channel are sent to the API; it has no driver.
PUSH = "http"


class DriverRegistry:
    """Driver classes by protocol."""

    def __init__(self, found: Iterable[EntryPoint] | None = None) -> None:
        entries = entry_points(group=GROUP) if found is None else found
        self._entries = {entry.name: entry for entry in sorted(entries, key=lambda e: (e.name, e.value))}
        self._classes: dict[str, type[Driver]] = {}

    def add(self, driver: type[Driver]) -> None:
        """A class of this process, in front of what is installed."""
        self._classes[driver.protocol] = driver

    def names(self) -> list[str]:
        """Every protocol that a channel may have, without importing any."""
        return sorted({*self._entries, *self._classes, PUSH})

    def get(self, protocol: str) -> type[Driver]:
        """Raises Invalid for an unknown protocol, Unavailable for one that cannot be imported."""
        known = self._classes.get(protocol)
        if known is not None:
            return known
        entry = self._entries.get(protocol)
        if entry is None:
            raise Invalid(f"there is no protocol {protocol!r}", code="unknown_protocol", hint=self._hint(protocol))
        try:
            loaded = entry.load()
        except Exception as error:  # the fence around plug-ins
            message = f"the driver of {protocol!r} ({entry.value}) cannot be imported: {type(error).__name__}: {error}"
            raise Unavailable(message, code="bad_driver", hint="install what the driver needs") from error
        if not (isinstance(loaded, type) and issubclass(loaded, Driver)):
            message = f"the driver of {protocol!r} ({entry.value}) is no Driver"
            raise Unavailable(message, code="bad_driver", hint="correct the entry point in its package")
        self._classes[protocol] = loaded
        return loaded

    def check(self, channel: ChannelSpec) -> list[Problem]:
        """What is wrong with a channel's protocol, parameters and mappings, interlocks and read-backs."""
        from tradewind.points.command_check import check_safety  # it asks this file what pushes

        unsafe = check_safety(channel.points, channel.id)
        if channel.protocol == PUSH:
            return [*unknown_names(channel.parameters, ()), *unsafe]
        try:
            return [*self.get(channel.protocol).check(channel), *unsafe]
        except TradewindError as error:
            return [Problem(error.code, "protocol", error.hint if isinstance(error, Invalid) else error.message)]

    def make(self, channel: ChannelSpec) -> Driver:
        """A driver for the channel, not connected. Raises as `get`."""
        return self.get(channel.protocol)(channel)

    def _hint(self, protocol: str) -> str:
        close = closest(protocol.lower(), self.names())
        return (f'did you mean "{close}"? ' if close else "") + f"known: {', '.join(self.names())}"
