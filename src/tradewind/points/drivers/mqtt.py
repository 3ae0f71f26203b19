"""MQTT 3.1.1 through aiomqtt: values come as messages, writes go out as messages that the broker confirms."""

from __future__ import annotations

import asyncio
import contextlib
import math
import ssl
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, ClassVar, Final

import aiomqtt

from tradewind.clock import now_ms
from tradewind.documents import must_be_file
from tradewind.errors import Invalid, Problem
from tradewind.points.driver import Deliver, DeviceTrouble, Driver
from tradewind.points.drivers.mqtt_topics import Payload, Source, number_of, sinks_of, sources_of
from tradewind.points.drivers.parameters import unknown_names, whole_numbers
from tradewind.points.spec import ChannelSpec, Kind, PointSpec, Quality, Reading

#: Messages that wait to be handed over; what comes while so many wait is dropped and counted.
MAX_WAITING = 20_000
#: Payloads above this size are refused unread, since decoding them holds up every other channel of the process: unless
#: the channel says otherwise, and the most that it may say.
PAYLOAD_BYTES = 65_536
MAX_PAYLOAD_BYTES = 1_048_576
#: Messages handed over at once at most, and bytes of them.
BATCH = 500
BATCH_BYTES = 262_144
_RETAINED: Final = ("good", "uncertain", "ignore")
_TLS: Final = ("ca_file", "cert_file", "key_file", "verify")
PARAMETERS: Final = (
    "host", "port", "username", "password", "client_id", "keepalive_s", "tls", "topic", "qos", "retain", "json_path",
    "timestamp_path", "payload", "write_topic", "write_payload", "retained", "status_topic",
    "status_online", "status_offline", "max_payload_bytes", "clean_session",
)  # fmt: skip


class _Inbox(asyncio.Queue[aiomqtt.Message]):
    """Counts what it cannot take; aiomqtt only logs it."""

    lost = 0

    def put_nowait(self, item: aiomqtt.Message) -> None:
        try:
            super().put_nowait(item)
        except asyncio.QueueFull:
            self.lost += 1
            raise


