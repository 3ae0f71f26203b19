"""`Input` and `Output`: what a node class declares, and what its instance finds under the same names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import UNSET

from tradewind.signals.signal import Signal

if TYPE_CHECKING:
    from tradewind.flows.node_base import Node

T = TypeVar("T")


class InputOptions(msgspec.Struct, frozen=True):
    default: Any = UNSET
    aggregate: bool = False
    max_age: float | None = None
    unit: str = ""
    description: str = ""
    auto_update_attr: str = ""
    external: bool = False
    name: str = ""


class OutputOptions(msgspec.Struct, frozen=True):
    unit: str = ""
    description: str = ""
    signal_type: str = "ANY"
    name: str = ""


class Input(Generic[T]):
    """An input handle. Without a `default` a value is required.

    aggregate: takes many edges; the value is a dict keyed by source handle, or by `node:handle` where two edges come
    from handles of one name (for `Input[list]`: a list in the order of arrival). max_age: seconds; an older signal
    counts as missing. auto_update_attr: the attribute that gets each payload before `execute`. external: filled from
    outside of the flow. name: the handle's name if it cannot be the attribute's.
    """

    __slots__ = ("_is_connected", "_now", "_reading", "options")
    _is_connected: bool
    _now: Callable[[], float]
    _reading: Reading

    def __init__(
        self,
        *,
        default: Any = UNSET,
        aggregate: bool = False,
        max_age: float | None = None,
        unit: str = "",
        description: str = "",
        auto_update_attr: str = "",
        external: bool = False,
        name: str = "",
    ) -> None:
        self.options = InputOptions(default, aggregate, max_age, unit, description, auto_update_attr, external, name)

    @property
    def value(self) -> T:
        """The signal's payload, else the value given in the flow, else the default.

        Raises NodeInputMissing when the upstream sent nothing and the trigger rule let the node run all the same.
        """
        reading = self._reading
        if reading.problem is not None:
            raise reading.problem
        return reading.value  # type: ignore[no-any-return]

    @property
    def has_value(self) -> bool:
        """Whether a signal or a value given in the flow is there; a default does not count."""
        return self._reading.is_given

    @property
    def signal(self) -> Signal | None:
        """The newest signal, with its source, its type and its time."""
        signals = self._reading.signals
        return signals[-1] if signals else None

    @property
    def signals(self) -> tuple[Signal, ...]:
        """All of them in the order of arrival; more than one only for aggregate handles."""
        return tuple(self._reading.signals)

    @property
    def is_connected(self) -> bool:
        return self._is_connected

    @property
    def age_s(self) -> float | None:
        """Seconds since the newest signal was made; None without one."""
        signals = self._reading.signals
        return max(0.0, self._now() - signals[-1].timestamp) if signals else None


class Reading:
    """What an input found in one run. `problem`: why it has no value, raised when the value is asked for."""

    __slots__ = ("is_given", "keys", "problem", "signals", "value")

    def __init__(
        self,
        value: Any = None,
        signals: Sequence[Signal] = (),
        problem: Exception | None = None,
        is_given: bool = False,
        keys: Sequence[str] = (),
    ) -> None:
        self.value = value
        self.signals = signals
        self.problem = problem
        self.is_given = is_given
        #: For an aggregate: the key of each signal.
        self.keys = keys


def bound_input(options: InputOptions, reading: Reading, is_connected: bool, now: Callable[[], float]) -> Input[Any]:
    """The handle of one instance."""
    handle: Input[Any] = Input.__new__(Input)
    handle.options = options
    handle._reading = reading
    handle._is_connected = is_connected
    handle._now = now
    return handle


class Output(Generic[T]):
    """An output handle. signal_type: of the signals that it sends. name: its name if it cannot be the attribute's."""

    __slots__ = ("_name", "_node", "options")
    _name: str
    _node: Node

    def __init__(self, *, unit: str = "", description: str = "", signal_type: str = "ANY", name: str = "") -> None:
        self.options = OutputOptions(unit, description, signal_type, name)

    def send(self, value: T) -> Awaitable[None]:
        """Send `value` when the node has ended well; a later send on the same handle replaces it.

        Done when it returns: `await` it in async code, just call it in a plain `execute`.
        """
        self._node._emit(self._name, value)
        return DONE


class OutputSlot:
    """Stands on a node class where an output was declared, and makes the instance's own handle at first use."""

    def __init__(self, attribute: str, name: str, options: OutputOptions) -> None:
        self._attribute, self._name, self.options = attribute, name, options

    def __get__(self, node: Node | None, owner: type) -> Any:
        if node is None:
            return self
        handle: Output[Any] = Output.__new__(Output)
        handle.options = self.options
        handle._name = self._name
        handle._node = node
        node.__dict__[self._attribute] = handle
        return handle


class _Done:
    """Something to await after the fact, so that one method serves async and plain code."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


DONE = _Done()
