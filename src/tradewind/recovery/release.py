"""The journal of a release (`tradewind apply`): what shall be, and what was, noted before the first change.

A release that is killed on its way leaves its journal: the next one goes on, or it is rolled back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog

from tradewind import clock, codec
from tradewind.errors import Conflict, Invalid, NotFound, Problem, TradewindError, Unavailable
from tradewind.ids import short_random
from tradewind.recovery.kind_names import RELEASED
from tradewind.recovery.kinds import Definitions
from tradewind.recovery.restorer import Restored, Restorer, Rooms
from tradewind.redis.connection import translated
from tradewind.redis.faults import reading
from tradewind.redis.scripts import Arg, Scripts
from tradewind.tasks.plane import Plane

log = structlog.get_logger(__name__)
MAX_STEPS = 100_000
#: Of what is read of the journal at once.
PAGE_STEPS, PAGE_BYTES = 100, 4_000_000
_PATH = re.compile(
    r"/(channels|models|rules|rule-groups|notifications/policy|history/policy|flows)(/[^?#]*)?(\?rules=ungroup)?"
)


class Release(msgspec.Struct):
    """`state`: preparing (nothing was changed yet), open, rolling_back. `is_ready`: all steps are noted. `done`: steps
    that were surely carried out; those after it may have been, too, and may be repeated."""

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
        noted, and whoever carries it out is refused from now on. Raises Unavailable."""
        args: list[Arg] = [short_random(), note[:200], clock.now_ms()]
        for kind in self._definitions.kinds:
            names = list(dict.fromkeys(changes.get(kind.name, ())))
            if names:
                known = await kind.digests()
                bodies = await kind.bodies([name for name in names if name in known])
                kind.forget()
                for name in names:
                    args += (f"was:{kind.name}:{name}", bodies.get(name, ""))
        await self._scripts.run("release_begin", [self._key], args)
        return await self.current()

    async def add_steps(self, release_id: str, start: int, steps: Sequence[Any], *, is_last: bool) -> None:
        """Requests as they shall be sent, in order: method, path below /api/v1, body. Raises Invalid, Conflict."""
        problems = [problem for at, step in enumerate(steps) for problem in _step_problems(step, at)]
        if not 0 <= start <= MAX_STEPS - len(steps):
            problems.append(Problem("out_of_range", "from", f"at most {MAX_STEPS} steps"))
        if problems:
            raise Invalid("the steps are not valid", code="bad_step", hint="see problems", problems=problems)
        args: list[Arg] = ["total", start + len(steps), "beat_ms", clock.now_ms()]
        for at, step in enumerate(steps):
            args += (f"step:{start + at}", codec.encode(step))
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
            found.append(codec.decode(text))
            size += len(text)
        return found

    async def set_done(self, release_id: str, done: int) -> None:
        """The first so many steps were carried out. Raises Conflict when another release has taken over."""
        await self._write(release_id, ["done", done, "beat_ms", clock.now_ms()])

    async def finish(self, release_id: str) -> None:
        """All is as it shall be: the journal goes. Raises Conflict."""
        await self._write(release_id, [], is_over=True)

    async def roll_back(self, release_id: str) -> RolledBack:
        """Bring everything back to what was noted; the journal goes when that is done. May be repeated. Raises
        Conflict."""
        release = await self._of(release_id)
        await self._write(release_id, ["state", "rolling_back", "beat_ms", clock.now_ms()])
        with translated(self._plane.link):
            stored = await self._plane.redis.hgetall(self._key)
        was: dict[str, dict[str, str]] = {kind: {} for kind in RELEASED}
        for field, body in stored.items():
            word, _, rest = field.decode().partition(":")
            kind, _, name = rest.partition(":")
            if word == "was" and kind in was:
                was[kind][name] = body.decode()
        result = RolledBack()
        if release.state != "preparing":
            await _Rollback(self._restorer, self._rooms, was, result).run()
        log.warning(
            "release_rolled_back", restored=len(result.restored), removed=len(result.removed), failed=result.failed
        )
        if result.failed:
            await self._write(release_id, ["state", "open"])
        else:
            await self.finish(release_id)
        return result

    async def _of(self, release_id: str) -> Release:
        release = await self.current()
        if release.id != release_id:
            raise _taken_over()
        return release

    async def _write(self, release_id: str, pairs: Sequence[Arg], *, is_over: bool = False) -> None:
        if not await self._scripts.run("release_write", [self._key], [release_id, int(is_over), *pairs]):
            raise _taken_over()


