"""Carries out what edges of rules have left in the outbox: commands, tasks, flows, control values, log entries.

Each action has a key of its own (`{execution}:{n}`): a job that is begun again after a crash does nothing twice.
A job is sent out first, and then waits for the ends of its commands; others do not wait with it. Jobs of one rule, and
jobs with the same target, are sent out in their order, all others side by side.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
import structlog

from tradewind.errors import Conflict, Invalid, TradewindError, Unavailable, error_text
from tradewind.points.address import Address
from tradewind.points.command_record import Command, CommandRequest, CommandStatus
from tradewind.points.commands import Accepted
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.redis.scripts import Arg, Scripts
from tradewind.redis.text import text_of
from tradewind.rules.action_targets import must_have_flow
from tradewind.rules.effects import Act, Job
from tradewind.rules.history_record import ActionResult, Execution, encode
from tradewind.rules.lead import ServerClock
from tradewind.rules.script_context import rule_context
from tradewind.rules.spec import LogEvent, SendControl, SetValue, StartFlow, kind_of

log = structlog.get_logger(__name__)
_MODSRV = "modsrv"
#: The task type that starts a cycle of a flow; rules do not know flows.
START_FLOW = "flow_start"
#: Jobs that are sent out at once, and jobs at work altogether; what waits beyond stays in the outbox.
MAX_SENDING = 64
MAX_JOBS = 2000
#: An action is tried so often while what it needs does not answer.
ATTEMPTS = 4
PAUSE_S = 0.25
#: How long the next action of a rule waits for the end of a command.
NEXT_S = 3.0
#: How long the end of a command is waited for after its time is over, so that the history can tell it.
COMMAND_S = 5.0
BLOCK_MS = 1000
CLUSTER_PAUSE_S = 0.05


class CommandPath(Protocol):
    """See points.commands.Commands."""

    async def submit(self, request: CommandRequest) -> Accepted: ...
    async def wait(self, command_id: str, timeout_s: float) -> Command: ...


class ControlPath(Protocol):
    """See models.store.ModelStore."""

    async def set_control(self, model: str, field: str, value: float | str, source: str) -> Any: ...


class TaskPath(Protocol):
    """See tasks.gate.Gate."""

    async def submit(self, raws: Sequence[dict[str, Any]]) -> list[str]: ...


class ActionRunner:
    def __init__(self, plane: PointPlane, commands: CommandPath, models: ControlPath, tasks: TaskPath) -> None:
        self._plane = plane
        self._commands = commands
        self._models = models
        self._tasks = tasks
        self._clock = ServerClock(plane)
        self._context = rule_context(plane.keys, plane.all_settings)
        self._scripts = Scripts(plane.link, "tradewind.rules", plane.all_settings.redis.max_retries)
        self._sending = asyncio.Semaphore(MAX_SENDING)
        self._last: dict[str, _Stage] = {}

    async def run(self) -> None:
        """Until it is cancelled, by the one who judges. Begins with what one before it has left."""
        at = "0-0"
        client = None if self._plane.link.cluster else self._plane.link.new_client(BLOCK_MS / 1000)
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                try:
                    await self._clock.look()
                    entries = await self._read(client, at, MAX_JOBS - len(running))
                except Unavailable as error:
                    log.warning("rule_actions_wait", error=error.message)
                    await asyncio.sleep(1)
                    continue
                for entry_id, fields in entries:
                    at = entry_id.decode()
                    running.add(self._begin(at, fields))
                if len(running) >= MAX_JOBS:
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in running if task.done()]:
                    running.discard(task)
                    task.result()  # what is no error of ours ends the runner, not the job alone
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            self._last.clear()
            if client is not None:
                await client.aclose(close_connection_pool=True)

    async def _read(self, client: Any, at: str, count: int) -> list[tuple[bytes, dict[bytes, bytes]]]:
        key = self._plane.keys.rule_outbox()
        with translated(self._plane.link):
            if client is None:
                found = await self._plane.redis.xrange(key, f"({at}", "+", count=count)
                if not found:
                    await asyncio.sleep(CLUSTER_PAUSE_S)
                return list(found)
            reply = await client.xread({key: at}, count=count, block=BLOCK_MS)
        return list(reply[0][1]) if reply else []

    def _begin(self, entry_id: str, fields: dict[bytes, bytes]) -> asyncio.Task[None]:
        rule_id, body = text_of(fields.get(b"rule_id")), fields.get(b"body", b"")
        try:
            job = msgspec.json.decode(body, type=Job)
        except msgspec.MsgspecError as problem:
            # Of another version of ours: it must not stop what comes after it, now and at each start.
            text = body[:1000].decode(errors="replace")
            log.error("rule_action_unreadable", entry=entry_id, error=error_text(problem), body=text)
            return asyncio.create_task(self._drop(entry_id), name=f"rule {rule_id}")
        targets = {f"rule {rule_id}", *(_target(act) for _, act in job.acts)} - {""}
        before = [stage for stage in (self._last.get(target) for target in targets) if stage is not None]
        stage = _Stage()
        previous = self._last.get(f"rule {rule_id}")
        for target in targets:
            self._last[target] = stage

        async def run() -> None:
            try:
                for one in before:
                    await one.sent.wait()
                sent: list[tuple[Act, ActionResult]] = []
                for number, act in job.acts:
                    if sent:
                        await self._give_time(*sent[-1])
                    async with self._sending:
                        sent.append((act, await self._act(job.execution, number, act)))
                stage.sent.set()
                results = [await self._ended(act, result) for act, result in sent]
                if previous is not None:
                    await previous.told.wait()
                await self._tell(entry_id, job, results)
            finally:
                stage.sent.set()
                stage.told.set()
                for target in targets:
                    if self._last.get(target) is stage:
                        del self._last[target]

        return asyncio.create_task(run(), name=f"rule {rule_id}")

    async def _tell(self, entry_id: str, job: Job, ended: Sequence[ActionResult]) -> None:
        results = [*job.execution.results, *ended]
        executed = [*job.execution.actions_executed, *(result.type for result in ended if result.success)]
        error = job.execution.error_message or next((r.error for r in results if not r.success), None)
        execution = msgspec.structs.replace(
            job.execution,
            actions_executed=executed,
            success=error is None,
            duration_ms=max(0, self._clock.now_ms() - job.began_ms),
            error_message=error,
            results=results,
        )
        await self._done(entry_id, execution)

    async def _done(self, entry_id: str, execution: Execution) -> None:
        args: list[Arg] = [self._context, self._plane.clock.now_arg(), entry_id, execution.rule_id, encode(execution)]
        args += [int(execution.triggered), int(not execution.success), execution.duration_ms]
        while True:
            try:
                await self._scripts.run("rule_done", [self._plane.keys.rule_outbox()], args)
                return
            except Unavailable as error:
                log.warning("rule_actions_wait", rule=execution.rule_id, error=error.message)
                await asyncio.sleep(1)

    async def _drop(self, entry_id: str) -> None:
        try:
            with translated(self._plane.link):
                await self._plane.redis.xdel(self._plane.keys.rule_outbox(), entry_id)
        except Unavailable as error:
            log.warning("rule_actions_wait", error=error.message)  # it is met again at the next start

    async def _act(self, execution: Execution, number: int, act: Act) -> ActionResult:
        """Tried again only while something does not answer: the key makes that safe."""
        kind = kind_of(act)
        for attempt in range(ATTEMPTS):
            try:
                return await self._once(execution, f"{execution.id}:{number}", act)
            except Unavailable as error:
                if attempt == ATTEMPTS - 1:
                    return _failed(execution, kind, error)
                await asyncio.sleep(PAUSE_S * 2**attempt)
            except TradewindError as error:
                return _failed(execution, kind, error)
        raise AssertionError("unreachable")

    async def _once(self, execution: Execution, key: str, act: Act) -> ActionResult:
        kind, rule_id = kind_of(act), execution.rule_id
        age_s = (self._clock.now_ms() - execution.timestamp) / 1000
        if isinstance(act, (SendControl, SetValue)) and age_s > self._plane.settings.command_expiry_s:
            raise Conflict(f"it was decided {age_s:.0f} s ago, too long to be done now", code="expired")
        if isinstance(act, SendControl):
            return await self._command(rule_id, key, act)
        if isinstance(act, LogEvent):
            _speak(act.level)("rule_event", rule=rule_id, execution=execution.id, message=act.message)
            return ActionResult(kind, True)
        if isinstance(act, SetValue):
            await self._models.set_control(act.model, act.field, act.value, f"rule-{rule_id}"[:64])
            return ActionResult(kind, True)
        if isinstance(act, StartFlow):
            await must_have_flow(self._plane, act.flow_id)
            wanted = {"flow_id": act.flow_id, "payload": act.payload or None, "run_id": key.replace(":", "-")}
            raw: dict[str, Any] = {"type": START_FLOW, "kwargs": wanted}
        else:
            raw = {"type": act.task_type, "args": list(act.args), "kwargs": act.kwargs}
        return ActionResult(kind, True, id=(await self._tasks.submit([{**raw, "idempotency_key": key}]))[0])

    async def _command(self, rule_id: str, key: str, act: SendControl) -> ActionResult:
        place = Address.parse(act.address)
        is_model = place.service == _MODSRV
        request = CommandRequest(
            address="" if is_model else act.address,
            model=place.entity if is_model else "",
            field=place.field if is_model else "",
            value=float(act.value),
            source=f"rule-{rule_id}"[:64],
            reason=f"rule {rule_id}",
            who=f"rule:{rule_id}",
            idempotency_key=key,
        )
        return ActionResult(kind_of(act), True, id=(await self._commands.submit(request)).id)

    async def _give_time(self, act: Act, sent: ActionResult) -> None:
        """A device does one thing before it is told the next, unless that takes it long."""
        if isinstance(act, SendControl) and sent.success:
            with contextlib.suppress(TradewindError):
                await self._commands.wait(sent.id, NEXT_S)

    async def _ended(self, act: Act, sent: ActionResult) -> ActionResult:
        """How what was sent has ended: a command is not done before its device has done it."""
        if not isinstance(act, SendControl) or not sent.success:
            return sent
        command: Command | None = None
        while command is None:
            try:
                command = await self._commands.wait(sent.id, self._plane.settings.command_expiry_s + COMMAND_S)
            except Unavailable as error:
                log.warning("rule_actions_wait", error=error.message)
                await asyncio.sleep(1)
            except TradewindError as error:
                text = f"how command {sent.id} ended is not known: {error.message}"
                return ActionResult(sent.type, False, id=sent.id, code=error.code, error=text)
        if command.status is CommandStatus.SUCCESS:
            return sent
        text = f"command {command.id} ended {command.status}: {command.message or command.result}"
        return ActionResult(sent.type, False, id=command.id, code=str(command.result), error=text)


class _Stage:
    """How far a job is: its actions are sent out; its end is in the history."""

    def __init__(self) -> None:
        self.sent = asyncio.Event()
        self.told = asyncio.Event()


def _target(act: Act) -> str:
    """What must not be reached out of order."""
    if isinstance(act, SendControl):
        return act.address
    if isinstance(act, SetValue):
        return f"{_MODSRV}:{act.model}:control:{act.field}"
    return ""


def _failed(execution: Execution, kind: str, error: TradewindError) -> ActionResult:
    """With what is wrong in particular: the history has no other place for it."""
    problems = error.problems[:3] if isinstance(error, Invalid) else ()
    why = [f"{problem.path}: {problem.hint}" for problem in problems if problem.hint not in error.message]
    message = f"{error.message}: {'; '.join(why)}" if why else error.message
    log.warning("rule_action_failed", rule=execution.rule_id, action=kind, code=error.code, error=message)
    return ActionResult(kind, False, code=error.code, error=message)


def _speak(level: str) -> Callable[..., Any]:
    words = {"debug": log.debug, "info": log.info, "warning": log.warning, "error": log.error}
    speak: Callable[..., Any] = words.get(level.lower(), log.info)
    return speak
