"""The door of the task room: raw input becomes Submissions, or one Invalid that lists all that is wrong. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tradewind import codec
from tradewind.clock import from_iso
from tradewind.errors import Invalid, Problem
from tradewind.ids import IDEMPOTENCY_KEY, is_id, is_task_id, new_ids
from tradewind.problems import Problems, unknown_words
from tradewind.tasks.function import Signature
from tradewind.tasks.offers import NODE, Offer
from tradewind.tasks.record import Request, Submission

MAX_BATCH = 5000
MAX_DELAY_S = 10 * 366 * 86_400
FIELDS = frozenset(
    [
        "id",
        "type",
        "args",
        "kwargs",
        "priority",
        "delay_s",
        "eta",
        "timeout_s",
        "max_attempts",
        "backoff_s",
        "backoff_max_s",
        "deadline",
        "idempotency_key",
        "tags",
        "labels",
        "exclusive",
    ]
)
_TAG = re.compile(r"[A-Za-z0-9_-]{1,64}")


class _Reader:
    """Reads fields of one raw task and keeps what is wrong with them."""

    def __init__(self, raw: Mapping[str, Any], path: str) -> None:
        self.raw = raw
        self.path = path
        self.problems = Problems()

    def bad(self, code: str, field: str, hint: str) -> None:
        self.problems.append(Problem(code, f"{self.path}{field}", hint))

    def number(self, field: str, low: float, high: float, default: float) -> float:
        value = self.raw.get(field)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < math.inf:
            self.bad("not_a_number", field, "give a finite number of seconds")
        elif not low <= value <= high:
            self.bad("out_of_range", field, f"give a value from {low:g} to {high:g}")
        else:
            return value
        return default

    def moment(self, field: str) -> int:
        """ISO-8601 text or milliseconds since the epoch; 0 when absent."""
        value = self.raw.get(field)
        if value is None:
            return 0
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**14:
            return value
        if isinstance(value, str):
            try:
                return from_iso(value) or 1  # the epoch itself is a time, too
            except (ValueError, OverflowError):
                pass
        self.bad("bad_time", field, "give ISO-8601 such as 2026-11-16T08:00:00Z, or milliseconds since the epoch")
        return 0

    def words(self, field: str) -> list[str]:
        value = self.raw.get(field)
        if value is None:
            return []
        if not isinstance(value, (list, tuple)) or not all(isinstance(w, str) and _TAG.fullmatch(w) for w in value):
            self.bad("bad_words", field, "give a list of words of letters, digits, _ and -, at most 64 characters each")
            return []
        if len(value) > 20:
            self.bad("too_many", field, "give at most 20")
            return []
        return sorted(set(value))


def check_task(
    raw: Any, types: Mapping[str, Signature], *, now_ms: int, max_payload: int, path: str = "", new_id: str
) -> tuple[Submission | None, Problems]:
    """One raw task against the known types; a Submission, or the problems."""
    if not isinstance(raw, Mapping):
        problem = Problem("not_an_object", path.rstrip(".") or "$", 'give an object such as {"type": "echo"}')
        return None, Problems([problem])
    read = _Reader(raw, path)
    for field in unknown_words(raw, FIELDS, read.problems):
        read.bad("unknown_field", str(field)[:64] or '""', f"known fields: {', '.join(sorted(FIELDS))}")
    kind = raw.get("type")
    signature = None
    if not isinstance(kind, str) or not is_id(kind):
        read.bad("bad_type", "type", "give the task type: letters, digits, _ and -, at most 64 characters")
        kind = ""
    else:
        signature = types.get(kind)
        if signature is None:
            some = ", ".join(sorted(types)[:12]) or "none yet: start a worker with --import"
            read.bad("unknown_type", "type", f"no worker has offered {kind!r}; known types: {some}")
    signature = signature or Signature(var_args=True, var_kwargs=True)
    args, kwargs = raw.get("args", []), raw.get("kwargs", {})
    if args is None:
        args = []
    if kwargs is None:
        kwargs = {}
    shapes_ok = True
    if not isinstance(args, (list, tuple)):
        read.bad("not_a_list", "args", "give a list of positional arguments")
        shapes_ok = False
    if not isinstance(kwargs, dict) or not all(isinstance(k, str) for k in kwargs):
        read.bad("not_an_object", "kwargs", "give an object of named arguments")
        shapes_ok = False
    if shapes_ok:
        signature = signature.fitting(args, kwargs)
        read.problems += signature.problems(args, kwargs, path)
        try:
            if codec.has_non_finite(args) or codec.has_non_finite(kwargs):
                read.bad("not_finite", "args", "NaN and Infinity are not JSON")
        except RecursionError:
            read.bad("too_deep", "args", "nest lists and objects less deeply")
    priority = raw.get("priority", "normal")
    if isinstance(priority, int) and not isinstance(priority, bool):
        priority = "high" if priority > 0 else "normal"
    if priority not in ("high", "normal"):
        read.bad("bad_priority", "priority", 'give "high" or "normal"')
    task_id = raw.get("id")
    if task_id is None:
        task_id = new_id
    elif not isinstance(task_id, str) or not is_task_id(task_id):
        read.bad("bad_id", "id", "letters, digits, _ and -, at most 160 characters, no reserved word")
    attempts = raw.get("max_attempts")
    if attempts is None:
        attempts = signature.max_attempts
    elif isinstance(attempts, bool) or not isinstance(attempts, int) or not 1 <= attempts <= 1000:
        read.bad("out_of_range", "max_attempts", "give a whole number from 1 to 1000")
        attempts = 1
    key = raw.get("idempotency_key")
    if key is not None and (not isinstance(key, str) or not IDEMPOTENCY_KEY.fullmatch(key)):
        read.bad("bad_idempotency_key", "idempotency_key", "letters, digits and _ . : @ / -, at most 200 characters")
        key = ""
    exclusive = raw.get("exclusive", signature.exclusive)
    if exclusive is True:
        exclusive = "="
    elif exclusive is False or exclusive is None:
        exclusive = ""
    elif exclusive != "=" and exclusive != "" and (not isinstance(exclusive, str) or not is_id(exclusive)):
        read.bad("bad_lock", "exclusive", "give true, or the name of a lock: letters, digits, _ and -")
        exclusive = ""
    delay_s = read.number("delay_s", 0, MAX_DELAY_S, 0)
    eta_ms = read.moment("eta")
    if delay_s and eta_ms:
        read.bad("both_given", "eta", "give delay_s or eta, not both")
    deadline_ms = read.moment("deadline")
    if deadline_ms and deadline_ms <= now_ms:
        read.bad("in_the_past", "deadline", "give a time that is still to come")
    request = Request(
        args=list(args) if shapes_ok else [],
        kwargs=kwargs if shapes_ok else {},
        max_attempts=attempts,
        timeout_ms=round(read.number("timeout_s", 0.001, 7 * 86_400, signature.timeout_ms / 1000) * 1000),
        deadline_ms=deadline_ms,
        backoff_ms=round(read.number("backoff_s", 0, 86_400, signature.backoff_ms / 1000) * 1000),
        backoff_max_ms=round(read.number("backoff_max_s", 0, 86_400, signature.backoff_max_ms / 1000) * 1000),
        tags=read.words("tags"),
        labels=read.words("labels"),
        exclusive=task_id if exclusive == "=" and isinstance(task_id, str) else exclusive,
        idempotency_key=key or "",
        only_one=raw.get("max_attempts") == 1,
    )
    if read.problems:
        return None, read.problems
    try:
        line = codec.encode(request)
        is_lossy = codec.lost_non_finite(request, line)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return None, Problems([Problem("not_json", f"{path}args", f"arguments must be JSON: {error}")])
    if is_lossy:
        return None, Problems([Problem("not_finite", f"{path}args", "NaN and Infinity are not JSON")])
    if len(line) > max_payload:
        hint = f"{len(line)} bytes of arguments; at most {max_payload}"
        return None, Problems([Problem("too_large", f"{path}args", hint)])
    submission = Submission(
        id=task_id,
        type=kind,
        request=request,
        line=line,
        priority=priority,
        delay_ms=round(delay_s * 1000),
        eta_ms=eta_ms,
    )
    return submission, Problems()


def check_plain(
    calls: Sequence[Sequence[Any]], signature: Signature, *, max_payload: int
) -> tuple[Request, list[bytes]] | None:
    """The fast way for many calls of one type without options: a model request and each call's request line.

    None when anything is unusual; then check_tasks says what.
    """
    fits = signature.quick_check()
    if fits is None:
        return None
    model = Request(
        max_attempts=signature.max_attempts,
        timeout_ms=signature.timeout_ms,
        backoff_ms=signature.backoff_ms,
        backoff_max_ms=signature.backoff_max_ms,
    )
    lines = []
    encode = codec.encode
    try:
        for args in calls:
            if not fits(args):
                return None
            model.args = list(args)
            line = encode(model)
            if len(line) > max_payload or codec.lost_non_finite(args, line):
                return None
            lines.append(line)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    return model, lines


def check_tasks(
    raws: Sequence[Any], types: Mapping[str, Signature], *, now_ms: int, max_payload: int, single: bool = False
) -> list[Submission]:
    """All of them, or one Invalid with the problems of all (the first 100)."""
    if len(raws) > MAX_BATCH:
        raise Invalid(
            f"{len(raws)} tasks in one batch", code="batch_too_large", hint=f"send at most {MAX_BATCH} at once"
        )
    submissions: list[Submission] = []
    problems = Problems()
    seen: set[str] = set()
    for index, (raw, new_id) in enumerate(zip(raws, new_ids(len(raws)), strict=True)):
        path = "" if single else f"tasks[{index}]."
        submission, found = check_task(raw, types, now_ms=now_ms, max_payload=max_payload, path=path, new_id=new_id)
        problems += found
        if submission is not None:
            if submission.id in seen:
                problems.append(Problem("doubled_id", f"{path}id", f"{submission.id!r} stands twice in this batch"))
            seen.add(submission.id)
            submissions.append(submission)
    if problems:
        what = "the task is not valid" if single else f"{problems.total} problems in {len(raws)} tasks"
        raise Invalid(
            what,
            code=problems[0].code if len(problems) == 1 else "invalid_task",
            hint=problems[0].hint if len(problems) == 1 else "see problems",
            problems=problems,
        )
    return submissions


def open_signature(last: Signature | None = None) -> Signature:
    """For a type whose workers check the arguments themselves, or have left: any arguments, the last known defaults."""
    if last is None:
        return Signature(var_args=True, var_kwargs=True)
    return msgspec.structs.replace(last, params=[], var_args=True, var_kwargs=True, seen_ms=0)


def offered(offers: Sequence[Offer], remembered: Mapping[bytes, bytes], served: Iterable[str]) -> dict[str, Signature]:
    """The types that may be submitted: what live workers offer, each signature of a type once and the youngest worker's
    first; then names that are only remembered, or served by hand, with any arguments."""
    found: dict[str, list[Signature]] = {}
    for offer in offers:
        entries = {name.encode(): data for name, data in offer.entries.items() if not name.startswith(NODE)}
        for name, signature in (*signatures(entries).items(), *((t, open_signature()) for t in offer.open_types)):
            if signature not in found.setdefault(name, []):
                found[name].append(signature)
    types = {}
    for name, several in found.items():
        first, *others = sorted(several, key=lambda signature: signature == open_signature())  # what says more, first
        types[name] = msgspec.structs.replace(first, others=others)
    for name, last in signatures(remembered).items():
        if name not in types:
            types[name] = msgspec.structs.replace(open_signature(last), is_remembered=True)
    for name in served:
        types.setdefault(name, open_signature())
    return types


def signatures(known: Mapping[bytes, bytes]) -> dict[str, Signature]:
    """`task:types` decoded; an entry that is not ours is taken as a type that accepts anything."""
    found = {}
    for name, spec in known.items():
        kind = name.decode(errors="replace")
        try:
            found[kind] = msgspec.json.decode(spec, type=Signature)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            found[kind] = Signature(var_args=True, var_kwargs=True)
    return found
