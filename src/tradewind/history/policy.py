"""What is recorded: the document `history:policy` (a station folder's `history.yaml`), checked and compiled. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
#: What is kept: samples, and the rollups of minutes and hours.
KINDS = ("raw", "minute", "hour")
#: The class of a series for which no policy names another; its days are those of the settings.
DEFAULT_CLASS = "default"
MAX_CLASSES = 100
MAX_DAYS = 36_500


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
    series_class: str = DEFAULT_CLASS


class ClassDays(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Days that each kind is kept: 0 for ever, None as long as the settings say."""

    raw_days: int | None = None
    minute_days: int | None = None
    hour_days: int | None = None


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`subscribe`: patterns of hashes (`comsrv:1001:m`) or addresses. Of `policies` the first that matches counts; a
    point that none matches is recorded as it is. `classes`: how long series of these names are kept."""

    batch_config: BatchConfig = BatchConfig()
    subscribe: tuple[str, ...] = ("comsrv:*", "modsrv:*")
    policies: tuple[PointPolicy, ...] = ()
    classes: dict[str, ClassDays] = {}


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
    problems += _class_problems(policy.classes)
    if len(policy.policies) > MAX_POLICIES:
        problems.append(Problem("too_many", "policies", f"use {MAX_POLICIES} at most; patterns cover many points"))
    for at, item in enumerate(policy.policies[:MAX_POLICIES]):
        problems += _point_problems(item, f"policies[{at}]", policy.classes)
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


def _class_problems(classes: Mapping[str, ClassDays]) -> list[Problem]:
    problems = []
    if len(classes) > MAX_CLASSES:
        problems.append(Problem("too_many", "classes", f"use {MAX_CLASSES} at most"))
    for name, item in list(classes.items())[:MAX_CLASSES]:
        path = f"classes.{name}"
        if name == DEFAULT_CLASS:
            hint = (
                "its days are the settings history.raw_days, minute_days and hour_days: set these, or use another name"
            )
            problems.append(Problem("reserved", path, hint))
        elif not is_id(name):
            problems.append(Problem("bad_id", path, "use a short word"))
        finer: tuple[str, int] | None = None
        for kind in KINDS:
            days = getattr(item, f"{kind}_days")
            if days is None:
                continue
            if not 0 <= days <= MAX_DAYS:
                hint = f"use 0 (for ever) to {MAX_DAYS}"
                problems.append(Problem("out_of_range", f"{path}.{kind}_days", hint))
            elif finer is not None and days and not 0 < finer[1] <= days:
                hint = f"rollups are kept at least as long as {finer[0]}, {finer[1] or 'for ever'}: use more, or 0"
                problems.append(Problem("out_of_range", f"{path}.{kind}_days", hint))
            else:
                finer = f"{kind}_days", days
    return problems


def _point_problems(item: PointPolicy, path: str, classes: Mapping[str, ClassDays]) -> list[Problem]:
    problems = []
    if not item.match:
        problems.append(Problem("bad_pattern", f"{path}.match", "write an address or a pattern: `comsrv:1001:m:*`"))
    if not 0 <= item.deadband < float("inf"):
        problems.append(Problem("out_of_range", f"{path}.deadband", "use 0 (off) or more"))
    if item.min_interval_ms < 0:
        problems.append(Problem("out_of_range", f"{path}.min_interval_ms", "use 0 (off) or more"))
    if item.series_class != DEFAULT_CLASS and item.series_class not in classes:
        known = ", ".join([DEFAULT_CLASS, *sorted(classes)][:20])
        hint = f"there is no class {item.series_class[:64]!r}: use one of {known}, or add it to `classes`"
        problems.append(Problem("unknown_class", f"{path}.class", hint))
    return problems


def _problem_of(error: msgspec.ValidationError) -> Problem:
    what, _, where = str(error).partition(" - at `$")
    return Problem("bad_policy", where.rstrip("`").lstrip(".") or "history", what)


def _invalid(problems: list[Problem]) -> Invalid:
    few = "; ".join(f"{problem.path}: {problem.hint}" for problem in problems[:3])
    message = f"the policy of history has {len(problems)} problems: {few}"
    return Invalid(message, code="bad_policy", hint="correct what is named", problems=problems)
