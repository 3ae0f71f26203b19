"""Storing a round: outputs, memory and cursor in one script; refused if another one computes or definitions changed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set
from enum import Enum

import msgspec
import structlog

from tradewind.ids import short_random
from tradewind.models.network import Network
from tradewind.models.outputs import Change, Sample
from tradewind.models.program import BAD, SUBSTITUTED, UNCERTAIN
from tradewind.models.state import StateDump
from tradewind.points.address import MEASUREMENT
from tradewind.points.board import Board
from tradewind.points.plane import PointPlane
from tradewind.redis.faults import WrongType
from tradewind.redis.key_types import expected_type
from tradewind.redis.scripts import Arg, Scripts
from tradewind.redis.text import text_of

log = structlog.get_logger(__name__)
#: Keys whose types are asked for with one call.
KEYS_A_LOOK = 1_000
#: Models whose outputs one call writes, so that no call keeps the server for long.
MODELS_A_CALL = 4_000
#: Outputs that one call of the board takes.
OUTPUTS_A_CALL = 20_000
_WORDS = {UNCERTAIN: "uncertain", BAD: "bad", SUBSTITUTED: "substituted"}
_pack = msgspec.msgpack.Encoder().encode


class Outcome(Enum):
    STORED = 1
    DEPOSED = 0
    OUTDATED = -1


class RoundStore:
    """For one term of the lead and one version of the definitions, of which `network` is made."""

    def __init__(
        self, plane: PointPlane, board: Board, network: Network, engine_id: str, epoch: int, version: str
    ) -> None:
        self.version = version
        self._network = network
        self._states = StateDump(network)
        self._board = board
        self._head: list[Arg] = [engine_id, epoch, version]
        self._plane = plane
        self._task: asyncio.Task[Outcome] | None = None
        self._cursor: dict[str, str] = {}
        self._ttl_ms = plane.all_settings.models.output_ttl_days * 86_400_000
        self._places: dict[str, tuple[str, str, tuple[str, ...]]] = {}
        self._nonce = f"{short_random()}{epoch}."
        self._count = 0
        self._told: set[str] = set()
        keys = plane.keys
        self._names = [
            keys.models_leader(),
            keys.models_epoch(),
            keys.models_version(),
            keys.model_states(),
            keys.feed_cursors(),
        ]
        self._scripts = Scripts(plane.link, "tradewind.models", plane.all_settings.redis.max_retries)

    def begin(self, changes: Sequence[Change], cursor: Sequence[str], *, is_tick: bool = False) -> None:
        """Start to store a round; `finished` must be awaited before the next. The network may go on meanwhile.

        `cursor`: field, value, … as the feed gave it; one without an effect waits for the next effect or tick.
        """
        self._cursor.update(zip(cursor[::2], cursor[1::2], strict=True))
        dirty = self._network.dirty
        if not changes and not dirty and not (is_tick and self._cursor):
            return
        states = self._states.fields(dirty)
        dirty.clear()
        moved = [part for pair in self._cursor.items() for part in pair]
        self._cursor.clear()
        self._task = asyncio.create_task(self._store(changes, moved, states), name="model round")

    async def finished(self) -> Outcome:
        """What became of the round begun last. Raises Unavailable. Unless it was stored, the network knows more than
        Redis and must be made anew."""
        task, self._task = self._task, None
        return Outcome.STORED if task is None else await task

    async def close(self) -> None:
        """Drop a round that nobody waits for any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _store(self, changes: Sequence[Change], cursor: Sequence[str], states: dict[str, bytes]) -> Outcome:
        # Only the last call has memory and cursor: should the engine die before it, the same outputs are written again.
        *first, last = _pieces(changes)
        for piece in first:
            outcome = await self._call(piece, (), {})
            if outcome is not Outcome.STORED:
                return outcome
        return await self._call(last, cursor, states)

    async def _call(self, changes: Sequence[Change], cursor: Sequence[str], states: dict[str, bytes]) -> Outcome:
        args: list[Arg] = [*self._head, len(cursor) // 2, len(states), *cursor]
        for field, data in states.items():
            args += (field, data)
        try:
            return await self._commit(changes, args)
        except WrongType as error:
            spoilt = await self._spoilt({change.model for change in changes})
            if not spoilt:
                raise
            if not spoilt <= self._told:  # once, not with each round
                log.error("model_outputs_not_written", models=sorted(spoilt), error=error.message)
            self._told |= spoilt
        # What was written before the call failed is late or a duplicate now, and is told to nobody as news.
        return await self._commit([change for change in changes if change.model not in spoilt], args)

    async def _commit(self, changes: Sequence[Change], args: Sequence[Arg]) -> Outcome:
        keys, board_args = self._packed(changes)
        return Outcome(await self._scripts.run("model_commit", [*self._names, *keys], [*args, *board_args]))

    async def _spoilt(self, models: Set[str]) -> set[str]:
        """The models of whose keys one holds another type than it should: nobody can write or read their outputs."""
        places = [(model, name) for model in models for name in self._places[model][2]]
        found: set[str] = set()
        for start in range(0, len(places), KEYS_A_LOOK):
            part = places[start : start + KEYS_A_LOOK]
            kinds = await self._plane.home.ask([("TYPE", name) for _, name in part])
            found |= {
                model
                for (model, name), kind in zip(part, kinds, strict=True)
                if text_of(kind) not in ("none", expected_type(name))
            }
        return found

    def _packed(self, changes: Sequence[Change]) -> tuple[list[str], list[Arg]]:
        """As `Board.pack` would have it (see lua/board.lua), but values and names need no second check here, which is
        half of what a round costs."""
        keys, args = self._board.pack(())
        args[-1] = len(changes)
        self._count += 1
        nonce = f"{self._nonce}{self._count:x}"
        for change in changes:
            key, channel, names = self._places.get(change.model) or self._place(change.model)
            keys += names
            args += (key, channel, *_texts(change.fields), "", "modsrv", self._ttl_ms, nonce)
        return keys, args

    def _place(self, model: str) -> tuple[str, str, tuple[str, ...]]:
        keys = self._plane.keys
        # the last one as board.lua wants it: no substitutions
        names = (keys.model_values, keys.model_ts, keys.model_quality, keys.model_mark, keys.model_values)
        key = f"modsrv:{model}:{MEASUREMENT}"
        found = key, keys.channel_prefix + key, tuple(make(model, MEASUREMENT) for make in names)
        self._places[model] = found
        return found


def _texts(fields: dict[str, Sample]) -> tuple[int, str, str, bytes, str]:
    """Time of all or 0, time of each, values, the same packed, qualities."""
    if len(fields) == 1:  # most models have one output
        [(field, sample)] = fields.items()
        value = f"{sample.value:.6f}"
        mark = f"{field}:{_WORDS[sample.quality]}" if sample.quality else ""
        return sample.ts_ms, "", f"{field}:{value}", _pack((field, value)), mark
    flat: list[str] = []
    for field, sample in fields.items():
        flat += (field, f"{sample.value:.6f}")
    times = [sample.ts_ms for sample in fields.values()]
    is_one = len(set(times)) == 1
    each = "" if is_one else ",".join(map(str, times))
    values = ",".join(map(":".join, zip(flat[::2], flat[1::2], strict=True)))
    marks = ",".join(f"{field}:{_WORDS[sample.quality]}" for field, sample in fields.items() if sample.quality)
    return times[0] if is_one else 0, each, values, _pack(flat), marks


def _pieces(changes: Sequence[Change]) -> list[list[Change]]:
    pieces: list[list[Change]] = [[]]
    count = 0
    for change in changes:
        if len(pieces[-1]) == MODELS_A_CALL or (pieces[-1] and count + len(change.fields) > OUTPUTS_A_CALL):
            pieces.append([])
            count = 0
        pieces[-1].append(change)
        count += len(change.fields)
    return pieces