class MqttDriver(Driver):
    """Parameters: host, port 1883 (8883 with tls), username, password, client_id, keepalive_s 15, tls (true, or any of
    ca_file, cert_file, key_file, verify).

    For points whose mapping does not name them: topic, qos, json_path, timestamp_path, payload, write_topic,
    write_payload, retain. `retained`: what a retained message without a time of its own is worth (good, uncertain,
    ignore; default uncertain). `status_topic`: where the device, or its last will, says whether it is online, in words
    like online and offline, or in those of status_online and status_offline. `max_payload_bytes` 65536, at most 1 MB:
    larger messages are refused and counted. `clean_session` false, with a client_id: the broker keeps what comes at QoS
    1 and 2 while the channel is reloaded, the connection lost or the station away.
    """

    protocol: ClassVar[str] = "mqtt"
    is_polled: ClassVar[bool] = False

    def __init__(self, channel: ChannelSpec) -> None:
        super().__init__(channel)
        given = channel.parameters
        self._timeout_s = channel.timeout_ms / 1000
        self._sources = sources_of(channel, [])
        self._sinks = {(sink.point.kind, sink.point.id): sink for sink in sinks_of(channel, [])}
        self._exact: dict[str, list[Source]] = defaultdict(list)
        self._wild: list[Source] = []
        for source in self._sources:
            if "+" in source.topic or "#" in source.topic:
                self._wild.append(source)
            else:
                self._exact[source.topic].append(source)
        self._retained = given.get("retained") or "uncertain"
        self._max_payload = int(given.get("max_payload_bytes") or PAYLOAD_BYTES)
        self._status_topic = str(given.get("status_topic") or "").replace("{channel}", channel.id)
        self._is_offline = False
        #: What points have said since the last write.
        self._answers: dict[tuple[str, str], Reading] = {}
        self._refused: list[PointSpec] = []
        self._client: aiomqtt.Client | None = None
        self._deliver: Deliver | None = None

    @classmethod
    def check(cls, channel: ChannelSpec) -> list[Problem]:
        given, problems = channel.parameters, []
        if not isinstance(given.get("host"), str) or not given["host"]:
            problems.append(Problem("missing", "parameters.host", "name the broker's address"))
        bounds = {"port": (1, 65535), "keepalive_s": (1, 65535), "max_payload_bytes": (1, MAX_PAYLOAD_BYTES)}
        problems += whole_numbers(given, bounds)
        if given.get("retained", "good") not in _RETAINED:
            problems.append(Problem("bad_value", "parameters.retained", f"give one of {', '.join(_RETAINED)}"))
        is_clean = given.get("clean_session", True)
        if not isinstance(is_clean, bool):
            problems.append(Problem("bad_value", "parameters.clean_session", "give true or false"))
        elif not is_clean and not given.get("client_id"):
            hint = "the broker keeps messages for a name: give one that no other client has"
            problems.append(Problem("missing", "parameters.client_id", hint))
        problems += unknown_names(given, PARAMETERS)
        tls = given.get("tls")
        if isinstance(tls, dict):
            problems += unknown_names(tls, _TLS, "parameters.tls")
        elif tls is not None and not isinstance(tls, bool):
            problems.append(Problem("bad_value", "parameters.tls", f"give true, or any of {', '.join(_TLS)}"))
        sources_of(channel, problems)
        sinks_of(channel, problems)
        return problems

    async def connect(self) -> None:
        given = self.channel.parameters
        tls = given.get("tls")
        client = aiomqtt.Client(
            str(given.get("host")),
            int(given.get("port") or (8883 if tls else 1883)),
            username=given.get("username") or None,
            password=given.get("password") or None,
            identifier=given.get("client_id") or None,
            clean_session=given.get("clean_session") is not False,
            keepalive=int(given.get("keepalive_s") or 15),
            timeout=self._timeout_s / 2,
            tls_context=await asyncio.to_thread(_tls_context, tls) if tls else None,
            max_queued_incoming_messages=MAX_WAITING,
            queue_type=_Inbox,
        )
        inner: Any = client._client  # aiomqtt has no option for it, and paho's own 5 s may be longer than ours
        inner.connect_timeout = self._timeout_s / 2
        try:
            async with asyncio.timeout(self._timeout_s):
                await client.__aenter__()
                # Now and not in `listen`: what is sent to a channel that counts as online must not be missed.
                self._refused = await self._subscribe(client)
        except (aiomqtt.MqttError, TimeoutError, ValueError) as error:
            with contextlib.suppress(Exception):
                inner.disconnect()  # or a connection that was never confirmed would stay open
            raise self._trouble(f"does not let us in: {error or 'no answer'}") from error
        self._client = client

    async def listen(self, deliver: Deliver) -> None:
        client = self._connected()
        self._deliver = deliver
        try:
            if self._refused:
                deliver([_nothing(point) for point in self._refused])
            messages = client.messages
            async for message in messages:
                batch, size = [message], _size(message)
                while len(messages) and len(batch) < BATCH and size < BATCH_BYTES:
                    batch.append(await anext(messages))
                    size += _size(batch[-1])
                is_back = self._hand_over(client, batch)
                if is_back:  # what is retained comes again to whoever subscribes again
                    await self._subscribe(client)
        except aiomqtt.MqttError as error:
            raise self._trouble(f"is gone: {error}") from error
        raise self._trouble("closed the connection")

    def _hand_over(self, client: aiomqtt.Client, messages: Iterable[aiomqtt.Message]) -> bool:
        """True when the device has come back."""
        readings, is_back = self._readings(messages)
        inbox: Any = client._queue  # aiomqtt does not tell what it discards
        self.dropped = inbox.lost
        if readings and self._deliver is not None:
            self._deliver(readings)
        return is_back

    async def write(self, point: PointSpec, raw: float) -> None:
        sink = self._sinks.get((point.kind, point.id))
        if sink is None:
            hint = "give its mapping a write_topic"
            raise Invalid(f"point {point.id} has no topic to write to", code="not_mapped", hint=hint)
        client = self._connected()
        message = sink.message(self.channel, raw, now_ms())
        self._answers.clear()
        try:
            async with asyncio.timeout(self._timeout_s):
                await client.publish(sink.topic, message, sink.qos, sink.retain, timeout=self._timeout_s)
        except (aiomqtt.MqttError, TimeoutError) as error:
            raise self._trouble(f"did not confirm a message on {sink.topic!r}: {error or 'no answer'}") from error

    async def read(self, point: PointSpec) -> Reading | None:
        """What the point has said since the last write, also when that is what it said before; None: nothing yet."""
        return self._answers.get((point.kind, point.id))

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(aiomqtt.MqttError, TimeoutError, OSError, RuntimeError):
                async with asyncio.timeout(self._timeout_s):
                    await client.__aexit__(None, None, None)
            inbox: Any = client._queue
            self._hand_over(client, [inbox.get_nowait() for _ in range(inbox.qsize())])  # the broker knows them taken

    def _connected(self) -> aiomqtt.Client:
        if self._client is None:
            raise self._trouble("is not connected")
        return self._client

    async def _subscribe(self, client: aiomqtt.Client) -> list[PointSpec]:
        """Ask for every topic; the points of those that the broker refuses."""
        levels: dict[str, int] = {}
        if self._status_topic:
            levels[self._status_topic] = 1
        for source in self._sources:
            levels[source.topic] = max(source.qos, levels.get(source.topic, 0))
        topics, refused = list(levels.items()), set()
        for start in range(0, len(topics), BATCH):
            part = topics[start : start + BATCH]
            codes = await client.subscribe(part)
            refused |= {topic for (topic, _), code in zip(part, codes, strict=True) if _is_refusal(code)}
        return [source.point for source in self._sources if source.topic in refused]

    def _readings(self, messages: Iterable[aiomqtt.Message]) -> tuple[list[Reading], bool]:
        """What the messages say, in order, and whether the device has come back."""
        readings: list[Reading] = []
        is_back = False
        for message in messages:
            topic, payload = message.topic.value, message.payload
            if not isinstance(payload, bytes):
                continue
            if len(payload) > self._max_payload:
                self.refused += 1
                continue
            if topic == self._status_topic:
                was_offline, self._is_offline = self._is_offline, self._says_offline(payload)
                is_back = (is_back or was_offline) and not self._is_offline
                if self._is_offline:
                    readings += [_nothing(source.point) for source in self._sources]
            sources = self._exact.get(topic, [])
            if self._wild:
                sources = sources + [source for source in self._wild if message.topic.matches(source.topic)]
            said = Payload(payload)
            for source in sources:
                reading = self._judged(source.read(said), bool(message.retain))
                if reading is not None:
                    readings.append(reading)
                    if not message.retain:
                        self._answers[reading.kind, reading.id] = reading
        return readings, is_back

    def _judged(self, reading: Reading, is_retained: bool) -> Reading | None:
        if not is_retained or reading.quality is not Quality.GOOD:
            return reading
        quality = Quality.GOOD
        if reading.ts_ms == 0 and self._retained != "good":
            if self._retained == "ignore":
                return None
            quality = Quality.UNCERTAIN
        if self._is_offline:  # the last words of a device that the broker has already declared dead
            quality = Quality.BAD
        return Reading(reading.kind, reading.id, reading.raw, reading.ts_ms, quality)

    def _says_offline(self, payload: bytes) -> bool:
        given = self.channel.parameters
        text = payload.decode("utf-8", "replace").strip()
        if (said := given.get("status_offline")) is not None:
            return text == str(said)
        if (said := given.get("status_online")) is not None:
            return text != str(said)
        return number_of(text) == 0

    def _trouble(self, what: str) -> DeviceTrouble:
        given = self.channel.parameters
        where = f"{given.get('host')}:{given.get('port') or (8883 if given.get('tls') else 1883)}"
        return DeviceTrouble(
            f"channel {self.channel.id}: the MQTT broker at {where} {what}",
            hint="check the broker, host, port, username and password of the channel",
        )


def _nothing(point: PointSpec) -> Reading:
    return Reading(Kind(point.kind), point.id, math.nan, 0, Quality.BAD)


def _size(message: aiomqtt.Message) -> int:
    return len(message.payload) if isinstance(message.payload, bytes) else 0


def _is_refusal(code: Any) -> bool:
    return int(getattr(code, "value", code)) >= 128


def _tls_context(given: Any) -> ssl.SSLContext:
    options = given if isinstance(given, dict) else {}
    try:
        for name in ("ca_file", "cert_file", "key_file"):
            if options.get(name):
                must_be_file(str(options[name]))
        context = ssl.create_default_context(cafile=options.get("ca_file") or None)
        if options.get("cert_file"):
            context.load_cert_chain(options["cert_file"], options.get("key_file") or None)
    except (OSError, Invalid) as error:  # also ssl.SSLError
        message = f"cannot use the certificates of parameters.tls: {error}"
        raise DeviceTrouble(message, hint="check ca_file, cert_file and key_file") from error
    if options.get("verify") is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
