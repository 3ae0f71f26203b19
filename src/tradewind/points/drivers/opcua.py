"""OPC UA through asyncua: values come by subscription with their source times and status codes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from asyncua import ua
from asyncua.client.client import Client
from asyncua.client.ua_client import UaClientState
from asyncua.common.node import Node
from asyncua.ua.status_codes import StatusCodes
from asyncua.ua.uaerrors import UaError, UaStatusCodeError

from tradewind.errors import Invalid, Problem
from tradewind.points.driver import Deliver, DeviceTrouble, Driver
from tradewind.points.drivers.opcua_values import (
    TYPES,
    has_overflowed,
    node_id_of,
    nothing,
    reading_of,
    said,
    variant_of,
)
from tradewind.points.drivers.parameters import unknown_names, whole_numbers
from tradewind.points.spec import ChannelSpec, Kind, PointSpec, Reading

# The channel's status and its own log line say it already.
logging.getLogger("asyncua").setLevel(logging.CRITICAL)

#: Nodes per request; servers limit it.
CHUNK = 500
#: Changes that wait to be handed over; beyond that the oldest go.
MAX_WAITING = 100_000
PARAMETERS: Final = (
    "endpoint",
    "username",
    "password",
    "publishing_interval_ms",
    "sampling_interval_ms",
    "queue_size",
)
# Status codes that say nothing about what became of a write.
_LOST: Final = frozenset(
    getattr(StatusCodes, name)
    for name in (
        "BadTimeout", "BadRequestTimeout", "BadConnectionClosed", "BadSecureChannelClosed", "BadSessionClosed",
        "BadSessionIdInvalid", "BadShutdown", "BadServerHalted", "BadCommunicationError", "BadNoCommunication",
        "BadConnectionRejected", "BadDisconnect", "BadServerNotConnected", "BadUnknownResponse", "BadInternalError",
        "BadUnexpectedError", "BadDeviceFailure", "BadTcpInternalError", "BadRequestInterrupted",
    )
)  # fmt: skip


class OpcUaDriver(Driver):
    """Parameters: endpoint (`opc.tcp://host:4840`), username and password (else anonymous), publishing_interval_ms 500,
    sampling_interval_ms (the same), queue_size 10: how many changes of a node the server keeps between two publishings.

    Mapping: node_id (`ns=2;s=Boiler.Temperature`, `nsu=<namespace URI>;i=7`), data_type where the server's is not to be
    used for writing.
    """

    protocol: ClassVar[str] = "opcua"
    is_polled: ClassVar[bool] = False

    def __init__(self, channel: ChannelSpec) -> None:
        super().__init__(channel)
        self._timeout_s = channel.timeout_ms / 1000
        self._client: Client | None = None
        self._nodes: dict[tuple[str, str], Node] = {}
        self._types: dict[tuple[str, str], ua.VariantType] = {}
        self._waiting: deque[Reading] = deque()
        self._deliver: Deliver | None = None
        self._news = asyncio.Event()
        self._lost = ""
        self._points: dict[ua.NodeId, list[PointSpec]] = defaultdict(list)

    @classmethod
    def check(cls, channel: ChannelSpec) -> list[Problem]:
        given, problems = channel.parameters, []
        endpoint = given.get("endpoint")
        if not isinstance(endpoint, str) or not endpoint.startswith("opc.tcp://"):
            problems.append(Problem("missing", "parameters.endpoint", "name it like opc.tcp://192.0.2.20:4840"))
        bounds = {"publishing_interval_ms": (10, 3_600_000), "sampling_interval_ms": (0, 3_600_000)}
        problems += whole_numbers(given, bounds | {"queue_size": (1, 10_000)})
        problems += unknown_names(given, PARAMETERS)
        for at, point in enumerate(channel.points):
            where = f"points[{at}].mapping"
            try:
                node_id_of(point)
            except Invalid as error:
                problems.append(Problem(error.code, f"{where}.node_id", error.hint))
            named = point.mapping.get("data_type")
            if named and str(named).lower() not in TYPES:
                hint = f"give one of {', '.join(sorted(set(TYPES.values())))}"
                problems.append(Problem("bad_data_type", f"{where}.data_type", hint))
        return problems

    async def connect(self) -> None:
        given = self.channel.parameters
        client = Client(
            str(given.get("endpoint")), timeout=self._timeout_s, watchdog_intervall=min(1.0, self._timeout_s)
        )
        client.name = "Tradewind"
        if given.get("username"):
            client.set_user(str(given["username"]))
            client.set_password(str(given.get("password") or ""))
        try:
            async with asyncio.timeout(self._timeout_s):
                await client.connect()
                self._client = client
                await self._find_nodes(client)
        except Exception as error:  # asyncua raises whatever a strange answer makes it stumble over
            await self._leave(client)
            raise self._trouble(f"does not let us in: {said(error)}") from error

    async def listen(self, deliver: Deliver) -> None:
        self._deliver = deliver
        client, given = self._connected(), self.channel.parameters
        interval = float(given.get("publishing_interval_ms") or 500)
        read = [p for p in self.channel.points if p.kind in (Kind.MEASUREMENT, Kind.SIGNAL)]
        deliver_first = [nothing(point) for point in read if (point.kind, point.id) not in self._nodes]
        for point in read:
            if (node := self._nodes.get((point.kind, point.id))) is not None:
                self._points[node.nodeid].append(point)
        try:
            async with asyncio.timeout(None) as limit:
                loop = asyncio.get_running_loop()
                limit.reschedule(loop.time() + self._timeout_s)
                subscription = await client.create_subscription(interval, self)
                nodes = [client.get_node(node_id) for node_id in self._points]
                for start in range(0, len(nodes), CHUNK):
                    limit.reschedule(loop.time() + self._timeout_s)
                    deliver_first += await self._monitor(subscription, nodes[start : start + CHUNK], interval)
        except (UaError, OSError, TimeoutError, RuntimeError) as error:
            raise self._trouble(f"does not let us subscribe: {said(error)}") from error
        if deliver_first:
            deliver(deliver_first)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(1.0, self._timeout_s)):
                    await self._news.wait()
            self._news.clear()
            if self._waiting:
                batch, self._waiting = list(self._waiting), deque()
                deliver(batch)
            if self._lost or client.state is not UaClientState.CONNECTED:
                raise self._trouble(f"is gone{': ' if self._lost else ''}{self._lost}")

    async def _monitor(self, subscription: Any, nodes: list[Node], interval: float) -> list[Reading]:
        """Watch these nodes; bad readings for the points of those that the server refuses."""
        given = self.channel.parameters
        sampling = given.get("sampling_interval_ms")
        handles = await subscription.subscribe_data_change(
            nodes,
            queuesize=int(given.get("queue_size") or 10),
            sampling_interval=interval if sampling is None else float(sampling),
        )
        return [
            nothing(point)
            for node, handle in zip(nodes, handles, strict=True)
            if isinstance(handle, ua.StatusCode)
            for point in self._points[node.nodeid]
        ]

    def datachange_notification(self, node: Node, value: Any, data: Any) -> None:
        """Called by asyncua for each change."""
        found = data.monitored_item.Value
        self._waiting += [reading_of(point, found) for point in self._points.get(node.nodeid, ())]
        if has_overflowed(found):  # the server's own queue was full: queue_size is too small
            self.dropped += 1
        while len(self._waiting) > MAX_WAITING:
            self._waiting.popleft()
            self.dropped += 1
        self._news.set()

    def status_change_notification(self, status: Any) -> None:
        """Called by asyncua when the subscription ends."""
        code = getattr(status, "Status", None)
        if code is None or not code.is_good():
            self._lost = f"the subscription ended ({getattr(code, 'name', code)})"
            self._news.set()

    async def read(self, point: PointSpec) -> Reading | None:
        node = self._nodes.get((point.kind, point.id))
        if node is None:
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                return reading_of(point, await node.read_data_value(raise_on_bad_status=False))
        except (UaError, OSError, TimeoutError) as error:
            raise self._trouble(f"cannot be read: {said(error)}") from error

    async def write(self, point: PointSpec, raw: float) -> None:
        self._connected()
        key = (point.kind, point.id)
        node = self._nodes.get(key)
        if node is None:
            hint = "correct the node_id of its mapping"
            raise Invalid(f"point {point.id} has no node on the server", code="not_mapped", hint=hint)
        try:
            async with asyncio.timeout(self._timeout_s):
                if key not in self._types:
                    self._types[key] = await self._type_of(point, node)
                # Without times: many servers refuse a write that brings its own.
                await node.write_value(ua.DataValue(variant_of(point, raw, self._types[key])))
        except UaStatusCodeError as error:
            if error.code in _LOST:
                raise self._trouble(f"did not confirm a write: {said(error)}") from error
            hint = "check the rights of the user, and that the node is writable and of this type"
            message = f"the server refused {raw:g} for {node.nodeid.to_string()}: {said(error)}"
            raise Invalid(message, code="device_refused", hint=hint) from error
        except (UaError, OSError, TimeoutError) as error:
            raise self._trouble(f"did not confirm a write: {said(error)}") from error

    async def _type_of(self, point: PointSpec, node: Node) -> ua.VariantType:
        named = TYPES.get(str(point.mapping.get("data_type") or "").lower())
        if named is not None:
            return ua.VariantType[named]
        found: ua.VariantType = await node.read_data_type_as_variant_type()
        return found

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await self._leave(client)
        if self._waiting and self._deliver is not None:  # the server knows them taken
            self._deliver(list(self._waiting))
            self._waiting.clear()

    async def _leave(self, client: Client) -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(self._timeout_s):
                await client.disconnect()
        with contextlib.suppress(Exception):
            client.disconnect_socket()

    async def _find_nodes(self, client: Client) -> None:
        """Node ids may name their namespace by URI; its number is the server's to choose."""
        spaces: Sequence[str] | None = None
        for point in self.channel.points:
            try:
                uri, node_id = node_id_of(point)
            except Invalid:
                continue
            if uri:
                if spaces is None:
                    spaces = await client.get_namespace_array()
                if uri not in spaces:
                    continue
                node_id = ua.NodeId(node_id.Identifier, ua.Int16(spaces.index(uri)), node_id.NodeIdType)
            self._nodes[point.kind, point.id] = client.get_node(node_id)

    def _connected(self) -> Client:
        if self._client is None:
            raise self._trouble("is not connected")
        return self._client

    def _trouble(self, what: str) -> DeviceTrouble:
        return DeviceTrouble(
            f"channel {self.channel.id}: the OPC UA server at {self.channel.parameters.get('endpoint')} {what}",
            hint="check the server, the endpoint, and username and password of the channel",
        )