class _Rollback:
    """In the order of a release, so that nothing is needed that is gone: flows that were added go first, channels that
    were added last. What fails is named, the rest is done."""

    def __init__(
        self, restorer: Restorer, rooms: Rooms, was: Mapping[str, Mapping[str, str]], result: RolledBack
    ) -> None:
        self._restorer = restorer
        self._rooms = rooms
        self._result = result
        self._old = {kind: {name: body for name, body in found.items() if body} for kind, found in was.items()}
        self._added = {kind: [name for name, body in found.items() if not body] for kind, found in was.items()}

    async def run(self) -> None:
        rooms, old, added = self._rooms, self._old, self._added
        await self._put("channels")
        for name in added["flows"]:
            await self._try(f"flow {name}", rooms.flows.delete(name), is_removal=True)
        documents = {kind: [codec.decode(body) for body in old[kind].values()] for kind in ("templates", "models")}
        if any(old[kind] or added[kind] for kind in ("templates", "models")):
            change = rooms.models.apply(
                documents["models"],
                templates=documents["templates"],
                remove=added["models"],
                remove_templates=added["templates"],
            )
            await self._try("models", change)
        if any(old[kind] or added[kind] for kind in ("groups", "rules")):
            rules, groups = ([_plain(body) for body in old[kind].values()] for kind in ("rules", "groups"))
            await self._try("rules", rooms.rules.apply(rules, groups=groups, remove=added["rules"]))
        for name in added["groups"]:
            await self._try(f"rule group {name}", rooms.rules.remove_group(name, "ungroup"), is_removal=True)
        await self._put("notifications")
        await self._put("history")
        if added["notifications"]:  # a policy is never taken away: an empty one tells nobody
            await self._try("notification policy", rooms.notify.put({}))
        if added["history"]:
            await self._try("history policy", rooms.history.put_policy({}))
        await self._put("flows")
        for name, body in old["flows"].items():  # one that was never started before the release
            if codec.decode(body)["status"] == "registered" and (await rooms.flows.get(name))["status"] == "running":
                await self._try(f"flow {name} (stopped)", rooms.flows.stop(name, "its release was rolled back"))
        for name in added["channels"]:
            await self._try(f"channel {name}", self._remove_channel(name), is_removal=True)

    async def _put(self, kind: str) -> None:
        result = Restored()
        await self._restorer.put(kind, self._old[kind], result, replace=True)
        failed = {item.id for item in result.failed}
        self._result.failed += [f"{kind} {item.id}: {item.error}" for item in result.failed]
        self._result.restored += [f"{kind} {name}" for name in self._old[kind] if name not in failed]

    async def _remove_channel(self, name: str) -> None:
        await self._rooms.channels.remove([name])
        await self._rooms.board.remove_channel(name)

    async def _try(self, what: str, doing: Any, *, is_removal: bool = False) -> None:
        try:
            await doing
        except Unavailable:
            raise
        except NotFound as error:
            if not is_removal:
                self._result.failed.append(f"{what}: {error.message}")
        except TradewindError as error:
            self._result.failed.append(f"{what}: {error.message}")
        else:
            (self._result.removed if is_removal else self._result.restored).append(what)


def _plain(body: str) -> Any:
    """A rule or a group without its version, which counts on."""
    document = codec.decode(body)
    return (
        {name: value for name, value in document.items() if name != "version"}
        if isinstance(document, dict)
        else document
    )


def _step_problems(step: Any, at: int) -> list[Problem]:
    if not isinstance(step, dict) or set(step) - {"method", "path", "body", "what"}:
        return [Problem("not_a_step", f"steps[{at}]", "an object with method, path, body, what")]
    problems = []
    if step.get("method") not in ("PUT", "POST", "DELETE"):
        problems.append(Problem("bad_method", f"steps[{at}].method", "PUT, POST or DELETE"))
    if not isinstance(step.get("path"), str) or not _PATH.fullmatch(step["path"]):
        problems.append(Problem("bad_path", f"steps[{at}].path", "of a definition, below /api/v1"))
    return problems


def _taken_over() -> Conflict:
    hint = "look at what the station has, then apply again"
    return Conflict("another apply has taken over, or has ended this one", code="release_moved", hint=hint)
