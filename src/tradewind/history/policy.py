"""What is recorded: the document `history:policy` (a station folder's `history.yaml`), checked and compiled. No I/O."""

from __future__ import annotations

import re
from fnmatch import translate
from typing import Any

import msgspec

from tradewind.errors import Invalid, Problem
from tradewind.ids import is_id

#: The seed's letters, and the kinds of models that go with them.
TYPES = {"m": "measurement", "s": "signal", "c": "control", "a": "adjustment"}
_MODEL_TYPES = {"measurement": "m", "control": "c"}
MAX_POLICIES = 10_000
MAX_SIZE = 100_000
MAX_TIMEOUT_MS = 600_000


class BatchConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Samples are written when so many are there or the first has waited so long. `type_filter`: of m, s, c, a; for
    models m is `measurement` and c `control`."""

    size: int = 1000
    timeout_ms: int = 5000
    type_filter: tuple[str, ...] = ("m", "s")


class PointPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"series_class": "class"}):
    """For the addresses that `match` (`*`, `?`, `[…]`). `deadband`: changes of less than this are left out, but for
    those of quality. `min_interval_ms`: of values that follow faster only the last one is kept."""

    match: str
    record: bool = True
    deadband: float = 0.0
    min_interval_ms: int = 0
    series_class: str = "default"


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`subscribe`: patterns of hashes (`comsrv:1001:m`) or addresses. Of `policies` the first that matches counts; a
    point that none matches is recorded as it is."""

    batch_config: BatchConfig = BatchConfig()
    subscribe: tuple[str, ...] = ("comsrv:*", "modsrv:*")
    policies: tuple[PointPolicy, ...] = ()


class Thinning(msgspec.Struct, frozen=True):
    deadband: float
    min_interval_ms: int


class Choice(msgspec.Struct, frozen=True):
    """What happens to a point. `address` None: it is not recorded. `thinning` None: every change is."""

    address: str | None
    thinning: Thinning | None = None


NOT_RECORDED = Choice(None)


def read_policy(document: Any) -> Policy:
    """A document as it comes from YAML or JSON. Raises Invalid naming everything that is wrong."""
    try:
        policy = msgspec.convert({} if document is None else document, Policy)
    except msgspec.ValidationError as error:
        raise _invalid([_problem_of(error)]) from None
    problems = [*_batch_problems(policy.batch_config)]
    problems += [
        Problem("bad_pattern", f"subscribe[{at}]", "write a pattern such as `comsrv:*`")
        for at, pattern in enumerate(policy.subscribe)
        if not pattern
    ]
    if len(policy.policies) > MAX_POLICIES:
        problems.append(Problem("too_many", "policies", f"use {MAX_POLICIES} at most; patterns cover many points"))
    for at, item in enumerate(policy.policies[:MAX_POLICIES]):
        problems += _point_problems(item, f"policies[{at}]")
    if problems:
        raise _invalid(problems)
    return policy


class Chooser:
    """A policy made ready. Ask once per point and keep the answer."""

    def __init__(self, policy: Policy) -> None:
        self._types = frozenset(policy.batch_config.type_filter)
        self._subscribed = [re.compile(translate(pattern)) for pattern in policy.subscribe]
        self._policies = [(re.compile(translate(item.match)), item) for item in policy.policies]

    def is_wanted(self, key: str) -> bool:
        """Whether points of that hash may be recorded at all, as far as its type says."""
        service, _, rest = key.partition(":")
        kind = rest.rpartition(":")[2]
        return (_MODEL_TYPES.get(kind) if service == "modsrv" else kind) in self._types

    def choose(self, key: str, field: str) -> Choice:
        address = f"{key}:{field}"
        if not any(pattern.match(key) or pattern.match(address) for pattern in self._subscribed):
            return NOT_RECORDED
        for pattern, item in self._policies:
            if pattern.match(address):
                if not item.record:
                    return NOT_RECORDED
                if item.deadband > 0 or item.min_interval_ms > 0:
                    return Choice(address, Thinning(item.deadband, item.min_interval_ms))
                return Choice(address)
        return Choice(address)


def _batch_problems(batch: BatchConfig) -> list[Problem]:
    problems = []
    if not 1 <= batch.size <= MAX_SIZE:
        problems.append(Problem("out_of_range", "batch_config.size", f"use 1 to {MAX_SIZE}"))
    if not 1 <= batch.timeout_ms <= MAX_TIMEOUT_MS:
        problems.append(Problem("out_of_range", "batch_config.timeout_ms", f"use 1 to {MAX_TIMEOUT_MS}"))
    for at, letter in enumerate(batch.type_filter):
        if letter not in TYPES:
            path = f"batch_config.type_filter[{at}]"
            problems.append(Problem("unknown_type", path, f"use some of {', '.join(TYPES)}"))
    return problems


def _point_problems(item: PointPolicy, path: str) -> list[Problem]:
    problems = []
    if not item.match:
        problems.append(Problem("bad_pattern", f"{path}.match", "write an address or a pattern: `comsrv:1001:m:*`"))
    if not 0 <= item.deadband < float("inf"):
        problems.append(Problem("out_of_range", f"{path}.deadband", "use 0 (off) or more"))
    if item.min_interval_ms < 0:
        problems.append(Problem("out_of_range", f"{path}.min_interval_ms", "use 0 (off) or more"))
    if not is_id(item.series_class):
        problems.append(Problem("bad_id", f"{path}.class", "use a short word"))
    return problems


def _problem_of(error: msgspec.ValidationError) -> Problem:
    what, _, where = str(error).partition(" - at `$")
    return Problem("bad_policy", where.rstrip("`").lstrip(".") or "history", what)


def _invalid(problems: list[Problem]) -> Invalid:
    few = "; ".join(f"{problem.path}: {problem.hint}" for problem in problems[:3])
    message = f"the policy of history has {len(problems)} problems: {few}"
    return Invalid(message, code="bad_policy", hint="correct what is named", problems=problems)
