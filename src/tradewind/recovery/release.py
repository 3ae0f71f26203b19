"""The journal of a release (`tradewind apply`): what shall be, and what was, noted before the first change.

A release that is killed on its way leaves its journal: the next one goes on, or it is rolled back.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import structlog

from tradewind import codec
from tradewind.errors import Conflict, Invalid, NotFound, Problem, TradewindError, Unavailable
from tradewind.ids import short_random
from tradewind.offload import offload
from tradewind.problems import Problems
from tradewind.recovery.kind_names import RELEASED
from tradewind.recovery.kinds import Definitions
from tradewind.recovery.restorer import Restored, Restorer, Rooms
from tradewind.redis.connection import translated
from tradewind.redis.faults import reading
from tradewind.redis.scripts import Arg, Scripts
from tradewind.tasks.plane import Plane

log = structlog.get_logger(__name__)
MAX_STEPS = 100_000
#: Steps that are noted with one call.
MAX_ADDED = 1000
#: Things that one release changes, of all kinds, and characters of a name.
MAX_NAMES, MAX_LETTERS = 100_000, 200
#: Of what is read of the journal at once.
PAGE_STEPS, PAGE_BYTES = 100, 4_000_000
#: Names that are read, and characters that are noted with one call, when a release begins.
NAMES, NOTED = 200, 4_000_000
#: How often a rollback says that it goes on, and for how long after that it excludes others.
BEAT_S, FRESH_MS = 2.0, 10_000
_PATH = re.compile(
    r"/(channels|models|rules|rule-groups|notifications/policy|history/policy|flows)(/[^?#]*)?(\?rules=ungroup)?"
)


class Release(msgspec.Struct):
    """`state`: preparing (nothing was changed yet), open, rolling_back. `is_ready`: all steps are noted. `done`: steps
    that were surely carried out; those after it may have been, too, and may be repeated. `id`: of whoever may write
    now; a release that is taken over, or rolled back, gets another one."""

    id: str
    state: str
    note: str
    started_ms: int
    beat_ms: int
    is_ready: bool
    total: int
    done: int


class RolledBack(msgspec.Struct):
    restored: list[str] = []
    removed: list[str] = []
    failed: list[str] = []


class ReleaseJournal:
    def __init__(self, plane: Plane, definitions: Definitions, restorer: Restorer, rooms: Rooms) -> None:
        self._plane = plane
        self._definitions = definitions
        self._restorer = restorer
        self._rooms = rooms
        self._key = plane.keys.release()
        self._scripts = Scripts(plane.link, "tradewind.recovery", plane.all_settings.redis.max_retries)

    async def current(self) -> Release:
        """Raises NotFound when no release is open, Unavailable."""
        fields = ("id", "state", "note", "started_ms", "beat_ms", "is_ready", "total", "done")
        with translated(self._plane.link):
            row = await self._plane.redis.hmget(self._key, fields)
        if row[0] is None:
            raise NotFound("no release is open", code="no_release", hint="nothing is to be resumed or rolled back")
        with reading("the journal of the release"):
            return msgspec.convert(
                {name: (value or b"0").decode(errors="replace") for name, value in zip(fields, row, strict=True)},
                Release,
                strict=False,
            )

    async def begin(self, changes: Mapping[str, Sequence[str]], note: str) -> Release:
        """Note what stands now under these ids, by kind. One that is open is taken over: what was before it stays
        noted, and whoever carries it out is refused from now on. Raises Invalid for too many names; Conflict while a
        rollback is under way, and for what stands there and cannot be noted; Unavailable."""
        if problems := change_problems(changes):
            raise Invalid("the release is not valid", code="bad_release", hint="see problems", problems=problems)
        own = short_random()
        if not await self._scripts.run("release_begin", [self._key], [own, note[:200], FRESH_MS]):
            raise _rolls_back()
        for kind in RELEASED:
            names = list(dict.fromkeys(changes.get(kind, ())))
            for start in range(0, len(names), NAMES):
                await self._note(own, kind, names[start : start + NAMES])
        return await self._of(own)

    async def _note(self, release_id: str, kind: str, names: Sequence[str]) -> None:
        """What was noted before stays."""
        bodies = await self._definitions.standing(kind, names)
        pairs: list[Arg] = []
        size = 0
        for name in names:
            pairs += (f"was:{kind}:{name}", bodies.get(name, ""))
            size += len(bodies.get(name, ""))
            if size > NOTED:
                await self._write(release_id, pairs, "keep")
                pairs, size = [], 0
        await self._write(release_id, pairs, "keep")

    async def add_steps(self, release_id: str, start: int, steps: Sequence[Any], *, is_last: bool) -> None:
        """Requests as they shall be sent, in order: method, path below /api/v1, body. Raises Invalid, Conflict."""
        problems = Problems()
        if len(steps) > MAX_ADDED:
            problems.append(Problem("too_many", "steps", f"at most {MAX_ADDED} at once"))
        elif not 0 <= start <= MAX_STEPS - len(steps):
            problems.append(Problem("out_of_range", "from", f"at most {MAX_STEPS} steps"))
        else:
            for at, step in enumerate(steps):
                problems += _step_problems(step, at)
        if problems:
            raise Invalid("the steps are not valid", code="bad_step", hint="see problems", problems=problems)
        args: list[Arg] = ["total", start + len(steps)]
        for at, step in enumerate(steps):
            args += (f"step:{start + at}", await offload(codec.encode, step))
        if is_last:
            args += ("state", "open", "is_ready", 1)
        await self._write(release_id, args)

    async def steps(self, release_id: str, start: int) -> list[Any]:
        """Some steps from there on, at least one if there are any. Raises Conflict, NotFound."""
        release = await self._of(release_id)
        found: list[Any] = []
        size = 0
        while start + len(found) < release.total and len(found) < PAGE_STEPS and size < PAGE_BYTES:
            with translated(self._plane.link):
                text = await self._plane.redis.hget(self._key, f"step:{start + len(found)}")
            if text is None:
                break
            found.append(await offload(codec.decode, text))  # one may be megabytes
            size += len(text)
        return found

    async def set_done(self, release_id: str, done: int) -> None:
        """The first so many steps were carried out. Raises Conflict when another release has taken over."""
        await self._write(release_id, ["done", done])

    async def finish(self, release_id: str) -> None:
        """All is as it shall be: the journal goes. Raises Conflict."""
        await self._write(release_id, [], "end")

    async def roll_back(self, release_id: str) -> RolledBack:
        """Bring everything back to what was noted; the journal goes when that is done. Whoever carries the release out
        is refused from now on, and no other begins meanwhile. May be repeated. Raises Conflict when somebody else has
        taken over, also on the way."""
        await self._of(release_id)
        own = short_random()
        match await self._scripts.run("release_roll_back", [self._key], [release_id, own, FRESH_MS]):
            case 0:
                raise _taken_over()
            case -1:
                raise _rolls_back()
            case 2:
                return RolledBack()
        result = RolledBack()
        async with self._beating(own):
            rollback = _Rollback(self._restorer, self._rooms, await self._noted(), result, lambda: self._write(own, []))
            await rollback.run()
        log.warning(
            "release_rolled_back", restored=len(result.restored), removed=len(result.removed), failed=result.failed
        )
        if result.failed:
            await self._write(own, ["state", "open"])
        else:
            await self.finish(own)
        return result

    async def _noted(self) -> dict[str, dict[str, str]]:
        """What was before the release: texts by kind and name, an empty one of what was not there."""
        was: dict[str, dict[str, str]] = {kind: {} for kind in RELEASED}
        with translated(self._plane.link):  # some at a time: the steps stand there, too
            async for field, body in self._plane.redis.hscan_iter(self._key, match="was:*", count=PAGE_STEPS):
                kind, _, name = field.decode(errors="replace").removeprefix("was:").partition(":")
                if kind in was:
                    was[kind][name] = body.decode(errors="replace")
        return was

    @asynccontextmanager
    async def _beating(self, release_id: str) -> AsyncIterator[None]:
        """The rollback counts as under way in here; after an error it may be repeated at once."""

        async def beat() -> None:
            while True:
                await asyncio.sleep(BEAT_S)
                with suppress(TradewindError):  # the rollback itself looks who it belongs to
                    await self._write(release_id, [])

        beating = asyncio.create_task(beat(), name="rollback beat")
        try:
            yield
        except BaseException:
            with suppress(TradewindError):
                await self._write(release_id, ["beat_ms", (await self._of(release_id)).beat_ms - FRESH_MS])
            raise
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)

    async def _of(self, release_id: str) -> Release:
        release = await self.current()
        if release.id != release_id:
            raise _taken_over()
        return release

    async def _write(self, release_id: str, pairs: Sequence[Arg], how: str = "set") -> None:
        if not await self._scripts.run("release_write", [self._key], [release_id, how, *pairs]):
            raise _taken_over()


class _Rollback:
    """In the order of a release, so that nothing is needed that is gone: flows that were added go first, channels that
    were added last. What fails is named, the rest is done."""

    def __init__(
        self,
        restorer: Restorer,
        rooms: Rooms,
        was: Mapping[str, Mapping[str, str]],
        result: RolledBack,
        check: Callable[[], Awaitable[None]],
    ) -> None:
        self._restorer = restorer
        self._rooms = rooms
        self._result = result
        self._check = check
        self._old = {kind: {name: body for name, body in found.items() if body} for kind, found in was.items()}
        self._added = {kind: [name for name, body in found.items() if not body] for kind, found in was.items()}

    async def run(self) -> None:
        """Raises Unavailable, and between two kinds what `check` raises."""
        for each in (
            self._put_channels, self._remove_flows, self._put_models, self._put_rules, self._remove_groups,
            self._put_policies, self._put_flows, self._remove_channels,
        ):  # fmt: skip
            await self._check()
            await each()

    async def _put_channels(self) -> None:
        await self._put("channels")

    async def _remove_flows(self) -> None:
        for name in self._added["flows"]:
            await self._try(f"flow {name}", self._rooms.flows.delete(name), is_removal=True)

    async def _put_models(self) -> None:
        old, added = self._old, self._added
        if any(old[kind] or added[kind] for kind in ("templates", "models")):
            templates, models = await offload(self._documents, "templates"), await offload(self._documents, "models")
            change = self._rooms.models.apply(
                models, templates=templates, remove=added["models"], remove_templates=added["templates"]
            )
            await self._try("models", change)

    async def _put_rules(self) -> None:
        old, added = self._old, self._added
        if any(old[kind] or added[kind] for kind in ("groups", "rules")):
            groups, rules = await offload(self._documents, "groups"), await offload(self._documents, "rules")
            await self._try("rules", self._rooms.rules.apply(rules, groups=groups, remove=added["rules"]))

    async def _remove_groups(self) -> None:
        for name in self._added["groups"]:
            await self._try(f"rule group {name}", self._rooms.rules.remove_group(name, "ungroup"), is_removal=True)

    async def _put_policies(self) -> None:
        await self._put("notifications")
        await self._put("history")
        if self._added["notifications"]:  # a policy is never taken away: an empty one tells nobody
            await self._try("notification policy", self._rooms.notify.put({}))
        if self._added["history"]:
            await self._try("history policy", self._rooms.history.put_policy({}))

    async def _put_flows(self) -> None:
        """Those that were never started before the release are stopped."""
        failed = await self._put("flows")
        for name, body in self._old["flows"].items():
            if name not in failed and codec.decode(body)["status"] == "registered":
                await self._try(f"flow {name} (stopped)", self._stop(name))

    async def _stop(self, name: str) -> bool:
        """False: it does not run."""
        if (await self._rooms.flows.get(name))["status"] != "running":
            return False
        await self._rooms.flows.stop(name, "its release was rolled back")
        return True

    async def _remove_channels(self) -> None:
        for name in self._added["channels"]:
            await self._try(f"channel {name}", self._remove_channel(name), is_removal=True)

    async def _put(self, kind: str) -> set[str]:
        """The names of those that could not be put."""
        result = Restored()
        await self._restorer.put(kind, self._old[kind], result, replace=True)
        failed = {item.id for item in result.failed}
        self._result.failed += [f"{kind} {item.id}: {item.error}" for item in result.failed]
        self._result.restored += [f"{kind} {name}" for name in self._old[kind] if name not in failed]
        return failed

    def _documents(self, kind: str) -> list[Any]:
        """Those that can be read, without their versions, which count on; the others are told as failed."""
        found = []
        for name, body in self._old[kind].items():
            try:
                document = codec.decode(body)
            except Invalid as error:
                self._result.failed.append(f"{kind} {name}: {error.message}")
                continue
            is_counted = kind in ("groups", "rules") and isinstance(document, dict)
            found.append({k: v for k, v in document.items() if k != "version"} if is_counted else document)
        return found

    async def _remove_channel(self, name: str) -> None:
        await self._rooms.channels.remove([name])
        await self._rooms.board.remove_channel(name)

    async def _try(self, what: str, doing: Awaitable[Any], *, is_removal: bool = False) -> None:
        try:
            done = await doing
        except Unavailable:
            raise
        except NotFound as error:
            if not is_removal:
                self._result.failed.append(f"{what}: {error.message}")
        except TradewindError as error:
            self._result.failed.append(f"{what}: {error.message}")
        else:
            if done is not False:
                (self._result.removed if is_removal else self._result.restored).append(what)


def change_problems(changes: Mapping[str, Sequence[Any]]) -> list[Problem]:
    """Too many names, before any of them is looked at; names that are none."""
    if sum(map(len, changes.values())) > MAX_NAMES:
        return [Problem("too_many", "changes", f"at most {MAX_NAMES} ids of all kinds")]
    for kind, names in changes.items():
        if kind not in RELEASED or any(not isinstance(name, str) or len(name) > MAX_LETTERS for name in names):
            return [Problem("bad_changes", f"changes.{kind[:MAX_LETTERS]}", f"ids by kind: {', '.join(RELEASED)}")]
    return []


def _step_problems(step: Any, at: int) -> list[Problem]:
    if not isinstance(step, dict) or set(step) - {"method", "path", "body", "what"}:
        return [Problem("not_a_step", f"steps[{at}]", "an object with method, path, body, what")]
    problems = []
    if step.get("method") not in ("PUT", "POST", "DELETE"):
        problems.append(Problem("bad_method", f"steps[{at}].method", "PUT, POST or DELETE"))
    if not isinstance(step.get("path"), str) or not _PATH.fullmatch(step["path"]):
        problems.append(Problem("bad_path", f"steps[{at}].path", "of a definition, below /api/v1"))
    return problems


def _rolls_back() -> Conflict:
    hint = "wait until it has ended; one that was interrupted may be repeated after some seconds"
    return Conflict("the release is being rolled back", code="release_rolls_back", hint=hint)


def _taken_over() -> Conflict:
    hint = "look at what the station has, then apply again"
    return Conflict("another apply has taken over, or has ended this one", code="release_moved", hint=hint)
