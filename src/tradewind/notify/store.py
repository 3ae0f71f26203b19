"""The policy in Redis, messages from programs, and what became of deliveries. For every process, leading or not."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from tradewind.errors import Conflict, Invalid, NotFound, Overloaded, Problem, Unavailable
from tradewind.ids import IDEMPOTENCY_KEY, new_id
from tradewind.masking import MASK, masked_target
from tradewind.notify.courier import Courier
from tradewind.notify.failure import DeliveryFailed
from tradewind.notify.guard import guard_of
from tradewind.notify.job import Job, parcel, read_job
from tradewind.notify.message import LEVELS, MAX_TEXT, MAX_TITLE, Message, level_of, one_line
from tradewind.notify.plane import NotifyPlane
from tradewind.notify.policy import Policy
from tradewind.notify.policy_check import read_policy
from tradewind.notify.services import problem_of
from tradewind.offload import offload
from tradewind.redis.connection import translated
from tradewind.redis.scripts import Arg
from tradewind.redis.text import text_of

#: How often a change is checked anew when others are faster.
ATTEMPTS = 5
KEY_MS = 86_400_000
KEYS_KEPT = 100_000


class Delivery(msgspec.Struct):
    """`status`: waiting, retrying, sent, given_up or dropped (nothing was left to tell). Times in ms."""

    id: str
    target: str
    status: str
    count: int
    attempts: int = 0
    error: str = ""
    at: int = 0


class Tested(msgspec.Struct):
    """The outcome of a test message; `error` is `` when it was taken."""

    target: str
    ok: bool
    error: str
    duration_ms: int


class NotifyStore:
    def __init__(self, plane: NotifyPlane) -> None:
        self._plane = plane
        self._courier = Courier(plane.settings)

    # policy

    async def policy(self) -> Policy:
        """With its secrets: not to be shown."""
        return (await self._load())[1]

    async def show(self) -> dict[str, Any]:
        """As people may see it: `***` stands for secrets."""
        return shown(await self.policy())

    async def put(self, document: Any, *, version: int | None = None) -> dict[str, Any]:
        """Replace the policy; `***` in an address or header keeps what is stored. As `show` gives it.

        Raises Invalid with all problems, Conflict when `version` (or that of the document) is not the stored one.
        """
        if isinstance(document, dict):
            said = document.get("version")
            version = said if version is None and isinstance(said, int) and not isinstance(said, bool) else version
            document = {name: value for name, value in document.items() if name != "version"}
        for _ in range(ATTEMPTS):
            text, stored = await self._load(is_readable=False)
            if version is not None and version != stored.version:
                message = f"the notification policy has version {stored.version}, not {version}"
                raise Conflict(message, code="version_conflict", hint="read it again, then change it")
            policy = await self._checked(document, stored)
            if msgspec.structs.replace(policy, version=stored.version) == stored:
                return shown(stored)
            policy = msgspec.structs.replace(policy, version=stored.version + 1)
            args: list[Arg] = [text, msgspec.json.encode(policy)]
            if await self._plane.scripts.run("notify_policy", [self._plane.keys.notify_policy()], args):
                return shown(policy)
        raise Unavailable("the notification policy is being changed by others all the time", hint="try again")

    async def validate(self, document: Any) -> dict[str, Any]:
        """What `put` would make of it, without storing anything. Raises Invalid."""
        if isinstance(document, dict):
            document = {name: value for name, value in document.items() if name != "version"}
        return shown(await self._checked(document, await self.policy()))

    async def is_new(self, document: Any) -> bool:
        """Whether `put` would change anything, secrets included. Raises Invalid."""
        if isinstance(document, dict):
            document = {name: value for name, value in document.items() if name != "version"}
        stored = await self.policy()
        return msgspec.structs.replace(await self._checked(document, stored), version=stored.version) != stored

    async def test_target(self, name: str) -> Tested:
        """Send one message to a target now, past routes and quiet hours, once. Raises NotFound."""
        target = (await self.policy()).targets.get(name)
        if target is None:
            raise NotFound(f"there is no target {name!r}", code="unknown_target", hint="see the notification policy")
        job = Job(new_id(), name, 0)
        job.add(
            Message(title="Test of a notification target", text=f"Target {name} works.", at=await self._plane.now_ms())
        )
        began, error = time.monotonic(), ""
        try:
            await self._courier.deliver(target, parcel(job))
        except DeliveryFailed as failure:
            error = str(failure)
        return Tested(name, not error, error, round((time.monotonic() - began) * 1000))

    # messages

    async def tell(
        self,
        title: str,
        text: str = "",
        *,
        level: str = "Info",
        targets: Sequence[str] = (),
        rule_id: str = "",
        source: str = "",
        category: str = "",
        key: str = "",
    ) -> bool:
        """Put a message into the outbox; False when one with this `key` was told within a day.

        Without `targets` routes decide. Raises Invalid, Overloaded when too many messages wait.
        """
        problems = []
        known = level_of(level)
        if known is None:
            problems.append(Problem("unknown_level", "level", f"one of {', '.join(LEVELS)}"))
        if not one_line(title, MAX_TITLE):
            problems.append(Problem("missing_field", "title", "say in a line what it is about"))
        if key and not IDEMPOTENCY_KEY.fullmatch(key):
            problems.append(Problem("bad_key", "key", "1 to 200 letters, digits or _.:@/-"))
        if problems:
            raise Invalid(f"the message is wrong: {problems[0].hint}", problems=problems, hint="correct what is listed")
        key = key or new_id()
        keys = self._plane.keys
        fields = {
            "kind": "rule",
            "event": "message",
            "rule_id": rule_id,
            "source": source,
            "category": category,
            "level": known or "Info",
            "title": one_line(title, MAX_TITLE),
            "text": text[:MAX_TEXT],
            "targets": msgspec.json.encode(list(targets)) if targets else "",
            "flood": "0",
            "key": key,
        }
        args: list[Arg] = [self._plane.clock.now_arg(), key, KEY_MS, KEYS_KEPT, self._plane.settings.outbox_max]
        for name, value in fields.items():
            args += (name, value)
        code, _ = await self._plane.scripts.run("notify_tell", [keys.notify_outbox(), keys.notify_keys()], args)
        if code < 0:
            message = f"{self._plane.settings.outbox_max} notifications wait to be planned"
            raise Overloaded(message, code="outbox_full", hint="is the role alarmsrv running?")
        return bool(code)

    # deliveries

    async def pending(self) -> list[Delivery]:
        """Those that have not ended, by when they are tried next."""
        with translated(self._plane.link):
            raw = await self._plane.redis.hvals(self._plane.keys.notify_jobs())
        found = [job for data in raw if (job := read_job(data)) is not None]
        jobs = sorted(found, key=lambda job: (job.due_ms, job.id))
        return [
            Delivery(
                job.id,
                job.target,
                "retrying" if job.begun else "waiting",
                job.count,
                job.attempts,
                job.error,
                job.due_ms,
            )
            for job in jobs
        ]

    async def ended(self, limit: int = 100) -> list[Delivery]:
        """The last ones, newest first."""
        with translated(self._plane.link):
            found = await self._plane.redis.xrevrange(self._plane.keys.notify_log(), count=limit)
        deliveries = []
        for _, fields in found:
            texts = {text_of(name): text_of(value) for name, value in fields.items()}
            with contextlib.suppress(msgspec.ValidationError):  # of another program
                deliveries.append(msgspec.convert(texts, Delivery, strict=False))
        return deliveries

    async def _load(self, *, is_readable: bool = True) -> tuple[bytes, Policy]:
        """`is_readable`: raise Unavailable for a text that is no policy, instead of taking it as none."""
        with translated(self._plane.link):
            text = await self._plane.redis.get(self._plane.keys.notify_policy())
        try:
            return (text, msgspec.json.decode(text, type=Policy)) if text else (b"", Policy())
        except msgspec.MsgspecError as error:
            if is_readable:
                message = f"the stored notification policy cannot be read: {error}"
                raise Unavailable(message, code="bad_policy", hint="store the policy again") from error
            return text, Policy()

    async def _checked(self, document: Any, stored: Policy) -> Policy:
        policy = await offload(read_policy, document, stored, guard_of(self._plane.settings))
        problems = []
        for name, target in policy.targets.items():
            if not target.url.lower().startswith(("http://", "https://")):
                problem = await offload(problem_of, target.url)
                if problem:
                    problems.append(Problem("bad_url", f"targets.{name}.url", problem))
        if problems:
            message = f"the notification policy is wrong at {problems[0].path}: {problems[0].hint}"
            raise Invalid(message, code="bad_policy", hint="correct what is listed", problems=problems)
        return policy


def shown(policy: Policy) -> dict[str, Any]:
    document: dict[str, Any] = {"version": 0, "targets": {}, "routes": [], "escalation": []}
    document |= msgspec.json.decode(msgspec.json.encode(policy))
    for name, target in policy.targets.items():
        item = document["targets"][name]
        item["url"] = masked_target(target.url)
        if target.headers:
            item["headers"] = dict.fromkeys(target.headers, MASK)
    return document
