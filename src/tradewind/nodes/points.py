"""`point_read`, `model_read`, `command`: flows that look at devices and steer them.

The station tells this module where its points are (`use_points`); a process without points can only check configs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NoReturn, Protocol

import msgspec
from msgspec import Meta

from tradewind.errors import Conflict, Invalid, NotFound, Problem
from tradewind.flows.call import Suspend
from tradewind.flows.node import Input, Node, Output, node
from tradewind.flows.node_errors import (
    NodeExecutionException,
    NodeResourceException,
    NodeTimeoutException,
    NodeValidationException,
)
from tradewind.ids import ID, is_id, new_id
from tradewind.models.store import ModelStore
from tradewind.points.address import Address
from tradewind.points.board import Board, PointValue
from tradewind.points.channel_store import ChannelStore
from tradewind.points.command_record import Command, CommandRequest, CommandStatus
from tradewind.points.commands import Commands

#: From best to worst.
QUALITIES = ("good", "substituted", "uncertain", "bad")
_RANK = {word: rank for rank, word in enumerate(QUALITIES)}
MAX_POINTS = 1000
OUTPUTS = ("value", "values", "quality")
#: Most commands are carried out at once, so the first look comes soon.
FIRST_LOOK_S, LOOK_S = 0.1, 0.5
SOURCE = "flow"

Accept = Annotated[
    Literal["good", "substituted", "uncertain", "bad"],
    Meta(description="The worst quality that is taken; a stale value is uncertain."),
]
Default = Annotated[
    float | None, Meta(description="Sent for a point that is not good enough; without it the node fails.")
]


class Room(Protocol):
    """What a station has of points; see PointRoom."""

    @property
    def board(self) -> Board: ...
    @property
    def channels(self) -> ChannelStore: ...
    @property
    def commands(self) -> Commands: ...
    @property
    def models(self) -> ModelStore: ...
    async def look(self) -> None: ...


_room: Room | None = None


def use_points(room: Room | None) -> None:
    """Let the nodes of this process use these points; None: it has none. Told by the station."""
    global _room
    _room = room


class _PointNode(Node):
    @property
    def room(self) -> Room:
        if _room is None:
            message = f"node {self.node_id!r} needs points, and this process has none"
            raise NodeResourceException(message, "points", self.node_id)
        return _room


class _Reader(_PointNode):
    """What both reading nodes do with what they read."""

    async def _send(self, found: Mapping[str, PointValue], accept: str, default: float | None) -> None:
        """By name, in order. Raises NodeExecutionException naming every point that is not good enough."""
        values: dict[str, float] = {}
        refused = []
        for name, point in found.items():
            if point.value is not None and _RANK[point.quality] <= _RANK[accept]:
                values[name] = point.value
            elif default is not None:
                values[name] = default
            else:
                refused.append(f"{point.address} {_complaint(point)}")
        if refused:
            message = f"node {self.node_id!r} got no good value: {'; '.join(refused[:10])}"
            raise NodeExecutionException(
                message, self.node_id, code="bad_quality", hint="see the channel's status, or give a default"
            )
        worst = max((point.quality for point in found.values()), key=_RANK.__getitem__)
        await self.send_signal("values", values)
        await self.send_signal("value", next(iter(values.values())))
        await self.send_signal("quality", worst)
        for name, value in values.items():
            if ID.fullmatch(name) is not None and name not in OUTPUTS:
                await self.send_signal(name, value)


def _complaint(point: PointValue) -> str:
    if point.value is None:
        return "has no value"
    return f"is stale ({(point.age_ms or 0) / 1000:.1f} s old)" if point.is_stale else f"is {point.quality}"


@node("point_read", category="source", open_outputs=True)
class PointRead(_Reader):
    """Reads points from the board, and sends each that has a name at the output of that name.

    The points are read at one moment. Fails when one of them is not good enough, unless there is a default.
    """

    addresses: Annotated[
        Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_POINTS)]
        | Annotated[dict[str, str], Meta(min_length=1, max_length=MAX_POINTS)],
        Meta(description="A list of addresses, or names and their addresses."),
    ]
    accept: Accept = "good"
    default: Default = None
    value: Output[float] = Output(description="The value of the first point.")
    values: Output[dict[str, float]] = Output(description="All values: by name, or else by address.")
    quality: Output[str] = Output(description="The worst quality of what was read, whatever was sent instead.")

    async def execute(self) -> None:
        wanted = self.addresses if isinstance(self.addresses, dict) else {text: text for text in self.addresses}
        room = self.room
        await room.look()
        try:
            found = await room.board.read(list(wanted.values()))
        except Invalid as error:
            message = f"node {self.node_id!r}: {'; '.join(p.hint for p in error.problems) or error.message}"
            raise NodeValidationException(message, ["addresses"], self.node_id, hint=error.hint) from error
        await self._send(dict(zip(wanted, found, strict=True)), self.accept, self.default)

    @classmethod
    def check_config(cls, config: dict[str, Any], inputs: Sequence[str]) -> list[Problem]:
        given = config.get("addresses")
        if isinstance(given, dict):
            problems = _names(given, "addresses")
            return problems + [p for name, text in given.items() for p in _address(text, f"addresses.{name}")]
        found = enumerate(given) if isinstance(given, (list, tuple)) else ()
        return [problem for at, text in found for problem in _address(text, f"addresses[{at}]")]


@node("model_read", category="source", open_outputs=True)
class ModelRead(_Reader):
    """Reads what a model has computed, and sends each field at the output of its name.

    Fails when a field is not good enough, unless there is a default.
    """

    model: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$", description="Name of the model.")]
    fields: Annotated[
        tuple[Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")], ...],
        Meta(max_length=MAX_POINTS, description="Which of its outputs; all if empty."),
    ] = ()
    accept: Accept = "good"
    default: Default = None
    value: Output[float] = Output(description="The value of the first field.")
    values: Output[dict[str, float]] = Output(description="All values by field.")
    quality: Output[str] = Output(description="The worst quality of what was read, whatever was sent instead.")

    async def execute(self) -> None:
        room = self.room
        fields: Sequence[str] = self.fields
        if not fields:
            try:
                spec = await room.models.get_spec(self.model)
            except NotFound as error:
                message = f"node {self.node_id!r}: {error.message}"
                raise NodeExecutionException(message, self.node_id, hint=error.hint) from error
            fields = [output.field for output in spec.outputs]
        if not fields:
            raise NodeExecutionException(f"node {self.node_id!r}: model {self.model!r} has no outputs", self.node_id)
        found = await room.board.read([Address.model(self.model, field) for field in fields])
        await self._send(dict(zip(fields, found, strict=True)), self.accept, self.default)

    @classmethod
    def check_config(cls, config: dict[str, Any], inputs: Sequence[str]) -> list[Problem]:
        model = config.get("model")
        if isinstance(model, str) and ID.fullmatch(model) is not None and not is_id(model):
            return [Problem("bad_name", "model", f"{model!r} is a reserved word, so no model is called so")]
        return []


@node("command", category="io")
class SendCommand(_PointNode):
    """Sends a command to a device and waits for its end, without holding a place at a worker.

    One command at most per node and cycle: a further attempt finds the one that was sent and how it ended.
    """

    address: Annotated[str, Meta(max_length=200, description="The point to write, of kind c or a.")] = ""
    model: Annotated[str, Meta(max_length=64, description="Instead of an address: the model …")] = ""
    field: Annotated[str, Meta(max_length=64, description="… and its control to write.")] = ""
    reason: Annotated[str, Meta(max_length=500, description="Why, for the record.")] = ""
    wait: Annotated[bool, Meta(description="Whether to wait until it has ended.")] = True
    timeout: Annotated[float, Meta(gt=0, le=86_400, description="How long to wait, in seconds.")] = 60.0
    expiry: Annotated[
        Annotated[float, Meta(gt=0, le=3600)] | None,
        Meta(description="Seconds that it may wait to be carried out; else as the settings say."),
    ] = None
    on_failure: Annotated[
        Literal["fail", "go_on"], Meta(description="What a command that does not succeed means for this node.")
    ] = "fail"
    setpoint: Input[float | bool] = Input(name="value", description="What to write.")
    sent: Output[dict[str, Any]] = Output(name="command", description="{id, status, result, message, actual}.")
    status: Output[str] = Output(description="Its status: success, failed, timeout, cancelled; pending without `wait`.")

    async def execute(self) -> None:
        room = self.room
        state = self.state or {}
        command_id = state.get("command")
        if command_id is None:
            command_id = await self._submit(room, state.get("key", ""))
            if self.wait:
                raise Suspend(FIRST_LOOK_S, {"command": command_id, "until": time.time() + self.timeout})
        try:
            command = await room.commands.get(command_id)
        except NotFound as error:
            raise NodeExecutionException(f"node {self.node_id!r}: {error.message}", self.node_id) from error
        if self.wait and not command.status.is_final:
            self._wait_on(command, state)
        await self._report(command)

    def _wait_on(self, command: Command, state: dict[str, Any]) -> NoReturn:
        left_s = state["until"] - time.time()
        if left_s <= 0:
            message = f"command {command.id} of node {self.node_id!r} is still {command.status}"
            raise NodeTimeoutException(message, self.timeout, self.node_id)
        raise Suspend(min(LOOK_S, left_s), state)

    async def _report(self, command: Command) -> None:
        if self.wait and command.status is not CommandStatus.SUCCESS:
            said = f": {command.message}" if command.message else ""
            message = f"command {command.id} to {command.address} ended {command.status}{said}"
            if self.on_failure == "fail":
                raise NodeExecutionException(message, self.node_id, code="command_failed")
            await self.persist_log(message, "WARNING")
        shown = ("id", "status", "result", "message", "actual")
        await self.sent.send({name: msgspec.to_builtins(getattr(command, name)) for name in shown})
        await self.status.send(command.status.value)

    async def _submit(self, room: Room, key: str) -> str:
        request = CommandRequest(
            address=self.address, model=self.model, field=self.field, value=float(self.setpoint.value),
            reason=self.reason, source=SOURCE, who=f"flow {self.flow_id}", expiry_s=self.expiry,
            idempotency_key=key or self._key(),
        )  # fmt: skip
        try:
            accepted = await room.commands.submit(request)
        except (Invalid, NotFound) as error:
            message = f"node {self.node_id!r}: {error.message}"
            raise NodeValidationException(message, ["value"], self.node_id, hint=error.hint) from error
        except Conflict as error:
            raise NodeExecutionException(
                f"node {self.node_id!r}: {error.message}", self.node_id, code=error.code, hint=error.hint
            ) from error
        if accepted.note:
            await self.persist_log(f"Command {accepted.id}: {accepted.note}", "WARNING")
        return accepted.id

    def _key(self) -> str:
        """The same whenever this node of this cycle is run again, and never that of another cycle.

        Flow, cycle and node do not do: a flow that was deleted and made again counts its cycles anew. The signal that
        brought the value has an id of its own; without one, the node makes an id and has it stored first.
        """
        signals = (item.signal for item in self.call.arrived if item.target_handle == "value")
        found = next((signal.id for signal in signals if signal is not None), None)
        if found is None:
            raise Suspend(0, {"key": f"flow:{new_id()}"})
        return f"flow:{self.node_id}:{found}"

    @classmethod
    def check_config(cls, config: dict[str, Any], inputs: Sequence[str]) -> list[Problem]:
        address, model, field = (config.get(name) or "" for name in ("address", "model", "field"))
        if bool(address) == bool(model or field) or bool(model) != bool(field):
            return [Problem("no_target", "address", "give either an address, or model and field")]
        problems = _address(address, "address") if address else []
        if address and not problems and (found := Address.parse(address)).kind not in ("c", "a"):
            problems.append(
                Problem("not_writable", "address", f"points of kind {found.kind} are read only; use c or a")
            )
        return problems


def _address(text: Any, path: str) -> list[Problem]:
    try:
        Address.parse(text if isinstance(text, str) else str(text))
    except Invalid as error:
        return [Problem("bad_address", path, f"{error.message}; {error.hint}")]
    return []


def _names(names: Iterable[str], path: str) -> list[Problem]:
    taken = [
        Problem("name_taken", f"{path}.{name}", "an output is called so already") for name in names if name in OUTPUTS
    ]
    bad = [name for name in names if ID.fullmatch(name) is None]
    return taken + [Problem("bad_name", f"{path}.{name}", "1 to 64 letters, digits, _ or -") for name in bad]
